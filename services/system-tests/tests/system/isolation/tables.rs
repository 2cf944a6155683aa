//! Test tables. Each row contains its table's name and the version that wrote it. The expected rows of each version are
//! read with Lance.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
    StringArray,
};
use arrow_schema::{DataType, Field};
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};

/// The dimension of the vectors.
pub const DIMENSION: i32 = 8;

/// A table's ids begin at its number times this, so all tables have different ids.
const IDS: i64 = 1_000_000;

/// The id and the text of each row of a version, by row address.
pub type Version = BTreeMap<u64, (i64, String)>;

/// A table. Only one task at a time changes it.
pub struct TestTable {
    pub name: &'static str,
    pub uri: String,
    number: i64,
    versions: Mutex<BTreeMap<u64, Arc<Version>>>,
}

/// Returns the key of a row. Keys are the same in all tables.
pub fn key(id: i64) -> String {
    format!("row-{}", id % IDS)
}

fn vector(id: i64) -> impl Iterator<Item = f32> {
    (0..DIMENSION).map(move |at| id as f32 + at as f32)
}

impl TestTable {
    /// Describes a table that does not exist yet.
    pub fn new(folder: &Path, number: usize, name: &'static str) -> Self {
        let uri = folder.join(name).to_str().unwrap().to_owned();
        Self { name, uri, number: number as i64, versions: Mutex::default() }
    }

    /// Returns the vector of a row, to search for it.
    pub fn query(&self, number: i64) -> Vec<f32> {
        vector(self.number * IDS + number).collect()
    }

    fn latest(&self) -> u64 {
        self.versions.lock().unwrap().keys().next_back().copied().unwrap_or_default()
    }

    /// Adds rows, or replaces all rows.
    pub async fn write(&self, rows: std::ops::Range<i64>, mode: WriteMode) {
        let ids = rows.map(|row| self.number * IDS + row);
        let text = |id| format!("{} {id} of version {}", self.name, self.latest() + 1);
        let values = Float32Array::from_iter_values(ids.clone().flat_map(vector));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let columns: [(&str, ArrayRef); 4] = [
            ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
            ("key", Arc::new(StringArray::from_iter_values(ids.clone().map(key)))),
            ("text", Arc::new(StringArray::from_iter_values(ids.map(text)))),
            ("vector", Arc::new(FixedSizeListArray::new(item, DIMENSION, Arc::new(values), None))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = batch.schema();
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        let params = WriteParams { mode, ..Default::default() };
        let dataset = Dataset::write(reader, self.uri.as_str(), Some(params)).await.unwrap();
        self.note(&dataset).await;
    }

    /// Deletes the rows whose id has this remainder when divided by `of`.
    pub async fn delete(&self, of: i64, remainder: i64) {
        let mut dataset = Dataset::open(&self.uri).await.unwrap();
        dataset.delete(&format!("id % {of} = {remainder}")).await.unwrap();
        self.note(&dataset).await;
    }

    /// Records the rows of a new version.
    async fn note(&self, dataset: &Dataset) {
        let mut scan = dataset.scan();
        scan.with_row_address().project(&["id", "text"]).unwrap();
        let rows = scan.try_into_batch().await.unwrap();
        let addresses = rows["_rowaddr"].as_primitive::<UInt64Type>().values().iter();
        let ids = rows["id"].as_primitive::<Int64Type>().values().iter();
        let texts = rows["text"].as_string::<i32>().iter().flatten().map(str::to_owned);
        let rows = addresses.copied().zip(ids.copied().zip(texts)).collect();
        self.versions.lock().unwrap().insert(dataset.version().version, Arc::new(rows));
    }

    /// Returns the numbers of all versions.
    pub fn versions(&self) -> Vec<u64> {
        self.versions.lock().unwrap().keys().copied().collect()
    }

    /// Returns the rows of a version. Waits for them if needed: a node may open a version before its rows are recorded
    /// here.
    pub async fn version(&self, version: u64) -> Arc<Version> {
        for _ in 0..1000 {
            if let Some(rows) = self.versions.lock().unwrap().get(&version) {
                return Arc::clone(rows);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody has written version {version} of {}", self.name);
    }

    /// Compares rows that a node returned with the expected rows.
    ///
    /// # Errors
    /// The first difference.
    pub async fn check(&self, rows: &RecordBatch, version: u64) -> Result<(), String> {
        let truth = self.version(version).await;
        let addresses = rows["_rowaddr"].as_primitive::<UInt64Type>().values();
        for (at, address) in addresses.iter().enumerate() {
            let Some((id, text)) = truth.get(address) else {
                return Err(format!("version {version} of {} has no row {address}", self.name));
            };
            for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
                let is_own = match field.name().as_str() {
                    "id" => column.as_primitive::<Int64Type>().value(at) == *id,
                    "key" => column.as_string::<i32>().value(at) == key(*id),
                    "text" => column.as_string::<i32>().value(at) == text,
                    "vector" => {
                        let own = column.as_fixed_size_list().value(at);
                        own.as_primitive::<Float32Type>().values().iter().copied().eq(vector(*id))
                    }
                    _ => true,
                };
                if !is_own {
                    let shown = rows.slice(at, 1);
                    return Err(format!("row {id} of {} {version} is {shown:?}", self.name));
                }
            }
        }
        Ok(())
    }
}
