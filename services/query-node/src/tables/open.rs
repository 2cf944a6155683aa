//! One version of a table, with what every request to it needs at hand.

use std::sync::Arc;

use address::{ChunkId, ChunkRows, RowAddr};
use arc_swap::ArcSwap;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lake::Table;
use pack::{PackLayout, plan_packs, wire_schema};
use placement::{TableHash, chunk_rows};

use super::projection::Projection;
use crate::error::{QueryError, Result};

/// Projections that are cached of a table, at most; the oldest makes way.
const PROJECTIONS_MAX: usize = 64;

/// The names that a request gave, and what became of them.
type CachedProjection = (Arc<[String]>, Arc<Projection>);

/// One version of a table. Never changes.
#[derive(Debug)]
pub struct OpenTable {
    /// The name that requests use.
    pub name: String,
    /// The table itself.
    pub table: Table,
    /// As placement knows it.
    pub hash: TableHash,
    /// What the version's rows are made of, so that I/O nodes serve no other table's.
    pub identity: String,
    /// The key column: the configuration's, or the table's own.
    pub key_column: Option<String>,
    /// The columns of each pack, as positions in the schema.
    packs: Vec<Vec<usize>>,
    /// Ascending fragment ids, each with its chunks' size.
    chunk_rows: Vec<(u32, ChunkRows)>,
    /// By the names that requests gave. Read by all cores with each request, and rarely changed.
    projections: ArcSwap<Vec<CachedProjection>>,
}

impl OpenTable {
    /// # Errors
    /// `ColumnNotFound` if the table lacks the key column that the configuration names.
    pub fn new(name: &str, table: Table, key: Option<&str>) -> Result<Self> {
        if let Some(key) = key {
            table.is_blob(key)?;
        }
        let key_column = key.or(table.key_column()).map(str::to_owned);
        let rows_of = |info: &lake::FragmentInfo| {
            (info.id, chunk_rows(info.physical_rows, info.first_file_bytes))
        };
        Ok(Self {
            name: name.to_owned(),
            hash: TableHash::of(table.uri()),
            identity: table.identity(),
            key_column,
            packs: plan_packs(table.schema()).into_iter().map(|pack| pack.0).collect(),
            chunk_rows: table.fragments().iter().map(rows_of).collect(),
            projections: ArcSwap::default(),
            table,
        })
    }

    /// The version's number.
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// The chunk that holds the row at `addr`; chunk 0 of a fragment that the version doesn't have,
    /// whose rows any node will say are missing.
    pub fn chunk_of(&self, addr: RowAddr) -> ChunkId {
        match self.chunk_rows_of(addr.fragment()) {
            Some(rows) => rows.chunk_of(addr),
            None => ChunkId { fragment: addr.fragment(), index: 0 },
        }
    }

    /// How many rows each chunk of a fragment has.
    pub fn chunk_rows_of(&self, fragment: u32) -> Option<ChunkRows> {
        // Ids are mostly consecutive from 0, so the place is usually the id.
        match self.chunk_rows.get(fragment as usize) {
            Some((id, rows)) if *id == fragment => Some(*rows),
            _ => {
                let at = self.chunk_rows.binary_search_by_key(&fragment, |(id, _)| *id).ok()?;
                Some(self.chunk_rows[at].1)
            }
        }
    }

    /// The number of the pack that holds the column at `position` of the schema.
    pub fn pack_of(&self, position: usize) -> usize {
        self.packs.iter().position(|pack| pack.contains(&position)).unwrap_or(0)
    }

    /// The columns that a request names; all but vectors and blobs if it names none. What answers carry
    /// anyway (`_rowaddr` and the like) may be named, and is left out here: alone it means no column.
    ///
    /// # Errors
    /// `ColumnNotFound`, and a column named twice.
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
            if !CARRIED.contains(&name.as_str()) {
                self.table.is_blob(name)?;
                own.push(name.clone());
            }
        }
        Ok(own)
    }

    /// The same, with what requests for them need.
    ///
    /// # Errors
    /// As [`columns`](Self::columns).
    pub fn project(&self, names: &[String]) -> Result<Arc<Projection>> {
        let cached = self.projections.load();
        if let Some((_, projection)) = cached.iter().find(|(known, _)| **known == *names) {
            return Ok(Arc::clone(projection));
        }
        let columns = self.columns(names)?;
        let schema = self.schema_of(&columns)?;
        let projection = Arc::new(Projection::new(columns, schema));
        let stay = cached.len().saturating_sub(PROJECTIONS_MAX - 1);
        let new = (names.into(), Arc::clone(&projection));
        // One that another core keeps at the same time may be lost, and is made again.
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

    /// Whether a column comes back when a request names none: no vector, no blob.
    ///
    /// # Errors
    /// `ColumnNotFound`.
    pub fn is_by_default(&self, field: &Field) -> Result<bool> {
        Ok(!is_vector(field.data_type()) && !self.table.is_blob(field.name())?)
    }

    /// The schema of `columns`, as the table has them.
    fn schema_of(&self, columns: &[String]) -> Result<SchemaRef> {
        let all = self.table.schema();
        let fields: Vec<Field> = columns
            .iter()
            .map(|name| all.field_with_name(name).cloned())
            .collect::<std::result::Result<_, _>>()?;
        Ok(Arc::new(Schema::new_with_metadata(fields, all.metadata().clone())))
    }

    /// The schema of `columns`, as they travel.
    pub fn wire_schema_of(&self, columns: &[String]) -> Result<SchemaRef> {
        Ok(Arc::new(wire_schema(self.schema_of(columns)?.as_ref())))
    }

    /// Whether I/O nodes can score a column where it is: a pack of its own, of single vectors.
    pub fn can_score_in_place(&self, column: &str) -> bool {
        let schema = self.table.schema();
        let Some((position, field)) = schema.fields().find(column) else { return false };
        let alone = self.packs.iter().any(|pack| pack.as_slice() == [position]);
        let layout = || PackLayout::new(&[Arc::clone(field)]).ok();
        alone && layout().is_some_and(|layout| layout.vector_type().is_some())
    }
}

/// Columns that answers carry beside the table's own.
const CARRIED: [&str; 3] = ["_rowaddr", "_distance", "_score"];

/// Whether a column holds vectors, or lists of vectors. Nobody reads them, and a wide one is a read of
/// its own. The width makes no difference, so that what comes back doesn't depend on it.
fn is_vector(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) => {
            // The latter is bfloat16, as Lance stores it.
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
