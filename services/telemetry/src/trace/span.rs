//! A span: its contents, its attributes and its id.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry::StringValue;
use rand::Rng;
use wire::ParentSpan;

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

/// Returns a new child span of `parent`.
pub fn child_of(parent: ParentSpan) -> ParentSpan {
    ParentSpan { span: new_span_id(), ..parent }
}

/// Returns a random span id; not 0.
pub(super) fn new_span_id() -> u64 {
    rand::rng().random::<NonZeroU64>().get()
}
