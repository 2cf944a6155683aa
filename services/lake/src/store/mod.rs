//! What stands between Lance and an object store, so that neither can hurt the other.
//!
//! ```text
//! Lance ─► guarded ─► breaker: is the store let be? ─► a place among the requests under way
//!             └─ a read without an answer after the store's own p99 is asked a second time (hedge)
//!                  └─► the store's client (retries with jittered back-off; Lance slows down when throttled)
//!             ◄── the answer's body: the breaker hears of its end, its failure, or that it stalls
//! ```
//!
//! Requests are counted with their bytes, and what they cost at list prices. A hedge takes no place of its own, and
//! is for answers that don't begin: a body that has begun is not asked for twice. Lance reads one that fails once
//! more (`download_retry_count`), through here like any other. Unpaged listings and deletions, which only writers
//! make, go through as they are. Folders have no such guard: they have neither tails to hedge nor a price.
//!
//! Before all of that each request is held against what its table may read (`fence.rs`): stores are made for a table,
//! by providers that refuse what is outside of it (`providers.rs`), and folders are read without following links
//! (`folder.rs`). The bytes that come back are checked before Lance sees them: what a damaged file announces never becomes
//! an allocation (`checked.rs`).

mod body;
mod breaker;
mod checked;
mod fence;
mod folder;
mod gate;
mod guarded;
mod hedge;
mod listing;
mod providers;
#[cfg(test)]
mod scripted;
mod streams;
mod trouble;
mod usage;
mod wrapper;

pub(crate) use checked::Damaged;
pub(crate) use fence::{Fence, Outside};
pub(crate) use providers::{FENCE_OPTION, registry};
pub(crate) use trouble::trouble;
pub(crate) use usage::StoreUsage;
pub(crate) use wrapper::{Guard, TableGuard};
#[cfg(test)]
pub(crate) use {gate::generic, trouble::Stalled};
