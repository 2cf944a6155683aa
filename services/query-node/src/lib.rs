//! The query tier: searches indexes, fetches rows from the I/O tier and ranks them.
//!
//! [`QueryNode::start`] serves `bireme.query.v1`. `search.rs`, `get.rs` and `take.rs` show the path of a
//! request: they call the stages (`stages/`, and `io_tier/` for all that concerns I/O nodes) in the order in which data
//! flows.
//!
//! Invariants:
//! - A request runs against one version of one table.
//! - A message is validated once, at the edge.
//! - A caller learns nothing about a table that no grant lets it see.
//! - Work whose deadline has passed is not begun.
//! - A row that is returned for a key has that key.
//! - Equal requests get equal answers: ties are broken by row address.
//! - An unreachable I/O node makes answers slower, not wrong.
//!
//! A query node is stateless: open tables and index partitions are only caches. Other crates read and search
//! tables (`lake`), encode rows for drives (`pack`), assign chunks to I/O nodes (`placement`), follow the list of
//! I/O nodes (`membership`), and manage streams and credits (`client`).

mod admission;
mod authorization;
mod call;
mod call_rules;
mod config;
mod counters;
mod describe;
mod error;
mod filtered;
mod find;
mod gather;
mod get;
mod held_rows;
mod http;
mod io_tier;
mod ipc;
mod key_index;
mod lake_options;
mod lookups;
mod memory;
mod metrics;
mod node;
mod pieces;
mod placement;
mod recall_curves;
mod request_context;
mod row_reader;
mod search;
mod selection;
mod service;
mod shard;
mod stages;
mod state;
mod status;
mod stranger;
mod stream_calls;
mod tables;
mod take;
mod trace;
mod tune;
mod waiting_gets;
mod warm;

pub use config::{AccessConfig, QueryConfig, TableConfig, WebOrigin};
pub use error::{QueryError, Result};
pub use membership::{IoNodeConfig, Source};
pub use metrics::METRICS;
pub use node::QueryNode;
