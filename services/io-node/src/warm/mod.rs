//! Fills chunks before they are read: because a client asks (`serve/warm.rs`), or before the node reports that it is
//! ready.

mod at_start;
mod plan;

pub use at_start::{StartWarms, run as run_at_start};
pub use plan::{ChunkSelection, WarmPlan};
