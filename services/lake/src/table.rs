//! One version of a table, opened.
//!
//! A `Table` never changes: its schema, fragments and deletions are those of its version. What
//! needs I/O (deletion vectors, the list of indexes) is loaded once, on first use, and kept.
//! Reading rows is in `chunk.rs` and `take.rs`, searching in `search/`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use tables::{DeletedRows, FragmentInfo, TableUri};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::caught::caught;
use crate::columns;
use crate::deleted::deleted_rows;
use crate::diagnose::diagnose;
use crate::error::{LakeError, Result};
use crate::fragment::{self, file_identity};
use crate::index::info::IndexInfo;
use crate::lake::Lake;
use crate::on_runtime::on_runtime;
use crate::schema::{check_width, is_blob, served_schema};
use crate::search::Direct;

/// Fragments whose counts are looked up at the same time when a table is opened.
const FRAGMENTS_OPENING_MAX: usize = 16;

/// The table's configuration entry that names its key column where Lance's own field metadata
/// can't (Lance wants key columns declared non-null, and that can't be changed afterwards).
pub(crate) const KEY_COLUMN_CONFIG: &str = "bireme.key_column";

/// One version of a table. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Table {
    inner: Arc<Inner>,
}

struct Inner {
    lake: Lake,
    dataset: Arc<Dataset>,
    uri: TableUri,
    schema: SchemaRef,
    positions: HashMap<String, usize>,
    /// Ascending ids; the three lists are parallel.
    infos: Vec<FragmentInfo>,
    fragments: Vec<FileFragment>,
    deleted: Vec<OnceCell<Arc<DeletedRows>>>,
    indexes: OnceCell<Arc<Vec<IndexInfo>>>,
    /// By column.
    direct: Vec<Direct>,
    /// Where what Lance starts for this table lives: the runtime that opened it.
    runtime: Handle,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} version {})", self.uri(), self.version())
    }
}

impl Table {
    /// `uri`: as the dataset was opened.
    pub(crate) async fn new(lake: Lake, uri: TableUri, dataset: Dataset) -> Result<Self> {
        let dataset = Arc::new(dataset);
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
        let deleted = fragments.iter().map(|_| OnceCell::new()).collect();
        let indexes = OnceCell::new();
        let direct = schema.fields().iter().map(|_| Direct::default()).collect();
        Ok(Self {
            inner: Arc::new(Inner {
                runtime: Handle::current(),
                lake,
                dataset,
                uri,
                schema,
                positions,
                infos,
                fragments,
                deleted,
                indexes,
                direct,
            }),
        })
    }

    /// Where the table is, in the canonical form.
    pub fn uri(&self) -> &str {
        self.inner.uri.as_str()
    }

    /// The same.
    pub fn canonical_uri(&self) -> &TableUri {
        &self.inner.uri
    }

    /// The version's number.
    pub fn version(&self) -> u64 {
        self.inner.dataset.version_id()
    }

    /// The Arrow schema that rows come in: blob columns as `LargeBinary` with their contents and
    /// the field metadata `lance-encoding:blob`, all other columns as Lance returns them.
    pub fn schema(&self) -> &SchemaRef {
        &self.inner.schema
    }

    /// Whether `column` (top-level) holds blobs. Errors: `ColumnNotFound`.
    pub fn is_blob(&self, column: &str) -> Result<bool> {
        Ok(is_blob(&self.inner.schema.fields()[self.column_position(column)?]))
    }

    /// Live rows: deleted ones are not counted.
    pub fn row_count(&self) -> u64 {
        self.inner.infos.iter().map(|info| u64::from(info.physical_rows - info.deleted_rows)).sum()
    }

    /// The version's fragments, by ascending id.
    pub fn fragments(&self) -> &[FragmentInfo] {
        &self.inner.infos
    }

    /// One fragment; `None` if the version doesn't have it.
    pub fn fragment(&self, id: u32) -> Option<&FragmentInfo> {
        self.position(id).ok().map(|at| &self.inner.infos[at])
    }

    /// Which data files hold `column` (top-level, with all that is nested in it) in `fragment`:
    /// `id:type:path` for each of its fields, `id:type:absent` where the fragment has no data for
    /// it (it reads as nulls), and each overlay over it. Names are unique and files never change,
    /// so equal identities mean equal bytes, across versions too.
    ///
    /// Errors: `FragmentNotFound`, `ColumnNotFound`.
    pub fn file_identity(&self, fragment: u32, column: &str) -> Result<String> {
        let at = self.position(fragment)?;
        let field = &self.inner.dataset.schema().fields[self.column_position(column)?];
        Ok(file_identity(self.inner.fragments[at].metadata(), field))
    }

    /// The deleted rows of `fragment`: read from the store at the first call, kept from then on.
    /// Errors: `FragmentNotFound`, and those of the store.
    pub async fn deleted(&self, fragment: u32) -> Result<Arc<DeletedRows>> {
        let at = self.position(fragment)?;
        let load = async {
            let vector = self.inner.fragments[at].get_deletion_vector().await;
            vector.map(|vector| Arc::new(deleted_rows(vector.as_deref())))
        };
        self.inner.deleted[at]
            .get_or_try_init(|| self.on_own_runtime(self.caught(load).boxed()))
            .await
            .cloned()
    }

    /// What this version's rows are made of: a hash of its columns, and of each fragment's files and
    /// deletions. Two tables that had the same URI and version one after the other differ in it,
    /// because data files are never named alike.
    pub fn identity(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for field in &self.inner.dataset.schema().fields {
            part(format!("{}:{}:{}", field.id, field.name, field.logical_type).as_bytes());
        }
        for fragment in &self.inner.fragments {
            let metadata = fragment.metadata();
            part(&metadata.id.to_le_bytes());
            metadata.files.iter().for_each(|file| part(file.path.as_bytes()));
            metadata.overlays.iter().for_each(|file| part(file.data_file.path.as_bytes()));
            if let Some(deletions) = &metadata.deletion_file {
                part(&deletions.read_version.to_le_bytes());
                part(&deletions.id.to_le_bytes());
            }
        }
        hash.finalize().to_hex()[..32].to_owned()
    }

    /// The number of the latest version: one listing, no manifest is read. Errors:
    /// `StoreUnreachable`, `CredentialsRefused`, `TableNotFound`.
    pub async fn latest_version(&self) -> Result<u64> {
        self.inner.lake.with_open_timeout(self.uri(), self.inner.dataset.latest_version_id()).await
    }

    /// The latest version, opened, if it is another than this one; `None` while this is the
    /// latest. Also notices a table that was dropped and made anew at the same URI, as long as
    /// the store tells (by the manifest's e-tag or size). Errors: those of [`Lake::open`].
    pub async fn newer(&self) -> Result<Option<Self>> {
        let dataset = &self.inner.dataset;
        let (_, found) =
            self.inner.lake.with_open_timeout(self.uri(), dataset.latest_manifest()).await?;
        let mine = dataset.manifest_location();
        let differs = |a: Option<&str>, b: Option<&str>| a.is_some() && b.is_some() && a != b;
        if found.version == mine.version && !differs(found.e_tag.as_deref(), mine.e_tag.as_deref())
        {
            return Ok(None);
        }
        let (lake, uri) = (&self.inner.lake, &self.inner.uri);
        let dataset = lake.dataset(uri).await?;
        Self::new(lake.clone(), uri.clone(), dataset).await.map(Some)
    }

    /// The column whose values name rows: recorded by `bireme ingest --key` or `bireme index
    /// --key`, or declared by another tool as Lance's unenforced primary key (of one top-level
    /// column). `None` if neither is there.
    pub fn key_column(&self) -> Option<&str> {
        let dataset = &self.inner.dataset;
        let recorded = dataset.config().get(KEY_COLUMN_CONFIG).map(String::as_str);
        if let Some(column) = recorded.filter(|column| self.inner.positions.contains_key(*column)) {
            return Some(column);
        }
        match dataset.schema().unenforced_primary_key().as_slice() {
            [field] => {
                self.inner.positions.get_key_value(&field.name).map(|(name, _)| name.as_str())
            }
            _ => None,
        }
    }

    /// Whether `column` can be recorded as the key column. Another one gives way only to who says so: rows would no
    /// longer be found by the keys that are known of them.
    ///
    /// Errors: `ColumnNotFound`, `AnotherKey`.
    pub fn check_key(&self, column: &str, replace: bool) -> Result<()> {
        self.column_position(column)?;
        match self.key_column() {
            Some(present) if present != column && !replace => Err(LakeError::AnotherKey {
                uri: self.uri().to_owned(),
                present: present.to_owned(),
                column: column.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The table's indexes; read from the store at the first call, kept from then on.
    pub async fn indexes(&self) -> Result<Arc<Vec<IndexInfo>>> {
        // Boxed, since its state is large and every search would carry it.
        let load = || self.on_own_runtime(caught(self.uri(), IndexInfo::load_all(self)).boxed());
        self.inner.indexes.get_or_try_init(load).await.cloned()
    }

    /// Loads what is kept with the table.
    pub(crate) fn on_own_runtime<'a, T: 'a>(&'a self, load: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        on_runtime(&self.inner.runtime, load)
    }

    /// The indexes of the column at `position` that are searched without the scanner.
    pub(crate) fn direct_of(&self, position: usize) -> &Direct {
        &self.inner.direct[position]
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.inner.dataset
    }

    /// Where a top-level column stands in the schema. Errors: `ColumnNotFound`.
    pub(crate) fn column_position(&self, column: &str) -> Result<usize> {
        self.inner.positions.get(column).copied().ok_or_else(|| columns::not_found(self, column))
    }

    /// Errors: `FragmentNotFound`.
    pub(crate) fn file_fragment(&self, id: u32) -> Result<&FileFragment> {
        self.position(id).map(|at| &self.inner.fragments[at])
    }

    /// Awaits what Lance does with this table. Errors: Lance's, diagnosed, and `Corrupt` if it panics.
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
