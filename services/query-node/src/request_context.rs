//! The context of a request: its deadline, its priority, its flow in the fair queues, and its trace.

use std::time::Duration;

use access::Grant;
use client::fetch;
use futures::future::{self, BoxFuture};
use scheduler::{Flow, Priority};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::metadata::MetadataMap;
use wire::{DEADLINE_MAX, ParentSpan, asked_timeout};

use crate::error::{QueryError, Result};

/// The context that all stages of a request share.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// The moment after which the answer is of no use; of an answer that is sent in pieces, the current piece.
    deadline: Instant,
    /// The moment at which the whole request ends, however many pieces its answer has. `None` if neither the caller nor
    /// the grant limits it: then only each piece has a deadline.
    end: Option<Instant>,
    /// The timeout of each piece of the answer, or of each request of a stream.
    piece_timeout: Duration,
    /// The request's priority among the waiting requests.
    priority: Priority,
    /// The flow of the grant under which the request runs. The fair queues charge the request to this flow.
    flow: Flow,
    /// The parent of spans made for the request: the caller's span, or the request's own if this node exports
    /// spans. `None` if the request is not traced.
    pub span: Option<ParentSpan>,
}

impl RequestContext {
    /// Creates an interactive context without a span. Its deadline is `timeout` from now, or [`DEADLINE_MAX`] from now
    /// if that is sooner.
    pub fn after(timeout: Duration) -> Self {
        let piece_timeout = timeout.min(DEADLINE_MAX);
        let deadline = Instant::now() + piece_timeout;
        let (priority, flow) = (Priority::Interactive, Flow::default());
        Self { deadline, end: None, piece_timeout, priority, flow, span: None }
    }

    /// Reads a request's `grpc-timeout` and `traceparent`. A request without a deadline gets one that is `timeout` from
    /// now. If it is answered in pieces, or consists of many requests, a deadline of its caller is that of the whole;
    /// each piece or request has at most [`DEADLINE_MAX`], or `timeout` if its caller sets no deadline.
    ///
    /// The deadline is a little before the caller's own, so that the answer arrives in time: after the caller's
    /// deadline, tonic reports only "cancelled".
    pub fn from_metadata(metadata: &MetadataMap, timeout: Duration) -> Self {
        let context = Self::after(timeout);
        let context = match asked_timeout(metadata.as_ref()) {
            Some(asked) => context.asked(asked - (asked / 10).min(Duration::from_millis(20))),
            None => context,
        };
        let span = metadata.get("traceparent").and_then(|it| ParentSpan::parse(it.to_str().ok()?));
        Self { span, ..context }
    }

    /// Returns the trace's id, for log lines.
    pub fn trace_id(self) -> Option<String> {
        self.span.map(|span| span.trace_id())
    }

    /// Returns this context with `span` as the parent of further spans.
    pub fn in_span(self, span: Option<ParentSpan>) -> Self {
        Self { span, ..self }
    }

    /// Returns the context of a piece of the answer, or of a request of a stream, that begins now.
    pub fn for_piece(self) -> Self {
        self.with_timeout(self.piece_timeout)
    }

    /// Returns this context with a deadline `timeout` from now, at most [`DEADLINE_MAX`], and not after the end of the
    /// request.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        let deadline = Instant::now() + timeout.min(DEADLINE_MAX);
        Self { deadline: self.end.map_or(deadline, |end| deadline.min(end)), ..self }
    }

    /// Returns this context with the end of the whole request at most `timeout` from now.
    pub fn within(self, timeout: Duration) -> Self {
        // An end that the clock can't represent is none.
        let Some(end) = Instant::now().checked_add(timeout) else { return self };
        let end = self.end.map_or(end, |earlier| earlier.min(end));
        Self { deadline: self.deadline.min(end), end: Some(end), ..self }
    }

    /// Returns this context with the deadline that the caller asks for, `timeout` from now, in place of the node's
    /// default: for the whole request, each piece of which has at most [`DEADLINE_MAX`]. It is not after an earlier
    /// end.
    pub fn asked(self, timeout: Duration) -> Self {
        Self { piece_timeout: DEADLINE_MAX, ..self }.for_piece().within(timeout)
    }

    /// Waits until the end of the whole request; forever if it has none.
    pub async fn ended(self) {
        match self.end {
            Some(end) => sleep_until(end).await,
            None => future::pending().await,
        }
    }

    /// Returns the time that is left until the deadline.
    pub fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns this context with a priority from the wire.
    ///
    /// # Errors
    /// [`QueryError::BadRequest`] if the number is not a priority.
    pub fn with_priority(self, priority: i32) -> Result<Self> {
        match wire::fetch::Priority::try_from(priority) {
            Ok(wire::fetch::Priority::Unspecified) => Ok(self),
            Ok(wire::fetch::Priority::Interactive) => {
                Ok(Self { priority: Priority::Interactive, ..self })
            }
            Ok(wire::fetch::Priority::Batch) => Ok(self.as_batch()),
            Err(_) => {
                let problem = format!("is {priority}; give 1 (interactive) or 2 (batch)");
                Err(QueryError::BadRequest { field: "priority", problem })
            }
        }
    }

    /// Returns this context with batch priority.
    pub fn as_batch(self) -> Self {
        Self { priority: Priority::Batch, ..self }
    }

    /// Returns the context of a request under `grant`: in the grant's flow, and limited to its timeout and priority.
    pub fn under(self, grant: &Grant) -> Self {
        let mut context = Self { flow: grant.flow(), ..self };
        if let Some(timeout) = grant.timeout() {
            context = context.within(timeout);
        }
        if grant.batch_only() { context.as_batch() } else { context }
    }

    /// Returns this context in another flow.
    #[cfg(test)]
    pub fn with_flow(self, flow: Flow) -> Self {
        Self { flow, ..self }
    }

    /// Returns the flow to which the fair queues charge the request.
    pub fn flow(self) -> Flow {
        self.flow
    }

    /// Returns the request's priority among the waiting requests.
    pub fn priority(self) -> Priority {
        self.priority
    }

    /// Returns the context for a request to an I/O node. `span` is the parent of the node's spans. The node gets three
    /// quarters of the remaining time; the rest is for reading the table if the node does not answer.
    pub fn for_io_nodes(self, span: Option<ParentSpan>) -> fetch::FetchContext {
        let now = Instant::now();
        let deadline = now + (self.deadline.saturating_duration_since(now)) * 3 / 4;
        fetch::FetchContext { deadline, priority: self.priority, flow: self.flow, span }
    }

    /// Checks that the deadline has not passed.
    ///
    /// # Errors
    /// [`QueryError::DeadlinePassed`].
    pub fn check(self, during: &'static str) -> Result<()> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(QueryError::DeadlinePassed { during }),
        }
    }

    /// Runs `work`, and drops it when the deadline passes.
    pub async fn bound<T>(self, during: &'static str, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let late = |_| QueryError::DeadlinePassed { during };
        timeout_at(self.deadline, work).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_priority_is_refused() {
        let context = RequestContext::after(Duration::from_secs(1));
        let parse = |number| context.with_priority(number).map(|it| it.for_io_nodes(None).priority);
        assert_eq!(parse(0).unwrap(), fetch::Priority::Interactive);
        assert_eq!(parse(1).unwrap(), fetch::Priority::Interactive);
        assert_eq!(parse(2).unwrap(), fetch::Priority::Batch);
        let longer = context.with_priority(2).unwrap().with_timeout(Duration::from_secs(2));
        assert_eq!(longer.priority(), Priority::Batch);
        assert!(parse(7).unwrap_err().to_string().contains("priority"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_piece_has_a_deadline_and_none_is_after_the_end_of_the_request() {
        let seconds = Duration::from_secs;
        let unlimited = RequestContext::from_metadata(&MetadataMap::new(), seconds(30));
        let granted = unlimited.within(seconds(50));
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", "1H".parse().unwrap());
        let asked = RequestContext::from_metadata(&metadata, seconds(30));
        assert_eq!([unlimited.left(), granted.left(), asked.left()], [30, 30, 300].map(seconds));
        tokio::time::advance(seconds(25)).await;
        let pieces = [unlimited, granted, asked].map(|it| it.for_piece().left());
        assert_eq!(pieces, [30, 25, 300].map(seconds));
        assert_eq!(granted.with_timeout(DEADLINE_MAX).left(), seconds(25));
        assert_eq!(unlimited.left(), seconds(5));
        tokio::time::timeout(seconds(26), granted.ended()).await.expect("its end has come");
        let ends = tokio::time::timeout(2 * DEADLINE_MAX, asked.ended()).await;
        assert!(ends.is_err(), "a deadline of an hour is the end of the whole, not of a piece");
        assert!(tokio::time::timeout(seconds(1 << 20), unlimited.ended()).await.is_err());
        assert_eq!(asked.for_piece().left(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_are_capped() {
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
