//! The index and deletion files of a version of a table.

use futures::future::ready;
use futures::{StreamExt, TryStreamExt, stream};
use lance::index::DatasetIndexExt;
use lance_table::format::IndexMetadata;
use lance_table::io::deletion::deletion_file_path;
use object_store::Error as StoreError;
use object_store::path::Path;
use tables::{FilePath, TableUri};

use crate::error::Result;
use crate::lake::Lake;
use crate::store::LATE;
use crate::table::Table;

/// The maximum number of files whose ends are read at the same time. A vector index and a BTREE have two or three.
const ENDS_MAX: usize = 16;

/// The maximum number of files of a new version that the cache fills at the same time.
const FILLING_MAX: usize = 4;

/// A file in a table's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile {
    /// Its path.
    pub path: FilePath,
    /// Its size, if the manifest or a listing gives it.
    pub bytes: Option<u64>,
}

/// A segment of an index that a version of a table has, and the next one has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedSegment {
    table: TableUri,
    /// The segment's id, which no other segment of any version has.
    id: String,
    /// The segment's files, with their sizes.
    files: Vec<(FilePath, u64)>,
}

impl Lake {
    /// Has the cache of files evict the files of a segment. Returns whether all parts of the cache have done so.
    pub async fn release(&self, segment: &DroppedSegment) -> bool {
        let Some(cache) = self.opener().file_cache() else { return true };
        let mut is_released = true;
        for (path, bytes) in &segment.files {
            is_released &= cache.release(&segment.table, path, *bytes).await;
        }
        is_released
    }
}

impl DroppedSegment {
    /// Creates a segment of `table` with the id `id` and these files, each with its size.
    pub fn new(table: TableUri, id: String, files: Vec<(FilePath, u64)>) -> Self {
        Self { table, id, files }
    }

    /// Returns the segment's table.
    pub fn table(&self) -> &TableUri {
        &self.table
    }

    /// Returns the number of the segment's files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }
}

impl Table {
    /// Returns the index segments that the earlier version `before` has, and this version has not, if there is a cache
    /// of files. Leaves out segments outside the table's folder, and files whose sizes the manifest does not record.
    ///
    /// Errors: those of the store.
    pub async fn segments_dropped_since(&self, before: &Self) -> Result<Vec<DroppedSegment>> {
        if self.file_cache().is_none() {
            return Ok(Vec::new());
        }
        let dropped = async {
            let kept = self.dataset().load_indices().await?;
            let indexes = before.dataset().load_indices().await?;
            let dropped = indexes.iter().filter(|it| kept.iter().all(|kept| kept.uuid != it.uuid));
            Ok(dropped.filter_map(|index| before.dropped_segment(index)).collect())
        };
        self.caught(dropped).await
    }

    fn dropped_segment(&self, index: &IndexMetadata) -> Option<DroppedSegment> {
        let in_table = self.folder_in_table(index.base_id)?;
        let files = index.files.iter().flatten().filter(|file| file.size_bytes > 0);
        let files =
            files.filter_map(|it| Some((index_file(&in_table, index, &it.path)?, it.size_bytes)));
        let table = self.canonical_uri().clone();
        Some(DroppedSegment::new(table, index.uuid.to_string(), files.collect()))
    }

    /// Returns whether this is a version of the segment's table that has the segment.
    ///
    /// Errors: those of the store.
    pub async fn has_segment(&self, segment: &DroppedSegment) -> Result<bool> {
        if *self.canonical_uri() != segment.table {
            return Ok(false);
        }
        let indexes = self.caught(self.dataset().load_indices()).await?;
        Ok(indexes.iter().any(|index| index.uuid.to_string() == segment.id))
    }

    /// Returns the files of all segments of the indexes named `names`; without names, those of all indexes, and the
    /// deletion files. Files outside the table's folder are left out.
    ///
    /// Errors: those of the store. A name that no index has adds nothing to the result.
    pub async fn files(&self, names: &[String]) -> Result<Vec<TableFile>> {
        self.caught(self.load_files(names)).await
    }

    /// Tells the cache of files the sizes of the indexes' files that the manifest records. Without them, the cache would
    /// read a file's first block before any other, only to find out its size.
    ///
    /// Errors: those of the store.
    pub(crate) async fn note_file_sizes(&self) -> lance::Result<()> {
        let Some(cache) = self.file_cache() else { return Ok(()) };
        for index in self.dataset().load_indices().await?.iter() {
            let Some(in_table) = self.folder_in_table(index.base_id) else { continue };
            for file in index.files.iter().flatten().filter(|file| file.size_bytes > 0) {
                if let Some(path) = index_file(&in_table, index, &file.path) {
                    cache.note_size(self.canonical_uri(), &path, file.size_bytes);
                }
            }
        }
        Ok(())
    }

    /// Has the cache of files read the ends of an index's files, at the same time. Lance reads the end of each file first,
    /// and opens one file after the other. Files whose sizes the manifest does not record are left out.
    pub(crate) async fn read_file_ends(&self, index: &IndexMetadata) {
        let (cache, in_table) = (self.file_cache(), self.folder_in_table(index.base_id));
        let (Some(cache), Some(in_table)) = (cache, in_table) else { return };
        let known = index.files.iter().flatten().filter(|file| file.size_bytes > 0);
        let files: Vec<_> = known
            .filter_map(|file| Some((index_file(&in_table, index, &file.path)?, file.size_bytes)))
            .collect();
        let mut reads = Vec::with_capacity(files.len());
        for (path, bytes) in &files {
            reads.push(cache.read(self.canonical_uri(), path, bytes - 1..*bytes));
        }
        let reads = stream::iter(reads).buffer_unordered(ENDS_MAX).for_each(|_| ready(()));
        // If the cache is late or fails, Lance's own read finds out.
        let _ = tokio::time::timeout(LATE, reads).await;
    }

    /// Has the cache of files fill the files of index segments that this version has, and the earlier version `before`
    /// has not. With `of_all`, it fills those of all columns. Otherwise, it fills those of the columns whose indexes are in
    /// use: a search, a filter or a look-up has used one, in this version or in one that it followed
    /// ([`newer`](Self::newer)).
    ///
    /// Errors: those of the store.
    pub async fn fill_new_index_files(&self, before: &Self, of_all: bool) -> Result<()> {
        let Some(cache) = self.file_cache() else { return Ok(()) };
        let new = self.caught(self.new_index_files(before, of_all)).await?;
        let fill = |file: &TableFile| {
            let (path, bytes) = (file.path.clone(), file.bytes.unwrap_or_default());
            async move { cache.fill(self.canonical_uri(), &path, bytes).await }
        };
        let fills: Vec<_> = new.iter().map(fill).collect();
        stream::iter(fills).buffer_unordered(FILLING_MAX).for_each(ready).await;
        Ok(())
    }

    async fn new_index_files(&self, before: &Self, of_all: bool) -> lance::Result<Vec<TableFile>> {
        let known = before.dataset().load_indices().await?;
        let mut files = Vec::new();
        for index in self.dataset().load_indices().await?.iter() {
            let is_known = known.iter().any(|it| it.uuid == index.uuid);
            if !is_known && (of_all || self.is_in_use(index)) {
                self.add_files_of(index, &mut files).await?;
            }
        }
        Ok(files)
    }

    /// Returns whether an index of the same column has been used. Further columns of an index are only carried with it.
    fn is_in_use(&self, index: &IndexMetadata) -> bool {
        let fields = &self.dataset().schema().fields;
        let position = fields.iter().position(|field| index.fields.first() == Some(&field.id));
        position.is_some_and(|position| self.direct_of(position).is_used())
    }

    async fn load_files(&self, names: &[String]) -> lance::Result<Vec<TableFile>> {
        let dataset = self.dataset();
        let mut files = Vec::new();
        for index in dataset.load_indices().await?.iter() {
            if names.is_empty() || names.contains(&index.name) {
                self.add_files_of(index, &mut files).await?;
            }
        }
        if names.is_empty() {
            for fragment in dataset.fragments().iter() {
                let Some(file) = &fragment.deletion_file else { continue };
                let Some(folder) = self.folder_in_table(file.base_id) else { continue };
                let path = deletion_file_path(&Path::default(), fragment.id, file);
                let path = FilePath::parse(&format!("{folder}{path}"));
                files.extend(path.map(|path| TableFile { path, bytes: None }));
            }
        }
        Ok(files)
    }

    async fn add_files_of(
        &self,
        index: &IndexMetadata,
        files: &mut Vec<TableFile>,
    ) -> lance::Result<()> {
        let Some(in_table) = self.folder_in_table(index.base_id) else { return Ok(()) };
        let path = |name: &str| index_file(&in_table, index, name);
        if let Some(recorded) = &index.files {
            files.extend(recorded.iter().filter_map(|file| {
                Some(TableFile { path: path(&file.path)?, bytes: Some(file.size_bytes) })
            }));
            return Ok(());
        }
        let dataset = self.dataset();
        let store = dataset.object_store(index.base_id).await?;
        let table = self.table_path()?;
        // `Path::join` would encode letters of a branch's name that are outside ASCII.
        let folder = Path::parse(format!("{table}/{in_table}_indices/{}", index.uuid));
        let folder = folder.map_err(StoreError::from)?;
        let listed: Vec<_> = store.inner.list(Some(&folder)).try_collect().await?;
        files.extend(listed.iter().filter_map(|meta| {
            let parts: Vec<_> = meta.location.prefix_match(&folder)?.collect();
            let name = parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/");
            Some(TableFile { path: path(&name)?, bytes: Some(meta.size) })
        }));
        Ok(())
    }
}

/// Returns the path of an index's file. `in_table` is the folder of the index's files in the table's folder: empty, or
/// ending with a slash.
fn index_file(in_table: &str, index: &IndexMetadata, name: &str) -> Option<FilePath> {
    FilePath::parse(&format!("{in_table}_indices/{}/{name}", index.uuid))
}
