//! What stands between Lance and an object store, so that neither can hurt the other.
//!
//! ```text
//! Lance ─► guarded ─► breaker: is the store let be? ─► a place among the requests under way
//!             └─ a read without an answer after the store's own p99 is asked a second time (hedge)
//!                  └─► the store's client (retries with jittered back-off; Lance slows down when throttled)
//! ```
//!
//! Requests are counted with their bytes, and what they cost at list prices. A hedge takes no place
//! of its own. Unpaged listings and deletions, which only writers make, go through as they are. Folders are not
//! guarded: Lance reads them past its stores, and they have neither tails to hedge nor a price.

mod breaker;
mod gate;
mod guarded;
mod hedge;
mod listing;
mod streams;
mod usage;
mod wrapper;

pub(crate) use breaker::LetBe;
pub(crate) use usage::StoreUsage;
pub(crate) use wrapper::Guard;
