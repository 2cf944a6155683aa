//! The query tier: searches indexes, fetches the rows that they name from the I/O tier, ranks them.
//!
//! [`QueryNode::start`] serves `bireme.query.v1`. A request's way can be read off `search.rs`,
//! `get.rs` and `take.rs`, which call the stages (`stages/`) in the order in which data flows.
//!
//! Invariants: a request runs against one version of one table; messages are checked once, at the
//! edge; work whose deadline has passed is not begun; a row that comes back by key has that key;
//! equal questions get equal answers (ties are broken by row address); an I/O node that can't be
//! reached makes answers slower, not wrong.
//!
//! Stateless: everything kept here (open tables, index partitions) can be had again. Not here: how
//! tables are read and searched (`lake`), how rows lie on drives (`pack`), who owns what
//! (`placement`), who is there (`membership`), streams and credits (`client`).

mod admission;
mod call;
mod config;
mod counted;
mod describe;
mod ejection;
mod error;
mod get;
mod io_nodes;
mod io_tier;
mod ipc;
mod memory;
mod message_limits;
mod metrics;
mod node;
mod owners;
mod request_context;
mod search;
mod service;
mod shard;
mod stages;
mod state;
mod status;
mod tables;
mod take;
mod trace;
mod warm;

pub use config::{Limits, QueryConfig, TableConfig};
pub use error::{QueryError, Result};
pub use membership::{IoNodeConfig, Source};
pub use metrics::METRICS;
pub use node::QueryNode;
