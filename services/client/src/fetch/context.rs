//! The context of a fetch.

use scheduler::{Flow, Priority};
use tokio::time::Instant;
use wire::ParentSpan;

/// The deadline, priority, flow and trace of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchContext {
    /// The moment after which the answer is of no use.
    pub deadline: Instant,
    /// The priority of the rows among those that wait on the I/O node.
    pub priority: Priority,
    /// The flow to which the fair queues of this client and of the I/O node charge the fetch.
    pub flow: Flow,
    /// The caller's span, parent of the I/O node's spans; `None` if the fetch is not traced.
    pub span: Option<ParentSpan>,
}

/// Creates an interactive context without a span, in the default flow.
impl From<Instant> for FetchContext {
    fn from(deadline: Instant) -> Self {
        Self { deadline, priority: Priority::Interactive, flow: Flow::default(), span: None }
    }
}
