//! One version of a table, opened.
//!
//! A `Table` never changes: its schema, fragments and deletions are those of its version. Data that needs I/O (deletion
//! vectors, the list of indexes) is loaded on first use and kept. Rows are read in `read/chunk.rs` and `read/take.rs`,
//! searches are in `search/`.

pub(crate) mod base_paths;
pub(crate) mod deleted;
pub(crate) mod fragment;
pub(crate) mod history;
pub(crate) mod index_info;
pub(crate) mod live_rows;
pub(crate) mod metric;
pub(crate) mod part;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arrow::datatypes::{DataType, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance::index::DatasetIndexExt;
use lance_core::cache::LanceCache;
use lance_core::datatypes::{Field, Schema as LanceSchema, format_field_path};
use object_store::path::Path;
use tables::{BranchName, DeletedRows, FragmentInfo, TableUri};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use self::base_paths::{folder_in_table, place_of, with_canonical_bases};
use self::fragment::{file_identity, hash_contents, hash_part};
use self::index_info::IndexInfo;
use self::part::Part;
use crate::diagnose::caught::caught;
use crate::diagnose::diagnose;
use crate::error::{LakeError, Result};
use crate::opener::{FoundBranch, Latest, Opener};
use crate::schema::{check_width, is_blob, served_schema};
use crate::search::{AllowLists, DirectIndexes};
use crate::store::FileCache;
use crate::threads::on_runtime::on_runtime;

/// The maximum number of fragments whose metadata is loaded concurrently when a table is opened. Sixteen are an eighth
/// of the requests that a node may have in flight to a store by default (`requests_max`), so most are left to other
/// tables.
const FRAGMENTS_OPENING_MAX: usize = 16;

/// The entry of the table's configuration that names its key column. Lance's own field metadata can't always do so: it
/// requires key columns to be declared non-null, which can't be changed afterwards.
pub(crate) const KEY_COLUMN_CONFIG: &str = "bireme.key_column";

/// One version of a table, or a part of it. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Table {
    inner: Arc<Inner>,
    /// The part that is shown; `None` for the whole table.
    part: Option<Arc<Part>>,
}

struct Inner {
    /// Distinguishes this opening of the version from every other opening of a table.
    open_id: u64,
    opener: Arc<Opener>,
    dataset: Arc<Dataset>,
    uri: TableUri,
    /// The branch that the version belongs to; `None` for the main one.
    branch: Option<FoundBranch>,
    schema: SchemaRef,
    positions: HashMap<String, usize>,
    /// The metadata of the fragments, by ascending id. `infos`, `fragments` and `deleted` are parallel lists.
    infos: Vec<FragmentInfo>,
    fragments: Vec<FileFragment>,
    deleted: Vec<OnceCell<Arc<DeletedRows>>>,
    indexes: OnceCell<Arc<Vec<IndexInfo>>>,
    /// The indexes that are searched directly, one item per column.
    direct: Vec<DirectIndexes>,
    /// The runtime of the tasks that Lance starts for this table: the one that opened it.
    runtime: Handle,
    /// Whether this is the first version opened in place of a table that was dropped, until the next look for a newer one.
    has_replaced: AtomicBool,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let branch = self.branch().map(|branch| format!(" branch {branch}")).unwrap_or_default();
        write!(f, "Table({}{branch} version {})", self.uri(), self.version())
    }
}

impl Table {
    /// Wraps a dataset that was opened at `uri`, or in the folder of `branch`. If it follows the version `before`, the
    /// indexes that are in use stay known.
    pub(crate) async fn new(
        opener: Arc<Opener>,
        uri: TableUri,
        branch: Option<FoundBranch>,
        dataset: Dataset,
        before: Option<&Self>,
    ) -> Result<Self> {
        let dataset = Arc::new(with_canonical_bases(&opener, &uri, dataset).await);
        let blame = |error| diagnose(uri.as_str(), error);
        let schema = served_schema(&dataset).map_err(|error| blame(error.into()))?;
        check_width(&schema)?;
        let positions = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| (field.name().clone(), at))
            .collect();
        let mut fragments = dataset.get_fragments();
        fragments.sort_by_key(FileFragment::id);
        let infos = futures::stream::iter(&fragments)
            .map(fragment::load)
            .buffered(FRAGMENTS_OPENING_MAX)
            .try_collect()
            .await
            .map_err(blame)?;
        opener.count_version(&uri);
        let deleted = fragments.iter().map(|_| OnceCell::new()).collect();
        let indexes = OnceCell::new();
        let of_column = |name: &String| {
            let before = &before?.inner;
            before.positions.get(name).map(|at| before.direct[*at].of_next_version())
        };
        let columns = schema.fields().iter();
        let direct = columns.map(|field| of_column(field.name()).unwrap_or_default()).collect();
        Ok(Self {
            inner: Arc::new(Inner {
                open_id: opener.next_id(),
                runtime: Handle::current(),
                has_replaced: AtomicBool::new(false),
                opener,
                dataset,
                uri,
                branch,
                schema,
                positions,
                infos,
                fragments,
                deleted,
                indexes,
                direct,
            }),
            part: None,
        })
    }

    /// Returns this table, showing `part` of it.
    pub(crate) fn showing(&self, part: Arc<Part>) -> Self {
        Self { inner: Arc::clone(&self.inner), part: Some(part) }
    }

    /// The part that is shown; `None` for the whole table.
    pub(crate) fn shown_part(&self) -> Option<&Part> {
        self.part.as_deref()
    }

    /// The table's canonical URI, as text.
    pub fn uri(&self) -> &str {
        self.inner.uri.as_str()
    }

    /// The table's canonical URI.
    pub fn canonical_uri(&self) -> &TableUri {
        &self.inner.uri
    }

    /// The branch that the version belongs to; `None` for the main one.
    pub fn branch(&self) -> Option<&BranchName> {
        self.inner.branch.as_ref().map(|branch| &branch.name)
    }

    /// Returns whether `other`, a version of the branch with the same name, belongs to another branch: the one that had
    /// the name was deleted, and the other one was created.
    pub fn is_of_other_branch(&self, other: &Self) -> bool {
        creation_of(&self.inner.branch) != creation_of(&other.inner.branch)
    }

    /// The version's number, which is unique only within its branch.
    pub fn version(&self) -> u64 {
        self.inner.dataset.version_id()
    }

    /// The Arrow schema of the rows: blob columns are `LargeBinary` with their contents and the field metadata
    /// `lance-encoding:blob`, all other columns are as Lance returns them. Only the columns that are shown, if this is
    /// a part of a table.
    pub fn schema(&self) -> &SchemaRef {
        self.part.as_ref().map_or(&self.inner.schema, |part| &part.schema)
    }

    /// Like [`schema`](Self::schema), of all columns, shown or not. Positions of columns count these.
    pub(crate) fn stored_schema(&self) -> &SchemaRef {
        &self.inner.schema
    }

    /// The shown columns as the table stores them. Names that callers give are resolved here.
    pub(crate) fn shown_fields(&self) -> &LanceSchema {
        self.part.as_ref().map_or(self.inner.dataset.schema(), |part| &part.fields)
    }

    /// Returns whether `column` (top-level) holds blobs. Errors: `ColumnNotFound`.
    pub fn is_blob(&self, column: &str) -> Result<bool> {
        Ok(is_blob(&self.inner.schema.fields()[self.column_position(column)?]))
    }

    /// The type of `column` (top-level). Errors: `ColumnNotFound`.
    pub fn column_type(&self, column: &str) -> Result<&DataType> {
        Ok(self.inner.schema.field(self.column_position(column)?).data_type())
    }

    /// The number of live rows, without deleted ones; shown or not, if this is a part of the table.
    pub fn row_count(&self) -> u64 {
        self.inner.infos.iter().map(FragmentInfo::live_rows).sum()
    }

    /// Returns whether rows have stable ids, which differ from their addresses.
    pub fn has_stable_row_ids(&self) -> bool {
        self.inner.dataset.manifest().uses_stable_row_ids()
    }

    /// The bytes of the version's data files, as far as its manifest records them.
    pub fn data_bytes(&self) -> u64 {
        let files = self.inner.fragments.iter().flat_map(|fragment| &fragment.metadata().files);
        files.filter_map(|file| file.file_size_bytes.get()).map(u64::from).sum()
    }

    /// The bytes of the version's data files; `None` if its manifest does not record the size of each.
    pub fn all_data_bytes(&self) -> Option<u64> {
        let files = self.inner.fragments.iter().flat_map(|fragment| &fragment.metadata().files);
        files.map(|file| file.file_size_bytes.get().map(u64::from)).sum()
    }

    /// The version's fragments, by ascending id.
    pub fn fragments(&self) -> &[FragmentInfo] {
        &self.inner.infos
    }

    /// One fragment; `None` if the version doesn't have it.
    pub fn fragment(&self, id: u32) -> Option<&FragmentInfo> {
        self.position(id).ok().map(|at| &self.inner.infos[at])
    }

    /// The number of live rows in those of the fragments `ids` that the version has.
    pub fn live_rows_of(&self, ids: impl IntoIterator<Item = u32>) -> u64 {
        ids.into_iter().filter_map(|id| self.fragment(id)).map(FragmentInfo::live_rows).sum()
    }

    /// Returns the identity of the data files of `column` (top-level, with all that is nested in it) in `fragment`:
    /// `id:type:path` for each of the column's fields, then `overlay:version:path` for each overlay that replaces some
    /// of the column's values, joined by commas. A field without data in the fragment reads as nulls; its path is
    /// `absent from` and the path of the fragment's first data file (or its number of rows, if it has no data file).
    /// File names are unique and files never change, so equal identities mean equal bytes, across versions and branches
    /// too.
    ///
    /// Errors: `FragmentNotFound`, `ColumnNotFound`.
    pub fn file_identity(&self, fragment: u32, column: &str) -> Result<String> {
        let at = self.position(fragment)?;
        let field = &self.inner.dataset.schema().fields[self.column_position(column)?];
        Ok(self.identity_at(at, field))
    }

    /// The identity of the data files of `field` in the fragment at `position`.
    fn identity_at(&self, position: usize, field: &Field) -> String {
        let Inner { uri, dataset, fragments, .. } = &*self.inner;
        file_identity(fragments[position].metadata(), field, |file| {
            place_of(uri, dataset, file.base_id, &file.path)
        })
    }

    /// Returns whether the version has `fragment` with a column whose data files have this identity, whatever the
    /// column's name.
    pub fn has_files(&self, fragment: u32, identity: &str) -> bool {
        let id = identity.split(':').next().and_then(|id| id.parse::<i32>().ok());
        let mut fields = self.inner.dataset.schema().fields.iter();
        let field = fields.find(|field| Some(field.id) == id);
        let (Ok(at), Some(field)) = (self.position(fragment), field) else { return false };
        self.identity_at(at, field) == identity
    }

    /// Identifies this version's contents: a hash of its columns, and of each fragment's files and deletions. It
    /// differs between two tables that successively had the same URI and version, because names of data files are
    /// unique.
    pub fn identity(&self) -> String {
        let mut hash = blake3::Hasher::new();
        for field in &self.inner.dataset.schema().fields {
            let column = format!("{}:{}:{}", field.id, field.name, field.logical_type);
            hash_part(&mut hash, column.as_bytes());
        }
        let fragments = self.inner.fragments.iter();
        fragments.for_each(|fragment| hash_contents(&mut hash, fragment.metadata()));
        hash.finalize().to_hex()[..32].to_owned()
    }

    /// Returns the number of the branch's latest version, without reading a manifest; in an object store, with one
    /// listing. Errors: `TableNotFound`, and those of the store.
    pub async fn latest_version(&self) -> Result<u64> {
        let latest = self.inner.dataset.latest_version_id();
        self.inner.opener.with_open_timeout(self.uri(), latest).await
    }

    /// Returns the numbers of all versions that the branch has now, ascending, with one listing. Errors: those of the
    /// store.
    pub async fn versions(&self) -> Result<Vec<u64>> {
        let versions = self.caught(self.inner.dataset.version_refs()).await?;
        Ok(versions.into_iter().map(|version| version.version).collect())
    }

    /// Opens the branch's latest version, or returns `None` if this is the latest. Also notices a table that was
    /// dropped and created anew at the same URI, if the e-tag of the manifest differs, and a branch that was deleted
    /// and created anew. If the latest version has a higher number, one request looks at this version's manifest: it
    /// differs if the table was created anew. Errors: those of [`Lake::open`](crate::Lake::open), and `BranchNotFound`.
    pub async fn newer(&self) -> Result<Option<Self>> {
        let Inner { dataset, opener, uri, branch, .. } = &*self.inner;
        if self.inner.has_replaced.swap(false, Relaxed) {
            // Searches of the earlier table may have cached metadata while this one was opened.
            opener.forget_metadata().await;
        }
        let found_branch = match branch {
            Some(branch) => Some(opener.find_branch(uri, &branch.name, dataset).await?),
            None => None,
        };
        let is_same_branch = creation_of(&found_branch) == creation_of(branch);
        let (_, found) = opener.with_open_timeout(self.uri(), dataset.latest_manifest()).await?;
        let mine = dataset.manifest_location();
        let is_recreated = Latest::of(mine).is_replaced_by(&Latest::of(&found));
        if is_same_branch && found.version == mine.version && !is_recreated {
            return Ok(None);
        }
        let name = branch.as_ref().map(|branch| &branch.name);
        let (dataset, _) = opener.dataset(uri, name).await?;
        // After the version was opened, so that a table that was created anew before that is noticed.
        let is_overwritten =
            found.version > mine.version && opener.is_overwritten(uri, &dataset, mine).await?;
        if is_overwritten {
            opener.forget_metadata().await;
        }
        // The branch as it was before the version was opened: if it has been created anew since, the next call notices.
        let opened = Self::new(Arc::clone(opener), uri.clone(), found_branch, dataset, Some(self));
        let opened = caught(self.uri(), opened).await?;
        opened.inner.has_replaced.store(is_recreated || is_overwritten, Relaxed);
        Ok(Some(opened))
    }

    /// Returns whether [`newer`](Self::newer) opened this version in place of one of a table that was dropped. Ends
    /// with the next call of `newer` on this version.
    pub fn replaces_dropped(&self) -> bool {
        self.inner.has_replaced.load(Relaxed)
    }

    /// The column whose values identify rows: recorded by `bireme ingest --key` or `bireme index --key`, or declared by
    /// another tool as Lance's unenforced primary key (of one top-level column). `None` if there is neither.
    pub fn key_column(&self) -> Option<&str> {
        let dataset = &self.inner.dataset;
        let recorded = dataset.config().get(KEY_COLUMN_CONFIG).map(String::as_str);
        if let Some(column) = recorded.filter(|column| self.column_position(column).is_ok()) {
            return Some(column);
        }
        match dataset.schema().unenforced_primary_key().as_slice() {
            [field] => {
                let name = field.name.as_str();
                self.column_position(name).is_ok().then_some(name)
            }
            _ => None,
        }
    }

    /// Checks that the table has `column`, whose values are to identify rows.
    ///
    /// Errors: `ColumnNotFound`; `CompositeKey` for several columns with commas between them.
    pub fn check_key_column(&self, column: &str) -> Result<()> {
        let parts: Vec<&str> = column.split(',').map(str::trim).collect();
        let are_columns = parts.iter().all(|part| self.column_position(part).is_ok());
        match self.column_position(column) {
            Err(_) if parts.len() > 1 && are_columns => Err(LakeError::CompositeKey {
                uri: self.uri().to_owned(),
                columns: parts.into_iter().map(str::to_owned).collect(),
            }),
            found => found.map(drop),
        }
    }

    /// Returns the error for a table without a key column: `KeyColumnUnknown`, or `CompositeKey` if another tool
    /// declared several columns as Lance's unenforced primary key.
    pub fn no_key_column(&self) -> LakeError {
        let uri = self.uri().to_owned();
        match self.inner.dataset.schema().unenforced_primary_key().as_slice() {
            several @ [_, _, ..]
                if several.iter().all(|field| self.column_position(&field.name).is_ok()) =>
            {
                let columns = several.iter().map(|field| field.name.clone()).collect();
                LakeError::CompositeKey { uri, columns }
            }
            _ => LakeError::KeyColumnUnknown { uri },
        }
    }

    /// Checks whether `column` can be recorded as the key column. It replaces another key column only if `replace` is
    /// set, because clients that still use the old keys find no rows after that.
    ///
    /// Errors: `ColumnNotFound`, `CompositeKey`, `AnotherKey`.
    pub fn check_key(&self, column: &str, replace: bool) -> Result<()> {
        self.check_key_column(column)?;
        match self.key_column() {
            Some(present) if present != column && !replace => Err(LakeError::AnotherKey {
                uri: self.uri().to_owned(),
                present: present.to_owned(),
                column: column.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the table's indexes. The first call reads them from the store.
    pub async fn indexes(&self) -> Result<Arc<Vec<IndexInfo>>> {
        // Boxed, since the state of this future is large and would be part of every search's state.
        let load = || {
            let loading = IndexInfo::load_all(self.dataset(), self.fragments());
            self.on_own_runtime(self.caught(loading).boxed())
        };
        self.inner.indexes.get_or_try_init(load).await.cloned()
    }

    /// Returns the table's indexes if they have been read from the store.
    pub fn loaded_indexes(&self) -> Option<&[IndexInfo]> {
        self.inner.indexes.get().map(|indexes| indexes.as_slice())
    }

    /// Opens the table's indexes and loads as much of them as the cache holds, so that the first searches don't wait
    /// for the store. Errors: those of the store.
    pub async fn prewarm(&self) -> Result<()> {
        for index in self.indexes().await?.iter() {
            self.prewarm_index(&index.name).await?;
        }
        Ok(())
    }

    /// Loads as much of an index as the cache holds. Errors: those of the store, and `Internal` if there is no such
    /// index.
    pub async fn prewarm_index(&self, name: &str) -> Result<()> {
        let load = async {
            self.note_file_sizes().await?;
            self.dataset().prewarm_index(name).await
        };
        self.caught(load).await
    }

    /// Awaits `load`, which loads or uses data that is kept with the table. Tasks that Lance starts for it run on the
    /// table's runtime.
    pub(crate) fn on_own_runtime<'a, T: 'a>(&'a self, load: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        on_runtime(&self.inner.runtime, load)
    }

    /// A number that no other open table, and no other part of this one, has.
    pub(crate) fn open_id(&self) -> u64 {
        self.part.as_ref().map_or(self.inner.open_id, |part| part.id)
    }

    /// The number that all parts of this open table have in common, for what does not depend on the part.
    pub(crate) fn whole_id(&self) -> u64 {
        self.inner.open_id
    }

    /// Returns a number for a part of this table, which no other open table or part has.
    pub(crate) fn next_id(&self) -> u64 {
        self.inner.opener.next_id()
    }

    /// The cache from which index and deletion files are read; `None` if there is none, and for tables in folders,
    /// whose files are always read from there.
    pub(crate) fn file_cache(&self) -> Option<&dyn FileCache> {
        self.inner.opener.file_cache().filter(|_| self.canonical_uri().folder().is_none())
    }

    /// The cache of indexes, for data of this crate, over all tables.
    pub(crate) fn index_cache(&self) -> &LanceCache {
        self.inner.opener.index_cache()
    }

    /// The size of Lance's cache of indexes and their partitions, over all tables, in bytes.
    pub(crate) fn index_cache_bytes(&self) -> u64 {
        self.inner.opener.index_cache_bytes()
    }

    /// The allow-lists of all tables.
    pub(crate) fn allow_lists(&self) -> &AllowLists {
        self.inner.opener.allow_lists()
    }

    /// The indexes of the column at `position` that are searched without Lance's scanner.
    pub(crate) fn direct_of(&self, position: usize) -> &DirectIndexes {
        &self.inner.direct[position]
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.inner.dataset
    }

    /// The position of a shown top-level column among all columns. Errors: `ColumnNotFound`.
    pub(crate) fn column_position(&self, column: &str) -> Result<usize> {
        let is_shown = match &self.part {
            None => true,
            Some(part) => part.schema.fields().find(column).is_some(),
        };
        let position = self.inner.positions.get(column).copied().filter(|_| is_shown);
        position.ok_or_else(|| LakeError::column_not_found(column, self.schema()))
    }

    /// Returns whether all columns of `index` are shown.
    pub fn shows_index(&self, index: &IndexInfo) -> bool {
        let is_shown = |column: &String| {
            self.column_position(column).is_ok() || self.shown_fields().resolve(column).is_some()
        };
        self.part.is_none() || index.columns.iter().all(is_shown)
    }

    /// Returns the path of an index's column as Lance writes it: with backticks around names that are no identifiers.
    pub fn column_path(&self, column: &str) -> String {
        match self.column_position(column) {
            Ok(_) => format_field_path(&[column]),
            Err(_) => column.to_owned(),
        }
    }

    /// Returns the folder of the files with `base_id` as a path in the table's folder: empty, or ending with a slash.
    /// `None` if the files are elsewhere.
    pub(crate) fn folder_in_table(&self, base_id: Option<u32>) -> Option<String> {
        folder_in_table(&self.inner.uri, &self.inner.dataset, base_id)
    }

    /// Returns the path of the table's folder, which all branches share, in its store.
    pub(crate) fn table_path(&self) -> lance::Result<Path> {
        let location = self.inner.dataset.branch_location();
        match self.branch() {
            Some(_) => Ok(location.find_main()?.path),
            None => Ok(location.path),
        }
    }

    /// One fragment, as Lance's type. Errors: `FragmentNotFound`.
    pub(crate) fn file_fragment(&self, id: u32) -> Result<&FileFragment> {
        self.position(id).map(|at| &self.inner.fragments[at])
    }

    /// Returns the fragments `ids`, as Lance's type. Ids that the version does not have are skipped.
    pub(crate) fn file_fragments(
        &self,
        ids: impl Iterator<Item = u32>,
    ) -> impl Iterator<Item = &FileFragment> {
        ids.filter_map(|id| self.file_fragment(id).ok())
    }

    /// Awaits Lance's `work` on this table. Errors: Lance's, converted, and `Corrupt` if it panics.
    pub(crate) async fn caught<T>(
        &self,
        work: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        caught(self.uri(), work.map_err(|error| self.blame(error))).await
    }

    pub(crate) fn blame(&self, error: lance::Error) -> LakeError {
        diagnose(self.uri(), error)
    }

    fn position(&self, fragment: u32) -> Result<usize> {
        self.inner.infos.binary_search_by_key(&fragment, |info| info.id).map_err(|_| {
            LakeError::FragmentNotFound {
                uri: self.uri().to_owned(),
                version: self.version(),
                fragment,
            }
        })
    }
}

/// Returns the creation of a branch; `None` for the main one.
fn creation_of(branch: &Option<FoundBranch>) -> Option<&str> {
    branch.as_ref().map(|branch| branch.creation.as_str())
}
