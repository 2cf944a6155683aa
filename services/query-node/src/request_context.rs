//! On what context a request is answered: until when, before whom, and for which trace.

use std::time::Duration;

use client::fetch;
use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::MetadataMap;
use wire::fetch::Priority;
use wire::{DEADLINE_MAX, ParentSpan, asked_timeout};

use crate::error::{QueryError, Result};

/// A request's context, for all of its stages.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// After this the answer is of no use.
    deadline: Instant,
    /// Whether it goes before or after others that wait.
    priority: Priority,
    /// The span that what is done is within: the caller's, then the request's own where this node tells of spans.
    /// `None` where nothing is traced.
    pub span: Option<ParentSpan>,
}

impl RequestContext {
    /// `timeout` from now, at most [`DEADLINE_MAX`].
    pub fn after(timeout: Duration) -> Self {
        let deadline = Instant::now() + timeout.min(DEADLINE_MAX);
        Self { deadline, priority: Priority::Interactive, span: None }
    }

    /// From a request's `grpc-timeout` and `traceparent`; `timeout` from now if it brings no deadline.
    ///
    /// A little before the caller's own, because what is answered then still gets there: after it
    /// tonic says no more than "cancelled".
    pub fn from_metadata(metadata: &MetadataMap, timeout: Duration) -> Self {
        let timeout = match asked_timeout(metadata.as_ref()) {
            Some(asked) => asked - (asked / 10).min(Duration::from_millis(20)),
            None => timeout,
        };
        let span = metadata.get("traceparent").and_then(|it| ParentSpan::parse(it.to_str().ok()?));
        Self { span, ..Self::after(timeout) }
    }

    /// The trace's name, for lines in the log.
    pub fn trace_id(self) -> Option<String> {
        self.span.map(|span| span.trace_id())
    }

    /// The same, for what is done within `span`.
    pub fn in_span(self, span: Option<ParentSpan>) -> Self {
        Self { span, ..self }
    }

    /// The same within `timeout` from now, at most [`DEADLINE_MAX`].
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout.min(DEADLINE_MAX), ..self }
    }

    /// The same for a request of this priority, as it came over the wire.
    ///
    /// # Errors
    /// [`QueryError::BadRequest`] for none that there is.
    pub fn with_priority(self, priority: i32) -> Result<Self> {
        match Priority::try_from(priority) {
            Ok(Priority::Unspecified) => Ok(self),
            Ok(priority) => Ok(Self { priority, ..self }),
            Err(_) => {
                let problem = format!("is {priority}; give 1 (interactive) or 2 (batch)");
                Err(QueryError::BadRequest { field: "priority", problem })
            }
        }
    }

    /// The same for work that searches go before.
    pub fn as_batch(self) -> Self {
        Self { priority: Priority::Batch, ..self }
    }

    /// Whether it goes before or after others that wait.
    pub fn priority(self) -> Priority {
        self.priority
    }

    /// On what context an I/O node is asked: what is left after its deadline is for reading the table instead. What
    /// it does is within `span`.
    pub fn for_io_nodes(self, span: Option<ParentSpan>) -> fetch::FetchContext {
        let now = Instant::now();
        let deadline = now + (self.deadline.saturating_duration_since(now)) * 3 / 4;
        fetch::FetchContext { deadline, priority: self.priority, span }
    }

    /// # Errors
    /// [`QueryError::DeadlinePassed`].
    pub fn check(self, during: &'static str) -> Result<()> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(QueryError::DeadlinePassed { during }),
        }
    }

    /// `work`, dropped when the deadline passes.
    pub async fn bound<T>(self, during: &'static str, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let late = |_| QueryError::DeadlinePassed { during };
        timeout_at(self.deadline, work).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_one_that_there_is() {
        let context = RequestContext::after(Duration::from_secs(1));
        let of = |number| context.with_priority(number).map(|it| it.for_io_nodes(None).priority);
        assert_eq!(of(0).unwrap(), Priority::Interactive);
        assert_eq!(of(2).unwrap(), Priority::Batch);
        let within = context.with_priority(2).unwrap().with_timeout(Duration::from_secs(2));
        assert_eq!(within.priority(), Priority::Batch);
        assert!(of(7).unwrap_err().to_string().contains("priority"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_deadline_is_further_away_than_the_longest() {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", "99999999H".parse().unwrap());
        let now = Instant::now();
        for context in [
            RequestContext::from_metadata(&metadata, Duration::from_secs(30)),
            RequestContext::after(Duration::MAX),
            RequestContext::after(Duration::ZERO).with_timeout(Duration::MAX),
        ] {
            let left = context.deadline - now;
            assert!(left <= DEADLINE_MAX && left > DEADLINE_MAX * 9 / 10, "{left:?}");
        }
    }
}
