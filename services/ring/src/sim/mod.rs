//! A simulated disk for the tests of this crate and others: drives in memory with latency, reordering, faults and
//! crashes, all determined by one seed.
//!
//! Time is counted in ticks. While anything is in flight, a ring's driver advances the ring's time by one tick each
//! time it runs. By default no clock is involved, and a paused tokio clock does not advance. With [`SimConfig::tick`],
//! a tick takes time on tokio's clock, so that drives can be slow. All choices are derived from the seed, so a run on a
//! single-threaded runtime repeats exactly. Several rings may share a disk; each has its own sequence of random
//! numbers.
//!
//! ```text
//! in flight --tick >= due--> completed (visible to reads) --fsync--> durable
//!     | crash: 512-byte pieces      | crash: each sector kept
//!     v   written or not            v   or undone
//! ```
//!
//! [`SimConfig::channels`] limits how many operations a drive carries out at a time. Further operations wait in the
//! drive.
//!
//! An operation takes effect in a single instant. The disk does not model bandwidth, or any effect of a drive's cache
//! except that a crash may undo writes that were not synced.

mod disk;
mod drive;
mod random;

pub(crate) use disk::RingNo;
pub use disk::{PhysicalRead, SimConfig, SimDisk, SimFaults};
