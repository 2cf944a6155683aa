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
//! The crate deliberately does not cache rows or rerank vector searches by exact distances (the I/O nodes do both), and
//! it does not retry beyond what Lance and the store's client do.

mod base_paths;
mod blobs;
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
mod file;
mod folder;
mod fragment;
mod hint;
mod history;
mod index;
mod ingest;
mod key;
mod key_record;
mod lake;
mod live_rows;
mod namespaces;
mod on_runtime;
mod opener;
mod option_names;
mod options;
mod part;
mod read;
mod rows;
mod schema;
mod schema_json;
mod search;
mod secret_options;
mod side_files;
mod stop;
mod store;
mod table;
mod table_files;
mod take;
mod text_type;
mod words;

pub use blobs::Blob;
pub use cpu_pool::cpu_pool_drained;
pub use deep_stack::STACK_BYTES;
pub use error::{LakeError, Result};
pub use fault::fault_of;
pub use folder::FolderListing;
pub use history::{BranchInfo, TagInfo, VersionInfo};
pub use index::{
    DuplicateKeys, IndexInfo, IndexProgress, IndexRequest, IndexSummary, Metric, VectorIndex,
    VectorIndexKind, build_index,
};
pub use ingest::{
    FileRows, IngestMode, IngestOptions, IngestProgress, IngestSummary, ingest, read_file,
    read_keys,
};
pub use lake::Lake;
pub use namespaces::{NamespaceProperties, Namespaces};
pub use on_runtime::on_runtime;
pub use option_names::check_storage;
pub use options::{AlsoReads, LakeOptions};
pub use schema_json::{TypeNames, schema_json};
pub use search::{
    Allowed, AllowedBy, BadText, COMPARED_PER_SCORED, CandidateSearch, Candidates, CheckedFilter,
    DIRECT_KEYS_MAX, DirectSearch, DistanceHit, Expression, FilterHits, Fuzziness, KnownRows,
    MeasurableIndex, OrderBy, PlanReason, Rung, ScoreHit, TextBoolean, TextBoost, TextCombined,
    TextExpr, TextHits, TextMatch, TextPhrase, TextQuery, VectorQuery, VectorRoute, Widened,
};
pub use secret_options::SecretOptions;
pub use side_files::{SideFile, SideFileReader, SideFiles};
pub use stop::Stop;
pub use store::{CachedBytes, FileCache, FileDamaged};
pub use stores::StoreLimits;
pub use table::Table;
pub use table_files::{DroppedSegment, TableFile};
pub use tables::{
    BadBranch, BranchName, DeletedRows, FilePath, FragmentInfo, ID_DELIMITER, TableFolder,
    TableUri, UriPrefix, is_namespace_id, is_table_name, shown,
};
pub use words::quoted;
