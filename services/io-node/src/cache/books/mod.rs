//! The cache's books: the space on the drives, the extents in it, the tables' shares of it, and which extents to keep.
//! [`CacheBooks`] combines them, and the other modules are its parts. Pure: no I/O, no tasks, and every time is passed
//! in.

mod cache_books;
#[cfg(test)]
mod cache_books_tests;
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

pub use cache_books::{CacheBooks, FillLimits};
pub use events::{Action, Event, FillOutcome, Purpose, RequestOutcome};
pub use eviction::Log;
pub use pace::Pace;
pub use promised::check_promised;
pub use segments::RestoredSegment;
pub use shares::{Holding, Shares};
