//! Tables as an I/O node sees them: opened versions, their packs, and projections of them.

mod opened;
mod projection;
mod registry;

pub use opened::{OpenFragment, OpenTable, Pack};
pub use projection::{Part, Projection};
pub use registry::Registry;
