//! Input for fuzz tests of decoders: random bytes, corrupted valid bytes, and messages of every shape that a
//! service's descriptors allow.
//!
//! A fuzz test is an ordinary test that runs a number of [`cases`]. Each case has a seed of its own, so a
//! failing case can be repeated alone:
//!
//! ```text
//! BIREME_FUZZ_SEED=7     run other cases: those of this seed instead of seed 0
//! BIREME_FUZZ_TIMES=50   run 50 times as many cases
//! BIREME_FUZZ_CASE=1234  run only this case
//! ```
//!
//! For tests only: no node depends on this crate.

mod cases;
mod damage;
mod messages;
mod raw;

pub use cases::{cases, within};
pub use damage::{damage, noise};
pub use messages::{Messages, Method};
pub use rand;
pub use raw::RawCodec;
