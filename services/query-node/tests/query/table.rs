//! Tables for the tests, and their contents.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, DictionaryArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch,
    RecordBatchIterator, StringArray,
};
use arrow_schema::{DataType, Field};
use lake::{IndexRequest, Lake, LakeOptions, Metric, VectorIndex, VectorIndexKind, build_index};
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

/// The dimension of the vectors. A vector has 320 bytes, so its column has a pack of its own.
pub const DIMENSION: usize = 80;

/// The number of rows in the first fragment. The second one has the remaining rows.
pub const FIRST: i64 = 2000;
pub const ROWS: i64 = 3000;

/// Returns whether a row exists: rows whose id ends in 7 are deleted.
pub fn is_live(id: i64) -> bool {
    id % 10 != 7
}

pub fn live() -> impl Iterator<Item = i64> {
    (0..ROWS).filter(|&id| is_live(id))
}

pub fn address_of(id: i64) -> RowAddr {
    match id {
        0..FIRST => RowAddr::new(0, id as u32),
        _ => RowAddr::new(1, (id - FIRST) as u32),
    }
}

pub fn key(id: i64) -> String {
    format!("row-{id}")
}

/// Returns the vector of a row. The vectors form fifty loose clusters.
pub fn vector(id: i64) -> Vec<f32> {
    let mut heap = StdRng::seed_from_u64(id as u64 % 50);
    let mut own = StdRng::seed_from_u64(1000 + id as u64);
    let near = |_| heap.random_range(-1.0..1.0f32) + own.random_range(-0.4..0.4f32);
    (0..DIMENSION).map(near).collect()
}

const WORDS: [&str; 5] = ["oak", "birch", "maple", "willow", "alder"];

pub fn text(id: i64) -> String {
    format!("{} trees by the river", WORDS[id as usize % 5])
}

pub fn tag(id: i64) -> String {
    format!("tag-{}", id % 3)
}

/// Returns rows with the columns `id`, `key`, `text`, `tag` (a dictionary) and `vector`.
pub fn rows(ids: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let keys: StringArray = ids.clone().map(|id| Some(key(id))).collect();
    let texts: StringArray = ids.clone().map(|id| Some(text(id))).collect();
    let tags: Vec<String> = ids.clone().map(tag).collect();
    let tags: DictionaryArray<Int8Type> = tags.iter().map(String::as_str).collect();
    let values = Float32Array::from_iter_values(ids.clone().flat_map(vector));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, Arc::new(values), None);
    let columns: [(&str, ArrayRef, bool); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids)), false),
        ("key", Arc::new(keys), false),
        ("text", Arc::new(texts), true),
        ("tag", Arc::new(tags), true),
        ("vector", Arc::new(vectors), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A table in a temporary folder.
pub struct TestTable {
    _folder: TempDir,
    pub uri: String,
}

impl TestTable {
    pub fn nowhere() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        Self { _folder: folder, uri }
    }

    /// Creates a table of two fragments with deleted rows and no index.
    pub async fn plain() -> Self {
        let table = Self::nowhere();
        table.fill().await;
        table
    }

    pub async fn fill(&self) {
        self.append(0..FIRST).await;
        self.append(FIRST..ROWS).await;
        self.delete("id % 10 = 7").await;
    }

    pub async fn delete(&self, filter: &str) {
        Dataset::open(&self.uri).await.unwrap().delete(filter).await.unwrap();
    }

    /// Creates a table like [`plain`](Self::plain), with indexes on vector, text and key.
    pub async fn indexed(kind: VectorIndexKind, metric: Metric) -> Self {
        let table = Self::plain().await;
        let vector = VectorIndex {
            column: "vector".into(),
            kind,
            metric,
            partitions: Some(16),
            ..Default::default()
        };
        table.index(IndexRequest::Vector(vector)).await;
        table.index(IndexRequest::Text { column: "text".into(), positions: true }).await;
        table.index(IndexRequest::Key { column: "key".into(), replace: false }).await;
        table
    }

    /// Creates a table with the rows of `batch`.
    pub async fn of(batch: RecordBatch) -> Self {
        let table = Self::nowhere();
        table.write(batch).await;
        table
    }

    pub async fn append(&self, ids: std::ops::Range<i64>) {
        self.write(rows(ids)).await;
    }

    async fn write(&self, batch: RecordBatch) {
        write(&self.uri, batch).await;
    }

    pub async fn index(&self, request: IndexRequest) {
        build_index(&lake(), &self.uri, &request, |_| {}).await.unwrap();
    }
}

/// Appends rows to the table at `uri`, or creates it.
pub async fn write(uri: &str, batch: RecordBatch) {
    let exists = std::fs::exists(uri).unwrap();
    let mode = if exists { WriteMode::Append } else { WriteMode::Create };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let params = WriteParams { mode, ..Default::default() };
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

pub fn lake() -> Lake {
    Lake::new(LakeOptions::default())
}
