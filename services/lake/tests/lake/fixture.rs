//! Tables for the tests, written with Lance.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch, RecordBatchIterator,
    StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use lake::{DistanceHit, Lake, LakeError, LakeOptions, Table, VectorQuery, VectorRoute};
use lance::Dataset;
use lance::dataset::{NewColumnTransform, WriteMode, WriteParams};
use lance_file::version::LanceFileVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

pub const DIMENSION: usize = 16;

pub fn lake() -> Lake {
    Lake::new(LakeOptions::default())
}

/// Returns the nearest rows, nearest first: by the partitions of the column's index if these suffice, otherwise by
/// Lance's scanner.
pub async fn search_vector(
    table: &Table,
    query: &VectorQuery,
) -> Result<Vec<DistanceHit>, LakeError> {
    match table.open_route(query).await? {
        VectorRoute::Direct(search) if search.to_score.is_empty() => search.hits.await,
        _ => table.planned_search(query).await,
    }
}

/// A temporary folder, and the URI of a table in it.
pub struct TablePlace {
    pub folder: TempDir,
}

impl TablePlace {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn uri(&self) -> String {
        self.folder.path().join("table").to_str().unwrap().to_owned()
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// The format and options with which a table is written.
#[derive(Clone, Copy, Debug)]
pub struct TableKind {
    pub version: LanceFileVersion,
    pub stable_row_ids: bool,
}

pub const KINDS: [TableKind; 5] = [
    TableKind { version: LanceFileVersion::Legacy, stable_row_ids: false },
    TableKind { version: LanceFileVersion::V2_0, stable_row_ids: false },
    TableKind { version: LanceFileVersion::V2_1, stable_row_ids: true },
    TableKind { version: LanceFileVersion::V2_2, stable_row_ids: true },
    TableKind { version: LanceFileVersion::V2_2, stable_row_ids: false },
];

/// Returns all kinds but Lance's legacy format, which stores no nulls in numbers and requires every column in every
/// fragment.
pub fn modern_kinds() -> &'static [TableKind] {
    &KINDS[1..]
}

pub const PLAIN: TableKind = TableKind { version: LanceFileVersion::Stable, stable_row_ids: false };
pub const STABLE_IDS: TableKind =
    TableKind { version: LanceFileVersion::Stable, stable_row_ids: true };

/// Returns the rows `from..to` with the columns `id`, `name` (`name-7`; null in every tenth row), `text` and `vector`.
pub fn rows(from: usize, to: usize) -> RecordBatch {
    let ids = Int32Array::from_iter_values((from..to).map(|i| i as i32));
    let names: StringArray =
        (from..to).map(|i| (i % 10 != 0).then(|| format!("name-{i}"))).collect();
    const WORDS: [&str; 5] = ["oak", "birch", "maple", "willow", "ash"];
    let text: StringArray =
        (from..to).map(|i| Some(format!("{} tree number {i}", WORDS[i % 5]))).collect();
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("id", Arc::new(ids), false),
        ("name", Arc::new(names), true),
        ("text", Arc::new(text), true),
        ("vector", Arc::new(vectors(from, to)), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

pub fn vector(i: usize) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(i as u64);
    (0..DIMENSION).map(|_| random.random_range(-1.0..1.0)).collect()
}

fn vectors(from: usize, to: usize) -> FixedSizeListArray {
    let values = Float32Array::from_iter_values((from..to).flat_map(vector));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    FixedSizeListArray::new(item, DIMENSION as i32, Arc::new(values), None)
}

/// Writes each of `batches` as one or more fragments of its own.
pub async fn write(uri: &str, batches: &[RecordBatch], kind: TableKind) -> Dataset {
    let mut dataset = None;
    for batch in batches {
        let params = WriteParams {
            mode: if dataset.is_none() { WriteMode::Create } else { WriteMode::Append },
            data_storage_version: dataset.is_none().then_some(kind.version),
            enable_stable_row_ids: kind.stable_row_ids,
            ..Default::default()
        };
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        dataset = Some(Dataset::write(reader, uri, Some(params)).await.unwrap());
    }
    dataset.unwrap()
}

/// Writes a table with a history: three fragments of 300, 200 and 100 rows. The rows with ids 50 to 59, 300, 599, and
/// all ids that end in 7, are deleted. The column `added` (id * 2) was added before the last fragment was written, and
/// is null in its 100 rows.
pub async fn write_with_history(uri: &str, kind: TableKind) -> Dataset {
    let mut dataset = write(uri, &[rows(0, 300), rows(300, 500)], kind).await;
    let doubled = Int32Array::from_iter((0..500).map(|id| Some(id * 2)));
    let doubled =
        RecordBatch::try_from_iter_with_nullable([("added", Arc::new(doubled) as ArrayRef, true)])
            .unwrap();
    let schema = doubled.schema();
    let added =
        NewColumnTransform::Reader(Box::new(RecordBatchIterator::new([Ok(doubled)], schema)));
    dataset.add_columns(added, None, None).await.unwrap();
    let last = rows(500, 600);
    let last = with_column(&last, "added", Arc::new(Int32Array::new_null(100)));
    let reader = RecordBatchIterator::new([Ok(last.clone())], last.schema());
    let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
    let mut dataset = Dataset::write(reader, uri, Some(params)).await.unwrap();
    dataset.delete("(id >= 50 AND id < 60) OR id = 300 OR id = 599 OR id % 10 = 7").await.unwrap();
    dataset
}

pub fn is_deleted(id: i32) -> bool {
    (50..60).contains(&id) || id == 300 || id == 599 || id % 10 == 7
}

/// Returns the address of row `id` in the table of [`write_with_history`].
pub fn address_of(id: i32) -> address::RowAddr {
    match id {
        0..300 => address::RowAddr::new(0, id as u32),
        300..500 => address::RowAddr::new(1, id as u32 - 300),
        _ => address::RowAddr::new(2, id as u32 - 500),
    }
}

fn with_column(batch: &RecordBatch, name: &str, column: ArrayRef) -> RecordBatch {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
    let mut columns = batch.columns().to_vec();
    columns.push(column);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Returns all column names of a table.
pub fn all(table: &lake::Table) -> Vec<String> {
    table.schema().fields().iter().map(|field| field.name().clone()).collect()
}

pub fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| (*column).to_owned()).collect()
}
