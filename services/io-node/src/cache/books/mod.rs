//! The records of the cache: space on the drives, what is on them, whose it is, and what to keep. Pure: no I/O, no
//! tasks, and every time is passed in.

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

pub use eviction::{Candidate, Eviction, Log, SEGMENTS_SAVED};
pub use pace::Pace;
pub use placed::Placed;
pub use promised::check_promised;
pub use scrub::Scrub;
pub use segments::{Allocation, BlockRoom, RestoredSegment, Room, Segments, Use};
pub use shares::{Holding, Shares, SpaceDecision, Unheld};
pub use unrecorded::{Unrecorded, record_sectors};
pub use waiting::WaitingFills;
