//! The tables that are damaged. They are small, and together have most kinds of files and indexes that nodes read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, LargeBinaryArray, ListArray, RecordBatch,
    StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Int8Type, Int32Type, Schema};
use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;
use lake::{IndexRequest, VectorIndex, VectorIndexKind, build_index};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_file::version::LanceFileVersion;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};

use crate::fixture::{KINDS, TableKind, lake, rows, write as write_rows, write_with_history};

/// Number of rows of a table with indexes.
const ROWS: usize = 600;

/// The tables' names, which are also the names of their folders.
const NAMES: [&str; 6] = ["indexed", "quantized", "nested", "older", "legacy", "stable"];

/// Writes all tables into `folder`.
pub fn write(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let uri = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    runtime.block_on(async {
        indexed(&uri("indexed")).await;
        quantized(&uri("quantized")).await;
        nested(&uri("nested")).await;
        write_with_history(&uri("older"), KINDS[1]).await;
        scalar(&uri("older"), "id", BuiltinIndexType::BTree).await;
        write_with_history(&uri("legacy"), KINDS[0]).await;
        write_with_history(&uri("stable"), KINDS[2]).await;
        text(&uri("stable")).await;
    });
}

/// Copies one of the tables to a folder in `to`. Returns the copy's path.
pub fn copy(folder: &Path, to: &Path, rng: &mut StdRng) -> PathBuf {
    // The first four tables are twice as likely, because they have the most kinds of files.
    let name = NAMES[rng.random_range(0..NAMES.len() + 4) % NAMES.len()];
    let (from, to) = (folder.join(name), to.join(name));
    for file in files(&from) {
        let new = to.join(file.strip_prefix(&from).unwrap());
        std::fs::create_dir_all(new.parent().unwrap()).unwrap();
        std::fs::copy(file, new).unwrap();
    }
    to
}

/// Returns all files in `folder`, sorted by path.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Writes a table in two fragments with scalar indexes of five kinds, and a full-text index.
async fn indexed(uri: &str) {
    let more = |from: usize, to: usize| {
        let base = rows(from, to);
        let tags: DictionaryArray<Int8Type> =
            (from..to).map(|i| Some(["red", "green", "blue"][i % 3])).collect();
        let labels = ListArray::from_iter_primitive::<Int32Type, _, _>(
            (from..to).map(|i| Some((0..i % 4).map(|l| Some(l as i32)))),
        );
        let repeated = Int32Array::from_iter_values((from..to).map(|i| (i / 50) as i32));
        let flags: BooleanArray = (from..to).map(|i| Some(i % 7 == 0)).collect();
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        for (field, column) in base.schema().fields().iter().zip(base.columns()) {
            columns.push((field.name().clone(), Arc::clone(column)));
        }
        columns.push(("tag".into(), Arc::new(tags)));
        columns.push(("labels".into(), Arc::new(labels)));
        columns.push(("repeated".into(), Arc::new(repeated)));
        columns.push(("flag".into(), Arc::new(flags)));
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let kind = TableKind { version: LanceFileVersion::V2_2, stable_row_ids: false };
    write_rows(uri, &[more(0, 400), more(400, ROWS)], kind).await;
    text(uri).await;
    let key = IndexRequest::Key { column: "id".into(), replace: false };
    build_index(&lake(), uri, &key, |_| ()).await.unwrap();
    for (column, kind) in [
        ("repeated", BuiltinIndexType::Bitmap),
        ("labels", BuiltinIndexType::LabelList),
        ("name", BuiltinIndexType::NGram),
        ("flag", BuiltinIndexType::ZoneMap),
    ] {
        scalar(uri, column, kind).await;
    }
    let mut dataset = Dataset::open(uri).await.unwrap();
    // One deletion file for each fragment. Both are arrays, because Lance writes a bitmap only for about 5,000 deleted
    // rows or more.
    dataset.delete("id < 5 OR (id >= 420 AND id < 590 AND id % 2 = 0)").await.unwrap();
}

/// Writes a table with every kind of vector index, each on a column of its own.
async fn quantized(uri: &str) {
    let batch = rows(0, ROWS);
    let mut columns: Vec<(String, ArrayRef)> = vec![("id".into(), Arc::clone(batch.column(0)))];
    for name in ["pq", "rq", "hnsw"] {
        columns.push((name.into(), Arc::clone(batch.column(3))));
    }
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let kind = TableKind { version: LanceFileVersion::V2_1, stable_row_ids: false };
    write_rows(uri, &[batch], kind).await;
    for (column, kind) in [
        ("pq", VectorIndexKind::IvfPq),
        ("rq", VectorIndexKind::IvfRq),
        ("hnsw", VectorIndexKind::IvfHnswSq),
    ] {
        let index =
            VectorIndex { column: column.into(), kind, partitions: Some(3), ..Default::default() };
        build_index(&lake(), uri, &IndexRequest::Vector(index), |_| ()).await.unwrap();
    }
}

/// Writes a table with structs, lists, blobs, columns that compress well, and constants.
async fn nested(uri: &str) {
    let count = 2_000;
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..count));
    let runs: ArrayRef = Arc::new(Int32Array::from_iter_values((0..count).map(|i| i / 300)));
    let constant: ArrayRef = Arc::new(Int32Array::from_iter_values((0..count).map(|_| 7)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..count).map(|i| format!("the same words again and again {}", i % 40)),
    ));
    let zipped: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..count).map(|i| "compress me ".repeat(i as usize % 9)),
    ));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..count).map(|i| (i % 11 != 0).then(|| (0..i % 5).map(Some))),
    ));
    let inner = Field::new("inner", DataType::Int32, true);
    let structs: ArrayRef = Arc::new(StructArray::from(vec![
        (Arc::new(inner), Arc::clone(&runs)),
        (Arc::new(Field::new("list", lists.data_type().clone(), true)), Arc::clone(&lists)),
    ]));
    let blobs: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(
        (0..count).map(|i| vec![i as u8; i as usize % 50]),
    ));
    let marked = |name: &str, column: &ArrayRef, key: &str, value: &str| {
        Field::new(name, column.data_type().clone(), true)
            .with_metadata(HashMap::from([(key.to_owned(), value.to_owned())]))
    };
    let plain = |name: &str, column: &ArrayRef| Field::new(name, column.data_type().clone(), true);
    let schema = Schema::new(vec![
        plain("id", &ids),
        plain("runs", &runs),
        plain("constant", &constant),
        plain("text", &texts),
        marked("zipped", &zipped, "lance-encoding:compression", "zstd"),
        marked("squeezed", &zipped, "lance-encoding:compression", "lz4"),
        plain("lists", &lists),
        plain("structs", &structs),
        marked("blob", &blobs, "lance-encoding:blob", "true"),
    ]);
    let columns = vec![ids, runs, constant, texts, zipped.clone(), zipped, lists, structs, blobs];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let kind = TableKind { version: LanceFileVersion::V2_1, stable_row_ids: false };
    write_rows(uri, &[batch], kind).await;
}

async fn text(uri: &str) {
    let request = IndexRequest::Text { column: "text".into(), positions: true };
    build_index(&lake(), uri, &request, |_| ()).await.unwrap();
}

async fn scalar(uri: &str, column: &str, kind: BuiltinIndexType) {
    let mut dataset = Dataset::open(uri).await.unwrap();
    let index_type = match kind {
        BuiltinIndexType::Bitmap => IndexType::Bitmap,
        BuiltinIndexType::LabelList => IndexType::LabelList,
        BuiltinIndexType::NGram => IndexType::NGram,
        BuiltinIndexType::ZoneMap => IndexType::ZoneMap,
        _ => IndexType::BTree,
    };
    let params = ScalarIndexParams::for_builtin(kind);
    dataset.create_index(&[column], index_type, None, &params, false).await.unwrap();
}
