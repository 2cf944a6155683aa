//! When a node writes the runs of a table beside it. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The range of the random time, in milliseconds, that a node waits before it writes the runs of a version. Nodes see a
/// version at about the same time: the first of them writes, and the others then find the files. Runs of a small append
/// are written in less than a second.
pub const WAIT_MS: std::ops::Range<u64> = 1_000..10_000;

/// The shortest time between two writes of a table. Each takes some requests, makes files that have to be merged with
/// others and deleted again, and saves a node that starts from reading one more minute of appended keys, which it reads
/// within a second.
pub const EVERY: Duration = Duration::from_secs(60);

/// The time after which a node tries again if it could not write. Mostly it lacks the right, or memory, which somebody
/// has to change; look-ups do not suffer meanwhile.
pub const AFTER_FAILURE: Duration = Duration::from_secs(3600);

/// The generation of a table, and its version: a table that was dropped and made anew counts its versions anew.
pub type VersionId = (u64, u64);

/// When the runs of a table are written next.
#[derive(Debug, Default)]
pub struct WriteSchedule {
    /// The version whose runs have been written.
    done: Option<VersionId>,
    /// The time to write at, once there is a version whose runs have not been written.
    due: Option<Instant>,
    not_before: Option<Instant>,
}

impl WriteSchedule {
    /// Returns whether to write the runs of `version`, which look-ups use, now. `wait` is a random time: a version is due
    /// that long after it was first seen. If a newer version comes meanwhile, that one is written at the same time.
    pub fn is_due(&mut self, version: VersionId, now: Instant, wait: Duration) -> bool {
        if self.done == Some(version) {
            self.due = None;
            return false;
        }
        let earliest = self.not_before.map_or(now + wait, |time| time.max(now + wait));
        now >= *self.due.get_or_insert(earliest)
    }

    /// Notes that the runs of `version` have been written, or could not be.
    pub fn ended(&mut self, version: VersionId, now: Instant, is_written: bool) {
        self.done = is_written.then_some(version);
        self.due = None;
        self.not_before = Some(now + if is_written { EVERY } else { AFTER_FAILURE });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_version_is_written_once_and_after_a_wait() {
        let (mut schedule, start) = (WriteSchedule::default(), Instant::now());
        assert!(!schedule.is_due((0, 7), start, WAIT));
        assert!(!schedule.is_due((0, 7), start + WAIT - SECOND, WAIT));
        assert!(schedule.is_due((0, 7), start + WAIT, WAIT));
        schedule.ended((0, 7), start + WAIT, true);
        assert!(!schedule.is_due((0, 7), start + 10 * EVERY, WAIT));
        // The table was made anew.
        assert!(schedule.is_due((1, 7), start + 10 * EVERY, Duration::ZERO));
    }

    #[test]
    fn continuous_appends_are_written_once_a_minute() {
        let (mut schedule, start) = (WriteSchedule::default(), Instant::now());
        let mut written = Vec::new();
        for second in 0..200 {
            let now = start + second * SECOND;
            let version = (0, u64::from(second));
            if schedule.is_due(version, now, WAIT) {
                written.push(second);
                schedule.ended(version, now, true);
            }
        }
        assert_eq!(written, [5, 65, 125, 185]);
    }

    #[test]
    fn a_failed_write_is_repeated_after_an_hour_only() {
        let (mut schedule, start) = (WriteSchedule::default(), Instant::now());
        assert!(schedule.is_due((0, 7), start, Duration::ZERO));
        schedule.ended((0, 7), start, false);
        assert!(!schedule.is_due((0, 7), start + SECOND, WAIT));
        assert!(!schedule.is_due((0, 8), start + AFTER_FAILURE - SECOND, WAIT));
        assert!(schedule.is_due((0, 8), start + AFTER_FAILURE, WAIT));
    }
}
