//! Filling chunks ahead of their use: because a client asks (`serve/warm.rs`), or before the node says that it
//! serves.

mod at_start;
mod work;

pub use at_start::{StartWarms, run as run_at_start};
pub use work::{Which, Work};
