//! The spans of a request in progress.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry::StringValue;
use wire::ParentSpan;

use super::tracer::{Tracer, new_span_id};

/// An attribute of a span: a name that follows OpenTelemetry's conventions, and a value.
pub type Attribute = (&'static str, AttributeValue);

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A count.
    Whole(i64),
    /// Text. Constant and shared texts are not copied.
    Text(StringValue),
}

impl From<u64> for AttributeValue {
    fn from(count: u64) -> Self {
        Self::Whole(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u32> for AttributeValue {
    fn from(count: u32) -> Self {
        Self::Whole(count.into())
    }
}

impl From<usize> for AttributeValue {
    fn from(count: usize) -> Self {
        Self::Whole(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Arc<str>> for AttributeValue {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text).into())
    }
}

/// A span: one operation of a request.
#[derive(Clone, Debug)]
pub struct Span {
    /// The span's name.
    pub name: Cow<'static, str>,
    /// The time at which it began.
    pub began: Instant,
    /// The time at which it ended.
    pub ended: Instant,
    /// The span's id, if another process or span knows it already. Otherwise one is chosen when the span is exported.
    pub id: Option<u64>,
    /// The id of the parent span. `None` is the request's own span.
    pub within: Option<u64>,
    /// Whether the span is a call to another process.
    pub is_call: bool,
    /// The error, if the operation failed.
    pub fault: Option<String>,
    /// The span's attributes.
    pub attributes: Vec<Attribute>,
}

impl Span {
    /// Creates a child of the request's own span.
    pub fn new(name: impl Into<Cow<'static, str>>, began: Instant, ended: Instant) -> Self {
        let (name, attributes) = (name.into(), Vec::new());
        Self { name, began, ended, id: None, within: None, is_call: false, fault: None, attributes }
    }
}

/// The maximum number of spans of one request: half of the export queue. A Take of a million rows has a hundred
/// fetches. With one I/O node, each fetch has about ten spans.
pub const SPANS_MAX: usize = 1024;

/// The trace of a request in progress.
#[derive(Debug)]
pub struct Recording {
    pub(super) name: &'static str,
    /// The request's own span, and whether the trace is sampled.
    pub(super) own: ParentSpan,
    /// The id of the caller's span.
    pub(super) parent: Option<u64>,
    pub(super) began: Instant,
    pub(super) spans: Vec<Span>,
    /// The number of spans that were dropped.
    pub(super) left_out: usize,
}

impl Recording {
    /// Returns the request's own span, as the parent of spans on other nodes.
    pub fn span(&self) -> ParentSpan {
        self.own
    }

    /// Returns whether the trace is sampled, so that it is exported in any case. Details that are useful only for
    /// sampled requests need not be recorded for others.
    pub fn is_sampled(&self) -> bool {
        self.own.is_sampled
    }

    /// Adds a span and its descendants. A descendant without a parent id becomes a child of `span`.
    pub fn add(&mut self, mut span: Span, descendants: Vec<Span>) {
        // A span without children gets its id when it is exported.
        if !descendants.is_empty() {
            span.id.get_or_insert_with(new_span_id);
        }
        let id = span.id;
        self.push(span);
        for span in descendants {
            self.push(Span { within: span.within.or(id), ..span });
        }
    }

    fn push(&mut self, span: Span) {
        match self.spans.len() < SPANS_MAX {
            true => self.spans.push(span),
            false => self.left_out += 1,
        }
    }

    /// Records that `spans` spans were dropped.
    pub fn leave_out(&mut self, spans: usize) {
        self.left_out += spans;
    }

    /// Ends the request. `tracer`, which must have begun it, exports the trace if it was sampled, slow or failed.
    /// Only then `describe` is called, which adds spans and returns attributes of the request's span. `fault` is the
    /// error if the request failed through no fault of the caller.
    pub fn end(
        self,
        tracer: &Tracer,
        fault: Option<&str>,
        describe: impl FnOnce(&mut Self) -> Vec<Attribute>,
    ) {
        tracer.ended(self, Instant::now(), fault, describe);
    }
}
