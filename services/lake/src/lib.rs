//! Tables in object storage or folders, by way of Lance: the only crate that knows Lance,
//! DataFusion and object stores.
//!
//! A [`Lake`] opens tables; a [`Table`] is one version of one, immutable. Through it go
//!
//! - what there is: [`Table::schema`], [`Table::fragments`], [`Table::deleted`],
//!   [`Table::indexes`], [`Table::newer`];
//! - rows for filling, [`Table::read_chunk`], by physical position, and single rows,
//!   [`Table::take`], by address;
//! - searches that answer with row addresses only: [`Table::search_vector`],
//!   [`Table::search_text`], [`Table::search_filter`], [`Table::lookup`].
//!
//! [`ingest`] and [`build_index`] make tables and indexes.
//!
//! Invariants: nothing of Lance or DataFusion is in the public interface, only Arrow; every row is
//! named by its address (stable row ids are translated); a `Table` answers the same forever;
//! every error says which table, column, address or file is at fault ([`LakeError`]).
//!
//! Deliberately not here: caching of rows (that is the I/O node's), refinement of vector searches
//! by exact distances (likewise), retries beyond those of Lance and of the store's client.

mod canonical;
mod caught;
mod chunk;
mod columns;
mod cpu_pool;
mod deep_stack;
mod deleted;
mod diagnose;
mod error;
mod fault;
mod fragment;
mod hint;
mod index;
mod ingest;
mod lake;
mod on_runtime;
mod option_names;
mod options;
mod read;
mod rows;
mod schema;
mod search;
mod stop;
mod store;
mod table;
mod take;
mod words;

pub use cpu_pool::cpu_pool_drained;
pub use deep_stack::STACK_BYTES;
pub use error::{LakeError, Result};
pub use fault::fault_of;
pub use index::{
    DuplicateKeys, IndexInfo, IndexProgress, IndexRequest, IndexSummary, Metric, VectorIndex,
    VectorIndexKind, build_index,
};
pub use ingest::{IngestMode, IngestOptions, IngestProgress, IngestSummary, ingest};
pub use lake::Lake;
pub use on_runtime::on_runtime;
pub use option_names::check_storage;
pub use options::{AlsoReads, LakeOptions};
pub use search::{DistanceHit, ScoreHit, TextQuery, VectorQuery};
pub use stop::Stop;
pub use table::Table;
pub use tables::{
    DeletedRows, FragmentInfo, STORE_METRICS, StoreLimits, StorePrices, TableUri, UriPrefix,
    cache_samples, shown, store_samples,
};
pub use words::quoted;
