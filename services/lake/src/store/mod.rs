//! The guard between Lance and object stores: it protects the stores from overload, and this process from stores that
//! hang and from hostile files.
//!
//! ```text
//! Lance ─► guarded ─► limiter: is the circuit breaker closed? is there a permit?
//!             └─ a read without an answer after the store's own p99 is sent a second time (hedge)
//!                  └─► the store's client (retries with jittered back-off; Lance slows down when throttled)
//!             ◄── the answer's body: its end, failure or stall is reported to the breaker
//! ```
//!
//! Requests, their bytes and their cost at list prices are counted. A hedge needs no permit of its own, and is only for
//! answers that don't begin: a body that has begun is not hedged. If a body fails, Lance reads the rest again
//! (`download_retry_count`), through the guard like any other read. An unpaged listing is admitted and counted once,
//! however many requests the store's client sends for it. Nodes make no writes or deletes, so neither goes through the
//! limiter; writes are counted, and deletes are not. Folders have no limiter: they have no tail latency to hedge and no
//! price. `docs/decisions/store-guards.md` says what each part adds to the stores' clients; `comparison.rs` measures
//! it.
//!
//! A failed read is retried by three layers, none of them in this crate. Together they send up to 48 HTTP requests:
//!
//! | layer | repeats | up to |
//! |---|---|---|
//! | the store's client (`object_store`) | answers 429, 5xx and failed connections, within `LakeOptions::retry_timeout` | 1 + `retries_max` requests |
//! | Lance's throttle | errors that the client gave up on after retries | 4 calls of the client |
//! | Lance's reader | failed reads; bodies that break off (`download_retry_count`) | 4 calls of the throttle |
//!
//! The breaker ends this: while it is open, reads fail at once.
//!
//! HEAD of a manifest is answered by a read of its beginning, which also answers the reads that Lance sends next; that
//! of a longer manifest takes one request more (`manifest_reads.rs`).
//!
//! A query node reads index and deletion files in a table's own folder from the I/O nodes instead, if it can
//! (`cached.rs`). These reads go through the checks of files, but neither through the limiter nor through the fence.
//!
//! Every other request is first checked against its table's fence (`fence.rs`), which names the paths that the table
//! may read. Stores are made per table, by providers that refuse other URIs (`providers.rs`), and folders are read
//! without following links (`folder.rs`). The metadata of files is checked before Lance sees it, so that no wrong
//! number in it becomes an allocation (`checked.rs`).

mod body;
mod breaker;
mod bucket_fence;
mod cached;
mod checked;
#[cfg(test)]
mod comparison;
mod fence;
mod folder;
mod guard_error;
mod guarded;
mod hedge;
mod limiter;
mod listing;
mod manifest_reads;
mod mark;
mod plain_read;
mod providers;
#[cfg(test)]
mod scripted;
mod streams;
mod usage;
mod wrapper;

pub(crate) use cached::LATE;
pub use cached::{CachedBytes, FileCache, FileDamaged};
pub(crate) use checked::{CheckedByReader, Damaged};
pub(crate) use fence::{Fence, ForbiddenPath};
pub(crate) use guard_error::{causes, guard_message};
pub(crate) use mark::{Mark, unmarked};
pub(crate) use providers::{FENCE_OPTION, registry};
pub(crate) use usage::{StoreUsage, count};
pub(crate) use wrapper::{Guard, TableGuard};
#[cfg(test)]
pub(crate) use {
    breaker::BreakerOpen,
    checked::damaged,
    guard_error::Stalled,
    limiter::generic,
    scripted::{Act, BYTES, Scripted},
};
