//! Tables for the tests, written through Lance.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch, RecordBatchIterator,
    StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use lake::{Lake, LakeOptions};
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

/// A folder that goes away, and the URI of a table in it.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
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

/// How a table is written.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub version: LanceFileVersion,
    pub stable_row_ids: bool,
}

pub const KINDS: [Kind; 5] = [
    Kind { version: LanceFileVersion::Legacy, stable_row_ids: false },
    Kind { version: LanceFileVersion::V2_0, stable_row_ids: false },
    Kind { version: LanceFileVersion::V2_1, stable_row_ids: true },
    Kind { version: LanceFileVersion::V2_2, stable_row_ids: true },
    Kind { version: LanceFileVersion::V2_2, stable_row_ids: false },
];

/// The same without the first, Lance's legacy format, which stores no nulls in numbers and wants
/// every column in every fragment.
pub fn modern_kinds() -> &'static [Kind] {
    &KINDS[1..]
}

pub const PLAIN: Kind = Kind { version: LanceFileVersion::Stable, stable_row_ids: false };
pub const STABLE_IDS: Kind = Kind { version: LanceFileVersion::Stable, stable_row_ids: true };

/// Rows `from..to`: `id`, `name` (`name-7`; null for every tenth), `text`, `vector`.
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

/// Writes `batches`, each as a fragment of its own (or more).
pub async fn write(uri: &str, batches: &[RecordBatch], kind: Kind) -> Dataset {
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

/// Three fragments of 300, 200 and 100 rows; ids 50 to 59, 300 and 599 and all that end in 7 are
/// deleted. Before the last fragment came, `added` (id * 2) was added; of its 100 rows it is null.
pub async fn lived_in(uri: &str, kind: Kind) -> Dataset {
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

/// Where row `id` of [`lived_in`] is.
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

/// All column names of a table.
pub fn all(table: &lake::Table) -> Vec<String> {
    table.schema().fields().iter().map(|field| field.name().clone()).collect()
}

pub fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| (*column).to_owned()).collect()
}
