//! Traces: one a request, across both tiers.
//!
//! A request's stages are timed in any case; spans are made of them once it has ended, and only if it is to be told
//! of: because it is in the sampled share, or who asked wants it traced, or it was slow, or it failed. So what is not
//! told costs two random numbers and a few clock readings.

mod recording;
mod tracer;

pub use recording::{Attribute, Recording, SPANS_MAX, Span};
pub use tracer::{Tracer, child_of};
