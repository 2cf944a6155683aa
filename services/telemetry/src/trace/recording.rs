//! A request's spans, as far as it has come.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry::StringValue;
use wire::ParentSpan;

use super::tracer::{Tracer, new_span};

/// What is said of a span: a name by OpenTelemetry's conventions, and a value.
pub type Attribute = (&'static str, AttributeValue);

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A count.
    Whole(i64),
    /// Words; those that are constant, or shared, are not copied.
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

/// Something that a request did.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its name.
    pub name: Cow<'static, str>,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Its own number, if it was told to others already.
    pub id: Option<u64>,
    /// The span that it is within; the request's own if `None`.
    pub within: Option<u64>,
    /// Whether another process was asked.
    pub is_call: bool,
    /// What was wrong.
    pub fault: Option<String>,
    /// What else is to be said of it.
    pub attributes: Vec<Attribute>,
}

impl Span {
    /// Directly within the request.
    pub fn new(name: impl Into<Cow<'static, str>>, began: Instant, ended: Instant) -> Self {
        let (name, attributes) = (name.into(), Vec::new());
        Self { name, began, ended, id: None, within: None, is_call: false, fault: None, attributes }
    }
}

/// Spans of one request at most: half of those that may wait to be sent. A Take of a million rows has a hundred fetches,
/// which of one I/O node make some ten each.
pub const SPANS_MAX: usize = 1024;

/// A request that is under way, and once it is told of, what it did.
#[derive(Debug)]
pub struct Recording {
    pub(super) name: &'static str,
    /// Its own span, and whether it is told of in any case.
    pub(super) own: ParentSpan,
    /// The span that it is within, of who asked.
    pub(super) parent: Option<u64>,
    pub(super) began: Instant,
    pub(super) spans: Vec<Span>,
    pub(super) left_out: usize,
}

impl Recording {
    /// Its span, for what is within it on another node.
    pub fn span(&self) -> ParentSpan {
        self.own
    }

    /// Whether it is told of in any case. What is worth saying only of those need not be made for the others.
    pub fn is_sampled(&self) -> bool {
        self.own.is_sampled
    }

    /// Adds something that it did, and what was done `within` that, or within another of those.
    pub fn add(&mut self, mut span: Span, within: Vec<Span>) {
        // What nothing is within needs no number before it is told.
        if !within.is_empty() {
            span.id.get_or_insert_with(new_span);
        }
        let id = span.id;
        self.push(span);
        within.into_iter().for_each(|span| self.push(Span { within: span.within.or(id), ..span }));
    }

    fn push(&mut self, span: Span) {
        match self.spans.len() < SPANS_MAX {
            true => self.spans.push(span),
            false => self.left_out += 1,
        }
    }

    /// Says that `spans` of what it did were not kept.
    pub fn leave_out(&mut self, spans: usize) {
        self.left_out += spans;
    }

    /// Ends it, and has `tracer`, which began it, tell of it if it is to be told of: only then `tell` adds what it did,
    /// and says what else is to be said of it. `fault` is what was wrong, if that was not the caller's doing.
    pub fn end(
        self,
        tracer: &Tracer,
        fault: Option<&str>,
        tell: impl FnOnce(&mut Self) -> Vec<Attribute>,
    ) {
        tracer.ended(self, Instant::now(), fault, tell);
    }
}
