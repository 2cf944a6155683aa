//! Tables on an I/O node: opened versions, their packs, and projections.

mod bounded;
mod opened;
mod projection;
mod registry;
mod served;

pub use bounded::{BLOB_ROWS, BoundedRows, Excess};
pub use opened::{OpenFragment, OpenTable, Pack, label, table_tag};
pub use projection::{PackProjection, Projection};
pub use registry::Registry;
pub use served::ServedTables;
