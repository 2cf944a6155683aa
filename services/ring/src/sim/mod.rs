//! A simulated disk, for the tests of this and of other crates: drives in memory, with latency,
//! reordering, faults and crashes, all of it from one seed.
//!
//! Time is counted in ticks: the driver of a ring makes one with each turn while something is in
//! flight, so no clock is read, and a paused tokio clock doesn't advance meanwhile; or one each so often
//! by that clock ([`SimConfig::tick`]), so that drives can be late. Every choice comes from the seed, so on a single-threaded runtime a run repeats exactly. A disk may be shared
//! by several rings; each has random numbers of its own.
//!
//! ```text
//! in flight --tick >= due--> completed (visible to reads) --sync--> durable
//!     | crash: 512-byte pieces      | crash: each sector kept
//!     v   written or not            v   or gone back
//! ```
//!
//! It doesn't model time within an operation, bandwidth, or the order of drives' caches beyond that.

mod disk;
mod drive;
mod random;

pub(crate) use disk::RingNo;
pub use disk::{PhysicalRead, SimConfig, SimDisk, SimFaults};
