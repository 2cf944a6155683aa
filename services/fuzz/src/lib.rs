//! What decoders are tried with, in tests: bytes that nobody wrote, good ones damaged, and messages of every shape
//! that a service's descriptors allow.
//!
//! A fuzzer is a test with a name, which runs so many [`cases`], each from a seed of its own, so that one that fails
//! is repeated by itself:
//!
//! ```text
//! BIREME_FUZZ_SEED=7     other cases than those of seed 0
//! BIREME_FUZZ_TIMES=50   so many times as many
//! BIREME_FUZZ_CASE=1234  that one only
//! ```
//!
//! Tests only: no node is built with it.

mod cases;
mod damage;
mod messages;
mod raw;

pub use cases::{cases, within};
pub use damage::{damage, noise};
pub use messages::{Messages, Method};
pub use rand;
pub use raw::Raw;
