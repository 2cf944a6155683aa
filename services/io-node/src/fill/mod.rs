//! Filling: reads a chunk of a pack from the table and writes it to a drive as an extent.
//!
//! ```text
//! a miss, or Warm ─► filler (one task: decides which fills run, and records where each extent is)
//!     ─► scan: the table's rows (lake) ─► encode: the pack's layout ─► segments: space on a drive
//!     ─► write: through a core's ring ─► every core's directory ─► the segment's journal (`slab`)
//! ```
//!
//! The journal is written last, and nothing waits for it. Extents that are not in it when the process ends are filled
//! again.

mod chunk;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod defect_tests;
mod eviction;
mod filler;
mod handle;
mod pace;
mod placed;
mod promised;
mod ready;
mod restore;
mod scrub;
mod segments;
#[cfg(test)]
mod segments_tests;
mod shares;
pub mod simulate;
mod steps;
mod task;
mod threads;
mod transfer_bufs;
mod transfers;
mod unrecorded;
mod waiting;
mod warm_plan;

pub use chunk::FillKey;
pub use filler::{FillLimits, Filler};
pub use handle::FillHandle;
pub use pace::Pace;
pub use promised::check_promised;
pub use shares::{Holding, Shares};
pub use threads::{FillLane, FillThreads};
pub use transfer_bufs::TRANSFERS_BYTES_MAX;
pub use warm_plan::{ChunkSelection, WarmPlan};
