//! The place of a request's line in the audit log.

use audit::Reserved;
use futures::FutureExt;

use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::NodeState;

/// Reserves the place of a request's line, if there is an audit log. The caller counts the request as answered if this
/// fails: a log that can't be written fails every request, which metrics must show.
///
/// # Errors
/// [`QueryError::DeadlinePassed`](crate::error::QueryError::DeadlinePassed) if the log had no place before the deadline
/// of `context`.
pub async fn reserve_line(node: &NodeState, context: RequestContext) -> Result<Option<Reserved>> {
    let Some(audit) = &node.audit else { return Ok(None) };
    let reserved = async { Ok(audit.reserve().await) }.boxed();
    context.bound("audit", reserved).await
}
