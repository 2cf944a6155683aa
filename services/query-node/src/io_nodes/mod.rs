//! The I/O nodes, as a query node sees them: which one owns a chunk, whether it should be asked, and the files that are
//! read through them. `fetch/` asks them for rows.
//!
//! ```text
//! nodes.rs   the list of I/O nodes and their health (ejection.rs), shared by all cores
//!    └─► routes.rs   one core's routes: the owner of a chunk, and a client of each node (node.rs)
//!
//! faults.rs  what a failed request says about its node, and whether the table may answer it
//! files.rs   index and deletion files, which Lance reads through the nodes
//! file_blocks.rs  the owners of the blocks of such a file
//! owners.rs  the owners of a table's chunks, for Warm and Placement
//! ```
//!
//! A node is ejected after several failures in a row (`ejection.rs`). A deadline that passed without an answer counts as
//! a failure (`faults.rs`). An answer before the deadline does not, however slow it is.
//!
//! If a node is slow to send a part of an index or deletion file, the store is asked too, 0.4 s after the node
//! (`lake/src/store/cached.rs`), and the first answer counts.
//!
//! Invariant: the choice of a node changes who answers, never the answer.

mod ejection;
mod faults;
mod file_blocks;
mod files;
mod node;
mod nodes;
mod owners;
mod routes;

pub use faults::table_may_answer;
pub use file_blocks::{blocks_of, fill_requests};
pub use files::TierFiles;
pub use node::Node;
pub use nodes::IoNodes;
pub use owners::{add_chunk, all_runs, each_chunk, ranges_by_owner};
pub use routes::{IoTier, Routes};
