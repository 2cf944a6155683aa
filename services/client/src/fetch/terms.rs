//! On what terms a batch is fetched.

use tokio::time::Instant;
use wire::fetch::Priority;

/// Until when, and before whom.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// After this the answer is of no use.
    pub deadline: Instant,
    /// Which of the rows that wait on the I/O node go first.
    pub priority: Priority,
}

/// Somebody waits for it.
impl From<Instant> for Terms {
    fn from(deadline: Instant) -> Self {
        Self { deadline, priority: Priority::Interactive }
    }
}
