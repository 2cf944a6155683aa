//! Decides what one completion means for its operation: finished, to be submitted again, or failed. Pure.

use address::SECTOR_BYTES;

/// The number of successive completions without progress (EINTR, EAGAIN, less than a sector) after which an operation
/// fails. The limit only ensures that no operation is retried forever.
pub(crate) const ATTEMPTS_MAX: u8 = 64;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read,
    Write,
    Fsync,
}

/// The progress of an operation of `len` bytes, of which `done` bytes were transferred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub len: u32,
    pub done: u32,
    attempts: u8,
}

/// The consequence of a completion for its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// Submit the rest of the operation, which begins at `Progress::done`.
    Resubmit,
    /// A read reached the end of the file.
    EndOfFile,
    /// The operation failed with this positive errno.
    Failed(i32),
}

impl Progress {
    pub const fn new(len: u32) -> Self {
        Self { len, done: 0, attempts: 0 }
    }

    /// Processes a completion of the operation, or of the rest of it, and returns what to do next.
    pub fn advance(&mut self, kind: OpKind, result: Result<u32, i32>) -> Verdict {
        match (kind, result) {
            (_, Err(errno @ (libc::EINTR | libc::EAGAIN))) => self.retry(errno),
            (_, Err(errno)) => Verdict::Failed(errno),
            (OpKind::Fsync, Ok(_)) => Verdict::Done,
            (_, Ok(bytes)) if bytes == self.len - self.done => Verdict::Done,
            (_, Ok(bytes)) if bytes > self.len - self.done => Verdict::Failed(libc::EIO),
            (OpKind::Read, Ok(0)) => Verdict::EndOfFile,
            (_, Ok(bytes)) => {
                // O_DIRECT transfers only whole sectors, so a partial sector is transferred again.
                let whole = bytes - bytes % SECTOR_BYTES as u32;
                if whole == 0 {
                    return self.retry(libc::EIO);
                }
                self.done += whole;
                self.attempts = 0;
                Verdict::Resubmit
            }
        }
    }

    fn retry(&mut self, errno: i32) -> Verdict {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS_MAX { Verdict::Failed(errno) } else { Verdict::Resubmit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_transfer_resumes_at_a_sector_boundary() {
        let mut progress = Progress::new(16384);
        assert_eq!(progress.advance(OpKind::Read, Ok(5000)), Verdict::Resubmit);
        assert_eq!(progress.done, 4096);
        assert_eq!(progress.advance(OpKind::Read, Ok(8192)), Verdict::Resubmit);
        assert_eq!(progress.done, 12288);
        assert_eq!(progress.advance(OpKind::Read, Ok(4096)), Verdict::Done);
    }

    #[test]
    fn end_of_file_and_errors() {
        let advance = |kind, result| Progress::new(4096).advance(kind, result);
        assert_eq!(advance(OpKind::Read, Ok(0)), Verdict::EndOfFile);
        assert_eq!(advance(OpKind::Write, Ok(0)), Verdict::Resubmit);
        assert_eq!(advance(OpKind::Fsync, Ok(0)), Verdict::Done);
        assert_eq!(advance(OpKind::Read, Err(libc::EIO)), Verdict::Failed(libc::EIO));
        assert_eq!(advance(OpKind::Write, Err(libc::ENOSPC)), Verdict::Failed(libc::ENOSPC));
        assert_eq!(advance(OpKind::Read, Ok(4097)), Verdict::Failed(libc::EIO));
    }

    #[test]
    fn retries_are_limited() {
        let mut progress = Progress::new(4096);
        for _ in 1..ATTEMPTS_MAX {
            assert_eq!(progress.advance(OpKind::Read, Err(libc::EINTR)), Verdict::Resubmit);
        }
        assert_eq!(
            progress.advance(OpKind::Read, Err(libc::EAGAIN)),
            Verdict::Failed(libc::EAGAIN)
        );
    }
}
