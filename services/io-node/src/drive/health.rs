//! A drive's health, judged by its reads and writes. A single bad sector does not change the drive's state. It counts
//! as one failed extent, or as several if the read that failed was for several extents (`fetch/reader/deliver.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use ring::{DriveFault, ReadError, WriteError};
use tokio::time::Instant;

/// The state of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DriveState {
    /// The drive is read and filled.
    #[default]
    Serving,
    /// The drive takes no writes; the extents on it are served.
    ReadOnly,
    /// The drive is not used any more.
    Retired,
}

/// Why an extent's bytes can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// A sector differs from what was written.
    #[error("a sector does not match its checksum")]
    Checksum,
    /// The bytes are as written, but a row can't be decoded.
    #[error("a row can't be decoded")]
    Undecodable,
    /// The bytes can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a block may be missing from a journal for good.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The block could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The task that writes the block panicked, so it is unknown whether the block was written.
    #[error("writing its journal panicked, which is a defect")]
    Panicked,
}

impl ExtentError {
    /// Returns whether the extent's data is bad, so that it can't be served any more. A full ring or a shortage of
    /// kernel resources says nothing about the data.
    pub fn means_bad_data(&self) -> bool {
        match self {
            Self::Read(ReadError::Io { fault, .. }) => {
                !matches!(fault, DriveFault::Busy | DriveFault::Misuse)
            }
            Self::Read(error) => matches!(error, ReadError::PastEnd { .. }),
            Self::Checksum | Self::Undecodable => true,
        }
    }
}

/// Returns whether a failed write is the drive's fault. A full ring or a shortage of kernel resources is not.
pub fn is_drive_fault(error: &WriteError) -> bool {
    match error {
        WriteError::Io { fault, .. } => !matches!(fault, DriveFault::Busy | DriveFault::Misuse),
        WriteError::NoSpace { .. } | WriteError::PastEnd { .. } => true,
        _ => false,
    }
}

/// A drive is retired when this many extents fail within [`FAILURE_WINDOW`]. A few bad sectors must not cost all that
/// the drive caches; a drive that loses more than one extent every two seconds is failing as a whole. The number was
/// not measured.
const READ_FAILURES_MAX: usize = 32;

/// The time for which a failed extent, or a second with late answers or slow reads, counts against the drive.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

/// This many seconds with late answers (or with slow reads) within [`FAILURE_WINDOW`] are too many. Fewer are
/// tolerated, because drives behind a network pause now and then.
const BAD_SECONDS_MAX: usize = 30;

/// A drive takes no more writes after this many writes have failed in a row. A single failed write costs one extent and
/// may have a passing cause.
const WRITE_FAILURES_MAX: u32 = 3;

/// One drive's failures.
#[derive(Debug, Default)]
pub struct Health {
    state: DriveState,
    read_failures: VecDeque<Instant>,
    /// The time of the first late answer in each second that had one.
    late: VecDeque<Instant>,
    /// The time of the first report of slow reads in each second that had one.
    slow: VecDeque<Instant>,
    write_failures: u32,
}

impl Health {
    /// Returns the drive's state.
    pub fn state(&self) -> DriveState {
        self.state
    }

    /// Counts an extent that could not be served, unless its bytes are as they were written. Returns whether the
    /// drive's state changed.
    pub fn read_failed(&mut self, error: ExtentError, now: Instant) -> bool {
        if error == ExtentError::Undecodable {
            return false;
        }
        forget_old(&mut self.read_failures, now);
        self.read_failures.push_back(now);
        let is_gone =
            matches!(error, ExtentError::Read(ReadError::Io { fault: DriveFault::Gone, .. }));
        match is_gone || self.read_failures.len() >= READ_FAILURES_MAX {
            true => self.become_state(DriveState::Retired),
            false => false,
        }
    }

    /// Counts a late answer to a read or write. Returns whether the drive's state changed.
    pub fn was_late(&mut self, now: Instant) -> bool {
        are_too_many(&mut self.late, now) && self.retire()
    }

    /// Counts a second in which all reads took many times longer than usual. Returns whether there were too many such
    /// seconds; if so, the count starts anew.
    pub fn was_slow(&mut self, now: Instant) -> bool {
        let is_for_long = are_too_many(&mut self.slow, now);
        if is_for_long {
            self.slow.clear();
        }
        is_for_long
    }

    /// Retires the drive. Returns whether its state changed.
    pub fn retire(&mut self) -> bool {
        self.become_state(DriveState::Retired)
    }

    /// Records that an extent was written, which ends a run of failed writes.
    pub fn written(&mut self) {
        self.write_failures = 0;
    }

    /// Counts a failed write of an extent. Returns whether the drive's state changed.
    pub fn write_failed(&mut self, error: &WriteError) -> bool {
        if !is_drive_fault(error) {
            return false;
        }
        self.write_failures += 1;
        match error {
            WriteError::Io { fault: DriveFault::Gone, .. } => {
                self.become_state(DriveState::Retired)
            }
            _ if self.write_failures >= WRITE_FAILURES_MAX => self.worsen(error),
            _ => false,
        }
    }

    /// Handles a failed write or flush of a journal. After a panic or a fault of the drive, it is unknown which of the
    /// journal's blocks the drive has, so no more are written. Returns whether the drive's state changed.
    pub fn journal_failed(&mut self, error: &JournalError) -> bool {
        match error {
            JournalError::Panicked => self.become_state(DriveState::ReadOnly),
            JournalError::Write(error) => self.worsen(error),
        }
    }

    fn worsen(&mut self, error: &WriteError) -> bool {
        match error {
            _ if !is_drive_fault(error) => false,
            WriteError::Io { fault: DriveFault::Gone, .. } => {
                self.become_state(DriveState::Retired)
            }
            _ => self.become_state(DriveState::ReadOnly),
        }
    }

    /// Changes the state unless that would improve it. Returns whether it changed.
    fn become_state(&mut self, state: DriveState) -> bool {
        let worse = state as u8 > self.state as u8;
        if worse {
            self.state = state;
        }
        worse
    }
}

/// Records an event at `now`, at most one per second, and returns whether there were too many such seconds within
/// [`FAILURE_WINDOW`].
fn are_too_many(seconds: &mut VecDeque<Instant>, now: Instant) -> bool {
    forget_old(seconds, now);
    if seconds.back().is_none_or(|&last| now - last >= Duration::from_secs(1)) {
        seconds.push_back(now);
    }
    seconds.len() >= BAD_SECONDS_MAX
}

fn forget_old(failures: &mut VecDeque<Instant>, now: Instant) {
    while failures.front().is_some_and(|&then| now - then > FAILURE_WINDOW) {
        failures.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use address::{ByteOffset, DriveNo};

    use super::*;

    fn read(errno: i32) -> ExtentError {
        let (drive, offset) = (DriveNo(0), ByteOffset(0));
        ExtentError::Read(ReadError::Io { drive, offset, errno, fault: DriveFault::of(errno) })
    }

    fn write(errno: i32) -> WriteError {
        let (drive, offset) = (DriveNo(0), ByteOffset(0));
        WriteError::Io { drive, offset, errno, fault: DriveFault::of(errno) }
    }

    const EIO: i32 = 5;
    const ENODEV: i32 = 19;

    #[test]
    fn a_bad_sector_now_and_then_does_not_retire_a_drive() {
        let (mut health, start) = (Health::default(), Instant::now());
        for minute in 0..1000 {
            let now = start + Duration::from_secs(2) * minute;
            assert!(
                !health.read_failed([read(EIO), ExtentError::Checksum][minute as usize % 2], now)
            );
            assert!(!health.read_failed(ExtentError::Undecodable, now));
        }
        assert_eq!(health.state(), DriveState::Serving);
    }

    #[test]
    fn many_failed_extents_or_a_missing_drive_retire_it() {
        let (mut health, now) = (Health::default(), Instant::now());
        let changes = (0..40).filter(|_| health.read_failed(ExtentError::Checksum, now)).count();
        assert_eq!((changes, health.state()), (1, DriveState::Retired));
        for gone in [
            Health::read_failed(&mut Health::default(), read(ENODEV), now),
            Health::write_failed(&mut Health::default(), &write(ENODEV)),
        ] {
            assert!(gone);
        }
    }

    #[test]
    fn a_pause_is_tolerated_and_a_drive_that_stays_late_is_retired() {
        let (mut health, start) = (Health::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        // A pause of five seconds every minute.
        assert!((0..50_000).all(|ms| !health.was_late(at(ms / 5000 * 60_000 + ms % 5000))));
        assert!((0..290).all(|tenth| !health.was_late(at(1_000_000 + tenth * 100))));
        assert!(health.was_late(at(1_029_000)));
        assert_eq!(health.state(), DriveState::Retired);
    }

    #[test]
    fn a_drive_that_stays_slow_is_reported_once() {
        let (mut health, start) = (Health::default(), Instant::now());
        let reported = (0..300).filter(|&tenth| {
            let now = start + Duration::from_millis(tenth * 100);
            health.was_slow(now)
        });
        assert_eq!(reported.collect::<Vec<_>>(), [290]);
        assert_eq!(health.state(), DriveState::Serving);
        assert!(health.retire() && !health.retire());
    }

    #[test]
    fn writes_that_fail_in_a_row_make_a_drive_read_only() {
        let mut health = Health::default();
        let full = WriteError::NoSpace { drive: DriveNo(0), offset: ByteOffset(0) };
        assert!(!health.write_failed(&full) && !health.write_failed(&write(EIO)));
        health.written();
        assert!(!health.write_failed(&full) && !health.write_failed(&full));
        assert!(health.write_failed(&full));
        assert_eq!(health.state(), DriveState::ReadOnly);
        assert!(
            !health.journal_failed(&write(EIO).into()) && !health.write_failed(&WriteError::Closed)
        );
        // A full queue of a core is not the drive's fault.
        let mut other = Health::default();
        let full = WriteError::Full { queue_max: 9 };
        assert!((0..9).all(|_| !other.write_failed(&full) && !other.worsen(&full)));
        assert!(health.journal_failed(&write(ENODEV).into()));
        assert_eq!(health.state(), DriveState::Retired);
    }
}
