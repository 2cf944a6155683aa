//! Filling: a chunk of a pack from the table onto a drive.
//!
//! ```text
//! a miss, or Warm ─► filler (one owner: which fills run, which extents are where)
//!     ─► scan: the table's rows (lake) ─► encode: the pack's layout ─► segments: room on a drive
//!     ─► write: through a core's ring ─► every core's directory
//! ```

mod filler;
mod segments;
mod task;

pub use filler::{FillHandle, FillKey, FillOutcome, Filler};
pub use segments::SegmentNo;
