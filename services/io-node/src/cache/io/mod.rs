//! Carries out what the books (`books/`) decide: scans tables, writes, reads and checks extents, records them in the
//! journals, and keeps every core's directory current. The filler owns the books. Every step of its work ends in an
//! event for them.

mod chunk;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod defect_tests;
mod filler;
mod handle;
mod ready;
mod restore;
mod steps;
mod task;
mod threads;
mod transfer_bufs;
mod transfers;

pub use chunk::FillKey;
pub use filler::Filler;
pub use handle::FillHandle;
pub use threads::{FillLane, FillThreads};
pub use transfer_bufs::TRANSFERS_BYTES_MAX;
