//! What one completion means for its operation: done, once more, or failed. Pure.

use address::SECTOR_BYTES;

/// Completions without progress (EINTR, EAGAIN, less than a sector) before an operation fails.
pub(crate) const ATTEMPTS_MAX: u8 = 64;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

/// How far an operation of `len` bytes has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub len: u32,
    pub done: u32,
    attempts: u8,
}

/// What to do after a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// Submit the rest: `Progress` says where it begins.
    Again,
    /// A read found the end of the file.
    End,
    /// Positive errno.
    Failed(i32),
}

impl Progress {
    pub const fn new(len: u32) -> Self {
        Self { len, done: 0, attempts: 0 }
    }

    /// Judges a completion of the rest of the operation.
    pub fn judge(&mut self, kind: Kind, result: Result<u32, i32>) -> Verdict {
        match (kind, result) {
            (_, Err(errno @ (libc::EINTR | libc::EAGAIN))) => self.try_again(errno),
            (_, Err(errno)) => Verdict::Failed(errno),
            (Kind::Sync, Ok(_)) => Verdict::Done,
            (_, Ok(bytes)) if bytes == self.len - self.done => Verdict::Done,
            (_, Ok(bytes)) if bytes > self.len - self.done => Verdict::Failed(libc::EIO),
            (Kind::Read, Ok(0)) => Verdict::End,
            (_, Ok(bytes)) => {
                // O_DIRECT takes only whole sectors, so the part of a sector is moved again.
                let whole = bytes - bytes % SECTOR_BYTES as u32;
                if whole == 0 {
                    return self.try_again(libc::EIO);
                }
                self.done += whole;
                self.attempts = 0;
                Verdict::Again
            }
        }
    }

    fn try_again(&mut self, errno: i32) -> Verdict {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS_MAX { Verdict::Failed(errno) } else { Verdict::Again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_go_on_at_a_sector() {
        let mut progress = Progress::new(16384);
        assert_eq!(progress.judge(Kind::Read, Ok(5000)), Verdict::Again);
        assert_eq!(progress.done, 4096);
        assert_eq!(progress.judge(Kind::Read, Ok(8192)), Verdict::Again);
        assert_eq!(progress.done, 12288);
        assert_eq!(progress.judge(Kind::Read, Ok(4096)), Verdict::Done);
    }

    #[test]
    fn ends_and_errors() {
        let judge = |kind, result| Progress::new(4096).judge(kind, result);
        assert_eq!(judge(Kind::Read, Ok(0)), Verdict::End);
        assert_eq!(judge(Kind::Write, Ok(0)), Verdict::Again);
        assert_eq!(judge(Kind::Sync, Ok(0)), Verdict::Done);
        assert_eq!(judge(Kind::Read, Err(libc::EIO)), Verdict::Failed(libc::EIO));
        assert_eq!(judge(Kind::Write, Err(libc::ENOSPC)), Verdict::Failed(libc::ENOSPC));
        assert_eq!(judge(Kind::Read, Ok(4097)), Verdict::Failed(libc::EIO));
    }

    #[test]
    fn retries_end() {
        let mut progress = Progress::new(4096);
        for _ in 1..ATTEMPTS_MAX {
            assert_eq!(progress.judge(Kind::Read, Err(libc::EINTR)), Verdict::Again);
        }
        assert_eq!(progress.judge(Kind::Read, Err(libc::EAGAIN)), Verdict::Failed(libc::EAGAIN));
    }
}
