//! On what context a batch is fetched.

use tokio::time::Instant;
use wire::ParentSpan;
use wire::fetch::Priority;

/// Until when, before whom, and for which trace.
#[derive(Clone, Copy, Debug)]
pub struct FetchContext {
    /// After this the answer is of no use.
    pub deadline: Instant,
    /// Which of the rows that wait on the I/O node go first.
    pub priority: Priority,
    /// The caller's span, for the I/O node's to be within; `None` where nothing is traced.
    pub span: Option<ParentSpan>,
}

/// Somebody waits for it.
impl From<Instant> for FetchContext {
    fn from(deadline: Instant) -> Self {
        Self { deadline, priority: Priority::Interactive, span: None }
    }
}
