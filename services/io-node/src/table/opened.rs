//! An opened version of a table: the metadata that fetches need, in memory.

use std::ops::Range;
use std::sync::Arc;

use address::{ChunkRows, ExtentKey, PackKey, RowAddr, TableTag};
use arrow_schema::FieldRef;
use futures::{StreamExt, TryFutureExt, TryStreamExt};
use pack::{PackError, PackLayout, plan_packs};
use placement::chunk_rows;
use tables::{BLOCK_SECTORS, DeletedRows, FileTable, FragmentInfo, Table, TableUri, fixed_bytes};
use wire::Fault;

use crate::error::NodeError;

/// The maximum number of deletion vectors that are read at the same time when a table is opened. Its rows wait for all
/// of them: for 2,000 at 30 ms a request, 0.9 s. Sixty-four are half of the requests that a node may have in flight to a
/// store by default (`requests_max`), so the other half is left to other tables.
const DELETIONS_LOADING_MAX: usize = 64;

/// One version of a table. Immutable, and shared by all cores.
pub struct OpenTable {
    table: Arc<dyn Table>,
    packs: Vec<Pack>,
    /// The fragments, in ascending order of ids.
    fragments: Vec<OpenFragment>,
    /// Bytes of a row in all columns of fixed width.
    fixed_bytes: u64,
    /// The index or deletion file that is served as this table; `None` for a table of rows.
    file: Option<Arc<FileTable>>,
}

/// A pack: columns that are stored together.
pub struct Pack {
    /// The columns' names, in the layout's order.
    pub columns: Vec<String>,
    /// The layout of the pack's rows.
    pub layout: PackLayout,
    /// Whether the pack is a blob column, whose values may be of any size.
    pub is_blob: bool,
    /// Bytes of a row's values of fixed width, as they are encoded: a Boolean takes one. An encoded row has at least as
    /// many.
    pub fixed_bytes: u64,
    /// The minimum bytes of a row in memory: its values of fixed width, and an offset for each other value.
    row_bytes_min: u64,
}

/// A fragment, with the keys of its packs.
pub struct OpenFragment {
    /// The fragment's id.
    pub id: u32,
    /// Rows in the fragment's files, including deleted ones.
    pub rows: u32,
    /// The division of the rows into chunks.
    pub chunk_rows: ChunkRows,
    /// Average bytes of a row in the fragment's files; 0 if unknown.
    pub row_bytes: u64,
    deleted: Arc<DeletedRows>,
    /// A key for each of the table's packs.
    keys: Vec<PackKey>,
}

impl Pack {
    /// Creates a pack of these columns. `is_blob` says whether it is a blob column.
    fn new(fields: &[FieldRef], is_blob: bool) -> Result<Self, PackError> {
        let columns = fields.iter().map(|field| field.name().clone()).collect();
        let layout = PackLayout::new(fields)?;
        let offset_bytes = size_of::<i64>() as u64;
        let bytes_min = |field: &FieldRef| fixed_bytes(field.data_type()).unwrap_or(offset_bytes);
        let row_bytes_min = fields.iter().map(bytes_min).sum();
        let widths = fields.iter().filter_map(|field| fixed_bytes(field.data_type()));
        let fixed_bytes = widths.sum();
        Ok(Self { columns, layout, is_blob, fixed_bytes, row_bytes_min })
    }

    /// Estimates the bytes of a row of this pack when chunks are scanned. `file_row_bytes` is the average of a row's
    /// bytes in the fragment's files; 0 if unknown. The files may lack a column, whose nulls take memory all the same.
    /// Returns `None` if rows may be of any size: their chunks are not scanned together.
    pub fn scanned_row_bytes(&self, file_row_bytes: u64) -> Option<u64> {
        (!self.is_blob && file_row_bytes > 0).then_some(file_row_bytes.max(self.row_bytes_min))
    }
}

impl OpenTable {
    /// Plans the packs of `table`, loads the deletion vectors of all fragments, and derives the keys of their packs.
    ///
    /// # Errors
    /// An error of the store; a column whose type cannot be packed (Lance stores no such types); a pack whose rows have
    /// a fixed part of more than 1 GiB.
    pub async fn new(table: Arc<dyn Table>) -> Result<Self, NodeError> {
        Self::divided(table, |info| chunk_rows(info.physical_rows, info.first_file_bytes)).await
    }

    /// Opens a file of a table. Its chunks are blocks.
    ///
    /// # Errors
    /// Never for a file: its column can be packed, and it has no deletion vectors to read.
    pub async fn of_file(file: FileTable) -> Result<Self, NodeError> {
        let file = Arc::new(file);
        let table = Self::divided(Arc::clone(&file) as _, |_| BLOCK_SECTORS).await?;
        Ok(Self { file: Some(file), ..table })
    }

    /// Opens `table`, and divides its fragments into chunks as `chunk_rows` says.
    async fn divided(
        table: Arc<dyn Table>,
        chunk_rows: impl Fn(&FragmentInfo) -> ChunkRows,
    ) -> Result<Self, NodeError> {
        let schema = Arc::clone(table.schema());
        let packs = plan_packs(&schema)
            .into_iter()
            .map(|pack| {
                let fields: Vec<FieldRef> =
                    pack.0.iter().map(|&i| Arc::clone(&schema.fields()[i])).collect();
                let is_blob = fields.len() == 1 && table.is_blob(fields[0].name())?;
                Pack::new(&fields, is_blob).map_err(NodeError::from)
            })
            .collect::<Result<Vec<_>, NodeError>>()?;
        let ids = table.fragments().iter().map(|fragment| fragment.id).collect();
        let load = |id| {
            let table = Arc::clone(&table);
            async move { table.deleted(id).await }
        };
        let deleted = load_deletions(ids, load).await?;
        let fragments = table
            .fragments()
            .iter()
            .zip(deleted)
            .map(|(info, deleted)| {
                let chunk_rows = chunk_rows(info);
                let key =
                    |pack: &Pack| pack_key(table.as_ref(), info.id, chunk_rows, &pack.columns);
                let keys = packs.iter().map(key).collect::<Result<_, _>>()?;
                Ok(OpenFragment {
                    id: info.id,
                    rows: info.physical_rows,
                    chunk_rows,
                    row_bytes: info.row_bytes(),
                    deleted,
                    keys,
                })
            })
            .collect::<Result<Vec<_>, NodeError>>()?;
        let widths = schema.fields().iter().filter_map(|field| fixed_bytes(field.data_type()));
        Ok(Self { table, packs, fragments, fixed_bytes: widths.sum(), file: None })
    }

    /// Returns the table itself.
    pub fn table(&self) -> &dyn Table {
        self.table.as_ref()
    }

    /// Returns the index or deletion file that is served as this table; `None` for a table of rows.
    pub fn file(&self) -> Option<&FileTable> {
        self.file.as_deref()
    }

    /// Returns the table's packs. Each column is in exactly one of them.
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// Returns the version's fragments, in ascending order of ids.
    pub fn fragments(&self) -> &[OpenFragment] {
        &self.fragments
    }

    /// Returns the average bytes of a fragment's row in columns of variable width, derived from the size of its files;
    /// 0 if unknown.
    pub fn variable_bytes(&self, fragment: u32) -> u64 {
        let row_bytes = self.fragment(fragment).map_or(0, |fragment| fragment.row_bytes);
        row_bytes.saturating_sub(self.fixed_bytes)
    }

    /// Returns the fragment with this id.
    pub fn fragment(&self, id: u32) -> Option<&OpenFragment> {
        // Ids are mostly consecutive from 0, so a fragment's index is usually its id.
        if let Some(fragment) = self.fragments.get(id as usize)
            && fragment.id == id
        {
            return Some(fragment);
        }
        let at = self.fragments.binary_search_by_key(&id, |f| f.id).ok()?;
        Some(&self.fragments[at])
    }
}

impl OpenFragment {
    /// Returns whether this version has a row at `offset` that is not deleted.
    pub fn has(&self, offset: u32) -> bool {
        offset < self.rows && (self.deleted.is_empty() || !self.deleted.contains(offset))
    }

    /// Returns the key of the extent that holds the row at `addr` in the table's pack number `pack`.
    pub fn extent_of(&self, pack: usize, addr: RowAddr) -> ExtentKey {
        self.extent(pack, self.chunk_rows.chunk_of(addr).index)
    }

    /// Returns the key of the extent of one chunk of the table's pack number `pack`.
    pub fn extent(&self, pack: usize, chunk: u32) -> ExtentKey {
        ExtentKey { pack: self.keys[pack], chunk }
    }

    /// Returns the physical rows of a chunk.
    pub fn rows_of(&self, chunk: u32) -> Range<u32> {
        self.chunk_rows.rows_of(chunk, self.rows)
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunk_rows.chunks_in(self.rows)
    }
}

/// Loads the deleted rows of each of the fragments `ids` by `load`, and returns them in the order of `ids`.
async fn load_deletions<L: Future<Output = Result<Arc<DeletedRows>, Fault>>>(
    ids: Vec<u32>,
    load: impl Fn(u32) -> L,
) -> Result<Vec<Arc<DeletedRows>>, Fault> {
    // Unordered, so that a slow answer holds up no other request.
    let mut loaded: Vec<(usize, Arc<DeletedRows>)> =
        futures::stream::iter(ids.into_iter().enumerate())
            .map(|(at, id)| load(id).map_ok(move |deleted| (at, deleted)))
            .buffer_unordered(DELETIONS_LOADING_MAX)
            .try_collect()
            .await?;
    loaded.sort_unstable_by_key(|&(at, _)| at);
    Ok(loaded.into_iter().map(|(_, deleted)| deleted).collect())
}

/// Returns the tag of the table at `uri`, or of a table's files.
pub fn table_tag(uri: &TableUri) -> TableTag {
    let hash = blake3::hash(uri.as_str().as_bytes());
    let (first, _) = hash.as_bytes().split_first_chunk().unwrap_or((&[0; 4], &[]));
    let hash = u32::from_le_bytes(*first);
    match uri.table_of_files() {
        Some(_) => TableTag::of_files(hash),
        None => TableTag::of_rows(hash),
    }
}

/// Returns a table's label: the last part of its path, and its tag. It may be shown to anyone, because it does not
/// reveal the table's location. The index and deletion files of a table `t` have the label `t/files-`, followed by a
/// tag of their own.
pub fn label(uri: &TableUri) -> String {
    match uri.table_of_files() {
        Some(table) => format!("{}/files-{:?}", table.last_part(), table_tag(uri)),
        None => format!("{}-{:?}", uri.last_part(), table_tag(uri)),
    }
}

/// Derives the key of a fragment's pack from everything that determines its bytes.
fn pack_key(
    table: &dyn Table,
    fragment: u32,
    chunk_rows: ChunkRows,
    columns: &[String],
) -> Result<PackKey, NodeError> {
    let mut hash = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        // Each part is preceded by its length, so that different lists of parts are never the same bytes.
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(table.uri().as_str().as_bytes());
    part(&fragment.to_le_bytes());
    part(&chunk_rows.get().to_le_bytes());
    for column in columns {
        part(column.as_bytes());
        part(table.file_identity(fragment, column)?.as_bytes());
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize().as_bytes()[..16]);
    Ok(PackKey::new(table_tag(table.uri()), u128::from_le_bytes(key)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow_schema::{DataType, Field};
    use tokio::sync::Notify;

    use super::*;

    fn pack(data_types: &[DataType], is_blob: bool) -> Pack {
        let field = |data_type: &DataType| {
            Arc::new(Field::new(data_type.to_string(), data_type.clone(), true))
        };
        Pack::new(&data_types.iter().map(field).collect::<Vec<_>>(), is_blob).unwrap()
    }

    /// The clock is paused, so the time limit has passed as soon as no request can continue.
    #[tokio::test(start_paused = true)]
    async fn a_slow_deletion_file_holds_up_no_other() {
        const FILES: u32 = 1000;
        let last = Arc::new(Notify::new());
        // The first answer arrives only after the last request.
        let load = |id: u32| {
            let last = Arc::clone(&last);
            async move {
                if id == 0 {
                    last.notified().await;
                }
                if id == FILES - 1 {
                    last.notify_one();
                }
                let deleted: DeletedRows = std::iter::once(id).collect();
                Ok(Arc::new(deleted))
            }
        };
        let loaded = load_deletions((0..FILES).collect(), load);
        let loaded = tokio::time::timeout(Duration::from_secs(60), loaded).await.unwrap().unwrap();
        assert_eq!(loaded.len(), FILES as usize);
        assert!((0..FILES).zip(&loaded).all(|(id, deleted)| deleted.contains(id)));
    }

    #[test]
    fn a_scan_counts_wide_values_that_files_lack_or_compress() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 768, true);
        let vectors = pack(&[vector], false);
        assert_eq!(vectors.scanned_row_bytes(100), Some(3072));
        assert_eq!(vectors.scanned_row_bytes(3200), Some(3200));
        let others = pack(&[DataType::Int32, DataType::Utf8], false);
        assert_eq!(others.scanned_row_bytes(1), Some(4 + 8));
        assert_eq!(others.scanned_row_bytes(100), Some(100));
        assert_eq!(others.scanned_row_bytes(0), None);
        assert_eq!(pack(&[DataType::LargeBinary], true).scanned_row_bytes(100), None);
    }
}
