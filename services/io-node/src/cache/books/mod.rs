//! The cache's books: the space on the drives, the extents in it, the tables' shares, and the eviction policy.
//! [`CacheBooks`] combines them. Pure: no I/O, no tasks, and times are passed in; only log lines are written.
//! `simulate` runs the books for `bireme bench eviction`.

mod arrivals;
mod cache_books;
#[cfg(test)]
mod cache_books_tests;
mod checked;
mod events;
mod eviction;
mod pace;
mod placed;
mod promised;
mod scrub;
mod segments;
#[cfg(test)]
mod segments_tests;
mod shares;
pub mod simulate;
mod unrecorded;
mod waiting;

pub use cache_books::{CacheBooks, FillLimits, SCAN_PART};
pub use events::{
    Action, EXTENT_BYTES_END, Event, FillOutcome, Purpose, RequestOutcome, ScanError,
};
pub use eviction::Log;
pub use pace::Pace;
pub use promised::{check_promised, files_share};
pub use segments::{EMPTY_BLOCK_SECTORS, RestoredSegment};
pub use shares::{Holding, Shares};
