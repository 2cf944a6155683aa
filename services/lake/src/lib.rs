//! Reads Lance tables in object storage or folders. This is the only crate that knows Lance, DataFusion and the clients
//! of object stores.
//!
//! A [`Lake`] opens tables; a [`Table`] is one version of a table, immutable. A table provides
//!
//! - metadata: [`Table::schema`], [`Table::fragments`], [`Table::deleted`], [`Table::indexes`], [`Table::newer`];
//! - rows by physical position, to fill the cache ([`Table::read_chunk`]), and single rows by address
//!   ([`Table::take`]);
//! - searches that return row addresses, with distances or scores, but no rows: [`Table::planned_search`] (or
//!   [`Table::open_route`], for a search that its caller carries on), [`Table::search_text`], [`Table::search_filter`],
//!   [`Table::lookup`].
//!
//! [`ingest`] makes tables and [`build_index`] makes indexes.
//!
//! Invariants: the public interface has Arrow types but none of Lance or DataFusion; every row is identified by its
//! address (stable row ids are translated); a `Table`'s answers never change, unless a filter reads the clock; every
//! error says which table, column, address or file is at fault ([`LakeError`]).
//!
//! ```text
//! lake, opener, options, folder      open tables, all with one session of Lance
//!     │
//! table/      one version: its fragments, deletions, indexes, history, and the part that a caller may see
//!     ├── read/        rows: by position for the cache, by address; blobs
//!     ├── search/      row addresses: by vectors, words, filters, keys
//!     ├── files/       files as wholes, for the drives and beside the table
//!     └── io_node_tables      the tables as an I/O node knows them (the traits of `tables`)
//! ingest/, index/      make tables and indexes
//! store/      what stands between Lance and an object store: limits, a fence, checks, the files on the drives
//! error, diagnose, schema, key, threads      what all of them use
//! ```
//!
//! `table`, `search` and `opener` know each other: a table keeps what its searches have opened.
//!
//! The crate deliberately does not cache rows or rerank vector searches by exact distances (the I/O nodes do both), and
//! it does not retry beyond what Lance and the store's client do.

mod canonical;
mod diagnose;
mod error;
mod files;
mod folder;
mod index;
mod ingest;
mod io_node_tables;
mod key;
mod lake;
mod opener;
mod options;
mod read;
mod schema;
mod search;
mod stop;
mod store;
mod table;
mod threads;

pub use error::fault::fault_of;
pub use error::words::quoted;
pub use error::{LakeError, Result};
pub use files::side_files::{SideFile, SideFileReader, SideFiles};
pub use files::version_files::{DroppedSegment, TableFile};
pub use folder::FolderListing;
pub use folder::namespaces::{NamespaceProperties, Namespaces};
pub use index::{
    DuplicateKeys, IndexProgress, IndexRequest, IndexSummary, VectorIndex, VectorIndexKind,
    build_index,
};
pub use ingest::{
    FileRows, IngestMode, IngestOptions, IngestProgress, IngestSummary, ingest, read_file,
    read_keys,
};
pub use lake::Lake;
pub use options::names::check_storage;
pub use options::secrets::SecretOptions;
pub use options::{AlsoReads, LakeOptions};
pub use read::blobs::Blob;
pub use schema::json::{TypeNames, schema_json};
pub use search::{
    Allowed, AllowedBy, BadText, COMPARED_PER_SCORED, CandidateSearch, Candidates, CheckedFilter,
    DIRECT_KEYS_MAX, DirectSearch, DistanceHit, Expression, FilterHits, Fuzziness, KnownRows,
    MeasurableIndex, OrderBy, PlanReason, Rung, ScoreHit, TextBoolean, TextBoost, TextCombined,
    TextExpr, TextHits, TextMatch, TextPhrase, TextQuery, VectorQuery, VectorRoute, Widened,
};
pub use stop::Stop;
pub use store::{CachedBytes, FileCache, FileDamaged};
pub use stores::StoreLimits;
pub use table::Table;
pub use table::history::{BranchInfo, TagInfo, VersionInfo};
pub use table::index_info::IndexInfo;
pub use table::metric::Metric;
pub use tables::{
    BadBranch, BranchName, DeletedRows, FilePath, FragmentInfo, ID_DELIMITER, TableFolder,
    TableUri, UriPrefix, is_namespace_id, is_table_name, shown,
};
pub use threads::cpu_pool::cpu_pool_drained;
pub use threads::deep_stack::STACK_BYTES;
pub use threads::on_runtime::on_runtime;
