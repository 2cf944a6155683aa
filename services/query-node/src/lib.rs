//! The query tier: searches indexes, fetches rows from the I/O tier and ranks them.
//!
//! ```text
//! node         starts a shard for each core, and the task that follows tables, members and the policy
//!  │           config, memory, lake_options; shard: a core's runtime and server; counters, metrics
//!  ▼
//! service      the edge for gRPC; http/ for plain HTTP
//!  │           call: a request in progress, its caller's rights, its stages, and the calls of streams;
//!  │           request_context, call_rules, trace
//!  ▼
//! requests/    what each request does: search, get, take, lookups/, warm, and so on
//!  │
//!  ▼           what all of them use:
//! stages/      the steps of requests that need no I/O node: validate, look up, search, rank, assemble, reply
//! fetch/       fetches rows from the I/O nodes or the table, and has the nodes score and filter them
//! io_nodes/    the I/O nodes: which one owns a chunk, whether it is asked, files that are read through them
//! tables/      the tables, their open versions and columns; key_index/ and recall_curves/ of each
//! selection/   answers that are not just columns, best row first
//! state        what requests share: the queues of work that waits, the memory of rows, Gets and look-ups that wait for
//!              each other
//! ipc          record batches as Arrow's stream of bytes; error: errors, and their form on the wire
//! ```
//!
//! [`QueryNode::start`] serves `bireme.query.v1`. `requests/search.rs`, `get.rs` and `take.rs` show the path of a
//! request: they call the stages (`stages/`, and `fetch/` for rows) in the order in which data flows.
//!
//! Invariants:
//! - A request runs against one version of one table.
//! - A message is validated once, at the edge.
//! - A caller learns nothing about a table that no grant lets it see.
//! - Work whose deadline has passed is not begun.
//! - A row that is returned for a key has that key.
//! - Equal requests get equal answers: ties are broken by row address, unless the request asks for an order.
//! - An unreachable I/O node makes answers slower, not wrong.
//!
//! A query node is stateless: open tables and index partitions are only caches. Other crates read and search
//! tables (`lake`), encode rows for drives (`pack`), assign chunks to I/O nodes (`placement`), follow the list of
//! I/O nodes (`membership`), and manage streams and credits (`client`). `docs/GLOSSARY.md` defines the terms.

mod call;
mod call_rules;
mod config;
mod counters;
mod error;
mod fetch;
mod http;
mod io_nodes;
mod ipc;
mod key_index;
mod lake_options;
mod memory;
mod metrics;
mod node;
mod recall_curves;
mod request_context;
mod requests;
mod selection;
mod service;
mod shard;
mod stages;
mod state;
mod tables;
mod trace;

pub use config::{AccessConfig, QueryConfig, TableConfig, WebOrigin};
pub use error::{QueryError, Result};
pub use membership::{IoNodeConfig, Source};
pub use metrics::METRICS;
pub use node::QueryNode;
