//! The drives: whether they hold slabs or foreign data, which of their contents survive a restart, and their health.
//!
//! ```text
//! slab   | superblock · zeros | segment 0 | segment 1 | ...
//!          HEAD_SECTORS         extents ──►   ◄── journal
//! ```

mod drives;
#[cfg(test)]
mod fuzz_tests;
mod health;
pub mod inspect;
pub mod journal;
mod lay_out;
mod recover;
mod slab;
mod superblock;

pub use drives::{Drives, drive_name};
pub use health::{DriveState, ExtentError, Health, JournalError, is_drive_fault};
pub use lay_out::{LaidOut, lay_out, trial_extent};
pub use recover::{FoundJournal, joined};
pub use slab::{Claim, claim_and_recover};
pub use superblock::Superblock;
