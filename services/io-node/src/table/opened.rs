//! An opened version of a table: the metadata that fetches need, in memory.

use std::ops::Range;
use std::sync::Arc;

use address::{ChunkRows, ExtentKey, PackKey, RowAddr, TableTag};
use arrow_schema::{DataType, FieldRef};
use futures::{StreamExt, TryStreamExt};
use pack::{PackLayout, plan_packs};
use placement::chunk_rows;
use tables::{BLOCK_SECTORS, DeletedRows, FileTable, FragmentInfo, Table, TableUri};

use crate::error::NodeError;

/// The maximum number of deletion vectors that are read at the same time when a table is opened. Sixteen are an eighth
/// of the requests that a node may have in flight to a store by default (`requests_max`), so most are left to other
/// tables.
const DELETIONS_LOADING_MAX: usize = 16;

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

/// Returns the number of bytes of a value, or `None` for types of variable width, dictionaries and structs.
pub fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => u64::try_from(*width).ok(),
        DataType::FixedSizeList(item, count) => {
            Some(fixed_bytes(item.data_type())? * u64::try_from(*count).ok()?)
        }
        other => other.primitive_width().map(|width| width as u64),
    }
}

/// A pack: columns that are stored together.
pub struct Pack {
    /// The columns' names, in the layout's order.
    pub columns: Vec<String>,
    /// The layout of the pack's rows.
    pub layout: PackLayout,
    /// Whether the pack is a blob column, whose values may be of any size.
    pub is_blob: bool,
}

/// A fragment, with the keys of its packs.
pub struct OpenFragment {
    /// The fragment's id.
    pub id: u32,
    /// Rows in the fragment's files, including deleted ones.
    pub rows: u32,
    /// The division of the rows into chunks.
    pub chunk_rows: ChunkRows,
    /// Average bytes of a row in the fragment's first file; 0 if unknown.
    pub row_bytes: u64,
    deleted: Arc<DeletedRows>,
    /// A key for each of the table's packs.
    keys: Vec<PackKey>,
}

impl OpenTable {
    /// Plans the packs of `table`, reads the deletion vectors of all fragments, and derives the keys of their packs.
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
                let columns: Vec<_> = fields.iter().map(|f| f.name().clone()).collect();
                let is_blob = columns.len() == 1 && table.is_blob(&columns[0])?;
                Ok(Pack { columns, layout: PackLayout::new(&fields)?, is_blob })
            })
            .collect::<Result<Vec<_>, NodeError>>()?;
        let ids: Vec<u32> = table.fragments().iter().map(|fragment| fragment.id).collect();
        let load = |id| {
            let table = Arc::clone(&table);
            async move { table.deleted(id).await }
        };
        let deleted: Vec<Arc<DeletedRows>> = futures::stream::iter(ids)
            .map(load)
            .buffered(DELETIONS_LOADING_MAX)
            .try_collect()
            .await?;
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
                    row_bytes: info.first_file_bytes.unwrap_or(0)
                        / u64::from(info.physical_rows.max(1)),
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

    /// Returns the average bytes of a fragment's row in columns of variable width, derived from the size of its first
    /// file; 0 if unknown.
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
