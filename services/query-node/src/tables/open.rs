//! One version of a table, with everything that requests need from it.

mod part;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use address::{ChunkId, ChunkRows, RowAddr};
use arc_swap::ArcSwap;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lake::{BranchName, Table};
use pack::{PackLayout, plan_packs, wire_schema};
use placement::{TableHash, chunk_rows};
use wire::Fault;

use self::part::Parts;
use super::named::named;
use super::packed_row::packed_row_bytes;
use super::projection::{DISTANCE, Projection, RELEVANCE, ROW_ADDRESS, SCORE};
use crate::error::{QueryError, Result};
use crate::key_index::{KeyIndexes, VersionKeys};
use crate::recall_curves::{FittedCurves, TableCurves};

/// Maximum number of cached projections per open version of a table. The oldest one is evicted. All grants for the whole
/// table share them. They are compared one after the other, and their list is copied when one is added.
const PROJECTIONS_MAX: usize = 64;

/// As [`PROJECTIONS_MAX`], for a part of a version. There may be as many parts as grants.
const PROJECTIONS_OF_PART_MAX: usize = 16;

/// A projection, with the column names that a request gave.
type CachedProjection = (Arc<[String]>, Arc<Projection>);

/// One version of a table, or a part of it that a grant shows ([`as_shown`](Self::as_shown)). Immutable, except for the
/// runs of its key index, the caches of projections, parts and recall curves, and a flag.
#[derive(Debug)]
pub struct OpenTable {
    /// The name that requests use.
    pub name: String,
    /// The table as callers see it.
    pub table: Table,
    /// All of the table. I/O nodes know no parts, so what they read or evaluate is resolved here. It never resolves a
    /// name that a caller gives.
    pub stored: Table,
    /// The table's hash for placement.
    pub hash: TableHash,
    /// Identifies the version's data, so that I/O nodes do not serve rows of another table at the same URI.
    pub identity: String,
    /// The key column: the configured one, or the one that the table records.
    pub key_column: Option<String>,
    /// The index of the key column; `None` without a key column, or if it is not indexed.
    pub keys: Option<Arc<VersionKeys>>,
    /// The recall curves of its vector indexes.
    pub curves: Arc<FittedCurves>,
    /// Whether I/O nodes were asked to open the version before rows of it were fetched.
    pub is_opened_ahead: AtomicBool,
    /// The columns of each pack, as positions in the schema.
    packs: Arc<[Vec<usize>]>,
    /// A row's share of the table's data files, in bytes; `None` if their sizes are not known, or if rows have blobs,
    /// which may be in other files.
    pub file_row_bytes: Option<u64>,
    /// The approximate size of a row in the pack that most columns share, in bytes.
    pub packed_row_bytes: usize,
    /// Fragment ids, ascending, with the number of rows in each chunk.
    chunk_rows: Arc<[(u32, ChunkRows)]>,
    /// Projections by the names that requests gave. Read by all cores with each request, and rarely changed.
    projections: ArcSwap<Vec<CachedProjection>>,
    /// The maximum number of `projections`.
    projections_max: usize,
    /// Parts of the version, for grants that do not show it whole. A part has none.
    parts: Parts,
}

impl OpenTable {
    /// Prepares a version of a table for requests.
    ///
    /// # Errors
    /// `ColumnNotFound` if the table lacks the configured key column, `CompositeKey` if several are configured.
    pub fn new(
        name: &str,
        table: Table,
        key: Option<&str>,
        indexes: &KeyIndexes,
        curves: &Arc<TableCurves>,
    ) -> Result<Self> {
        if let Some(key) = key {
            table.check_key_column(key)?;
        }
        let key_column = key.or(table.key_column()).map(str::to_owned);
        let keys = key_column.as_deref().and_then(|column| indexes.open(name, &table, column));
        let rows_of = |info: &lake::FragmentInfo| {
            (info.id, chunk_rows(info.physical_rows, info.first_file_bytes))
        };
        let packs: Vec<_> = plan_packs(table.schema()).into_iter().map(|pack| pack.0).collect();
        let rows: u64 = table.fragments().iter().map(|info| u64::from(info.physical_rows)).sum();
        let row_bytes = table.data_bytes() / rows.max(1);
        let mut columns = table.schema().fields().iter();
        let has_blobs = columns.any(|column| table.is_blob(column.name()).unwrap_or(true));
        let file_bytes = table.all_data_bytes().filter(|_| !has_blobs);
        // The shared pack is the first.
        let shared = packs.first().map_or(&[][..], Vec::as_slice);
        let packed_row_bytes = packed_row_bytes(&wire_schema(table.schema()), shared, row_bytes);
        Ok(Self {
            name: name.to_owned(),
            hash: TableHash::of(table.uri()),
            identity: table.identity(),
            key_column,
            keys,
            curves: Arc::new(FittedCurves::new(Arc::clone(curves))),
            is_opened_ahead: AtomicBool::new(false),
            packs: packs.into(),
            file_row_bytes: file_bytes.map(|bytes| bytes / rows.max(1)),
            packed_row_bytes,
            chunk_rows: table.fragments().iter().map(rows_of).collect(),
            projections: ArcSwap::default(),
            projections_max: PROJECTIONS_MAX,
            parts: Parts::default(),
            stored: table.clone(),
            table,
        })
    }

    /// Returns this version, of which callers see the part that `table` shows.
    fn showing(&self, table: Table) -> Self {
        let is_shown = |column: &String| table.column_type(column).is_ok();
        let key_column = self.key_column.clone().filter(is_shown);
        Self {
            name: self.name.clone(),
            stored: self.stored.clone(),
            hash: self.hash,
            identity: self.identity.clone(),
            keys: self.keys.clone().filter(|_| key_column.is_some()),
            key_column,
            curves: Arc::clone(&self.curves),
            is_opened_ahead: AtomicBool::new(false),
            packs: Arc::clone(&self.packs),
            file_row_bytes: self.file_row_bytes,
            packed_row_bytes: self.packed_row_bytes,
            chunk_rows: Arc::clone(&self.chunk_rows),
            projections: ArcSwap::default(),
            projections_max: PROJECTIONS_OF_PART_MAX,
            parts: Parts::default(),
            table,
        }
    }

    /// Returns whether callers see only some of the rows.
    pub fn hides_rows(&self) -> bool {
        self.table.row_condition().is_some()
    }

    /// Returns a fault for callers, with the table's name in angle brackets in place of its URI.
    pub fn named(&self, fault: Fault) -> Fault {
        named(fault, self.table.uri(), &self.name)
    }

    /// Returns a text for callers, with the table's name in angle brackets in place of its URI.
    pub fn named_text(&self, text: &str) -> String {
        text.replace(self.table.uri(), &format!("<{}>", self.name))
    }

    /// Returns the branch that the version belongs to; an empty text for the main one.
    pub fn branch(&self) -> &str {
        self.table.branch().map_or("", BranchName::as_str)
    }

    /// Returns the version's number.
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// Returns the chunk that holds the row at `addr`. If the version lacks the fragment, it returns chunk 0: any node
    /// reports the fragment's rows as missing.
    pub fn chunk_of(&self, addr: RowAddr) -> ChunkId {
        match self.chunk_rows_of(addr.fragment()) {
            Some(rows) => rows.chunk_of(addr),
            None => ChunkId { fragment: addr.fragment(), index: 0 },
        }
    }

    /// Returns the number of rows in each chunk of a fragment.
    pub fn chunk_rows_of(&self, fragment: u32) -> Option<ChunkRows> {
        // Ids are mostly consecutive from 0, so the index is usually the id.
        match self.chunk_rows.get(fragment as usize) {
            Some((id, rows)) if *id == fragment => Some(*rows),
            _ => {
                let at = self.chunk_rows.binary_search_by_key(&fragment, |(id, _)| *id).ok()?;
                Some(self.chunk_rows[at].1)
            }
        }
    }

    /// Returns the number of the pack that holds `column`.
    pub fn pack_of(&self, column: &str) -> usize {
        let found = self.stored.schema().fields().find(column);
        let holds = |pack: &Vec<usize>| found.is_some_and(|(position, _)| pack.contains(&position));
        self.packs.iter().position(holds).unwrap_or(0)
    }

    /// Returns whether I/O nodes can compare a vector with the values of `column`: it is not nested, and has one vector per
    /// row rather than a list of them.
    pub fn is_scored_on_io_nodes(&self, column: &str) -> bool {
        let field = self.table.schema().field_with_name(column);
        field.is_ok_and(|field| matches!(field.data_type(), DataType::FixedSizeList(_, _)))
    }

    /// Returns the table's columns that a request names, or all except vectors and blobs if it names none. Columns that
    /// answers may contain in addition (such as `_rowaddr`) may be named, but are left out of the result.
    ///
    /// # Errors
    /// `ColumnNotFound`, or `BadRequest` for a column named twice.
    pub fn columns(&self, names: &[String]) -> Result<Vec<String>> {
        if names.is_empty() {
            return self.default_columns();
        }
        let mut own = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                let problem = format!("names `{name}` twice; name it once");
                return Err(QueryError::BadRequest { field: "columns", problem });
            }
            if !self.is_carried(name) {
                self.table.is_blob(name)?;
                own.push(name.clone());
            }
        }
        Ok(own)
    }

    /// Returns whether `name` is a column that answers may have in addition to the table's own columns.
    pub fn is_carried(&self, name: &str) -> bool {
        CARRIED.contains(&name)
            || (name == RELEVANCE && self.table.schema().field_with_name(name).is_err())
    }

    /// Returns the projection on the columns that a request names, from the cache if possible.
    ///
    /// # Errors
    /// The errors of [`columns`](Self::columns).
    pub fn project(&self, names: &[String]) -> Result<Arc<Projection>> {
        let cached = self.projections.load();
        if let Some((_, projection)) = cached.iter().find(|(known, _)| **known == *names) {
            return Ok(Arc::clone(projection));
        }
        let columns = self.columns(names)?;
        let schema = Self::schema_of(self.table.schema(), &columns)?;
        let projection = Arc::new(Projection::new(columns, schema));
        let stay = cached.len().saturating_sub(self.projections_max - 1);
        let new = (names.into(), Arc::clone(&projection));
        // A projection that another core stores concurrently may be lost; it is then made again.
        self.projections.store(Arc::new(cached[stay..].iter().cloned().chain([new]).collect()));
        Ok(projection)
    }

    fn default_columns(&self) -> Result<Vec<String>> {
        let mut columns = Vec::new();
        for field in self.table.schema().fields() {
            if self.is_by_default(field)? {
                columns.push(field.name().clone());
            }
        }
        Ok(columns)
    }

    /// Returns whether requests that name no columns get the column `field`. They do unless it has vectors or blobs.
    ///
    /// # Errors
    /// `ColumnNotFound`.
    pub fn is_by_default(&self, field: &Field) -> Result<bool> {
        Ok(!is_vector(field.data_type()) && !self.table.is_blob(field.name())?)
    }

    /// Returns the schema of `columns` with the types of `all`.
    fn schema_of(all: &Schema, columns: &[String]) -> Result<SchemaRef> {
        let fields: Vec<Field> = columns
            .iter()
            .map(|name| all.field_with_name(name).cloned())
            .collect::<std::result::Result<_, _>>()?;
        Ok(Arc::new(Schema::new_with_metadata(fields, all.metadata().clone())))
    }

    /// Returns the schema of `columns`, shown or not, with wire types.
    pub fn wire_schema_of(&self, columns: &[String]) -> Result<SchemaRef> {
        Ok(Arc::new(wire_schema(Self::schema_of(self.stored.schema(), columns)?.as_ref())))
    }

    /// Returns whether I/O nodes can score a column: it must be alone in its pack and have one vector per row.
    pub fn can_score_in_place(&self, column: &str) -> bool {
        let schema = self.stored.schema();
        let Some((position, field)) = schema.fields().find(column) else { return false };
        let alone = self.packs.iter().any(|pack| pack.as_slice() == [position]);
        let layout = || PackLayout::new(&[Arc::clone(field)]).ok();
        alone && layout().is_some_and(|layout| layout.vector_type().is_some())
    }
}

/// The names that always stand for columns that answers have in addition to the table's own. [`RELEVANCE`] is not among
/// them, because the table itself may have a column of that name.
const CARRIED: [&str; 3] = [ROW_ADDRESS, DISTANCE, SCORE];

/// Returns whether a column has vectors or lists of vectors. People do not read vectors, and a wide one costs a read of
/// its own, so they are not returned by default. The rule ignores the width, so that the default columns do not depend
/// on it.
fn is_vector(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) => {
            // Lance stores bfloat16 as 2 bytes of binary.
            item.data_type().is_floating() || *item.data_type() == DataType::FixedSizeBinary(2)
        }
        DataType::List(item) | DataType::LargeList(item) => {
            matches!(item.data_type(), DataType::FixedSizeList(..)) && is_vector(item.data_type())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_size_lists_of_floats_are_vectors() {
        let fixed = |item, len| DataType::new_fixed_size_list(item, len, true);
        let list = |item| DataType::new_list(item, true);
        assert!(is_vector(&fixed(DataType::Float32, 2)));
        assert!(is_vector(&fixed(DataType::Float64, 1000)));
        assert!(is_vector(&fixed(DataType::FixedSizeBinary(2), 3)));
        assert!(is_vector(&list(fixed(DataType::Float16, 3))));
        assert!(!is_vector(&fixed(DataType::UInt8, 3)));
        assert!(!is_vector(&fixed(DataType::Utf8, 1000)));
        assert!(!is_vector(&list(DataType::Float32)));
        assert!(!is_vector(&list(list(DataType::Float32))));
    }
}
