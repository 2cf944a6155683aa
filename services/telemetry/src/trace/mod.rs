//! Traces of requests across both tiers.
//!
//! The stages of every request are timed. Spans are made from these times when the request has ended, and only if the
//! request is exported, that is, if it was sampled here or by its caller, was slow, or failed. A request that is not
//! exported costs a few random numbers and clock readings.

mod allowance;
mod recording;
mod span;
mod tracer;

pub use recording::{Recording, SPANS_MAX};
pub use span::{Attribute, Span, child_of};
pub use tracer::Tracer;
