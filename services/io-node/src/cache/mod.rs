//! The cache: which chunks are on the drives. A fill reads a chunk of a pack from the table and writes it to a drive as
//! an extent.
//!
//! ```text
//! a miss, or Warm ─► filler (one task; its books decide which fills run, and know where each extent is)
//!     ─► scan: the table's rows (lake) ─► encode: the pack's layout ─► segments: space on a drive
//!     ─► write: through a core's ring ─► every core's directory ─► the segment's journal (`drive/journal.rs`)
//! ```
//!
//! The journal is written last, and no fill waits for it. An extent that is not in it when the process ends is filled
//! again on the next miss.
//!
//! `books/` decides: an event goes in, actions come out, and nothing else happens there. `io/` has the filler, which
//! owns the books, and carries out the actions.

mod books;
mod io;
mod warm_plan;

pub use books::{FillLimits, Holding, Pace, Shares, check_promised, files_share, simulate};
pub use io::{FillHandle, FillKey, FillLane, FillThreads, Filler, TRANSFERS_BYTES_MAX};
pub use warm_plan::{ChunkSelection, WarmPlan};
