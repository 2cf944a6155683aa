//! Tests keys of every kind except integers and texts, by single calls and on a stream. They are looked up in the key
//! index, loaded or built, through a BTREE, and by a scan.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BinaryArray, Date32Array, Date64Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt32Array,
    UInt64Array,
};
use arrow_buffer::i256;
use arrow_cast::display::array_value_to_string;
use arrow_schema::{Field, Schema};
use arrow_select::take::take;
use bytesize::ByteSize;
use client::fetch::Instant;
use client::query::{GottenRows, LookupOpen, keys_of};
use key_runs::write_runs;
use lake::{IndexRequest, Lake, LakeOptions, build_index};
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use tempfile::TempDir;
use wire::query::lookup_batch::Keys;
use wire::query::{GetRequest, Integers};
use wire::{Fault, Reason};

use crate::cluster::{Cluster, folder, soon};

/// The number of keys of each type. Only keys with an even number have a row.
const KEYS: i64 = 160;

/// The number of the first key in the second data file.
const SECOND: i64 = 120;

/// Returns the keys of a type.
fn keys(name: &str) -> ArrayRef {
    let numbers = || 0..KEYS;
    // Use steps that leave no simple pattern in the lower digits.
    let spread = |number: i64| number * 7_919 - 1_000_000;
    let bytes = |number: i64, len: usize| {
        let number = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        number.to_be_bytes()[16 - len..].to_vec()
    };
    match name {
        "date32" => Arc::new(Date32Array::from_iter_values(numbers().map(|n| n as i32 * 31 - 900))),
        "date64" => Arc::new(Date64Array::from_iter_values(
            numbers().map(|number| (number * 31 - 900) * 86_400_000),
        )),
        "decimal128" => {
            let values = numbers().map(|number| i128::from(spread(number)) << 40);
            let array = Decimal128Array::from_iter_values(values);
            Arc::new(array.with_precision_and_scale(30, 3).unwrap())
        }
        "decimal256" => {
            let values = numbers().map(|n| i256::from_i128(i128::from(spread(n)) << 70));
            let array = Decimal256Array::from_iter_values(values);
            Arc::new(array.with_precision_and_scale(50, 10).unwrap())
        }
        "uuid" => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(numbers().map(|n| bytes(n, 16))).unwrap())
        }
        "fixed" => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(numbers().map(|n| bytes(n, 5))).unwrap())
        }
        "binary" => {
            let values = numbers().map(|number| bytes(number, 4 + number as usize % 9));
            Arc::new(BinaryArray::from_iter_values(values))
        }
        "seconds" => Arc::new(TimestampSecondArray::from_iter_values(numbers().map(spread))),
        "micros" => Arc::new(TimestampMicrosecondArray::from_iter_values(numbers().map(spread))),
        "zoned" => {
            let values = numbers().map(|number| spread(number) << 30);
            Arc::new(TimestampNanosecondArray::from_iter_values(values).with_timezone("UTC"))
        }
        other => unreachable!("{other}"),
    }
}

const NAMES: [&str; 10] = [
    "date32",
    "date64",
    "decimal128",
    "decimal256",
    "uuid",
    "fixed",
    "binary",
    "seconds",
    "micros",
    "zoned",
];

/// Returns a key as people write it.
fn text(keys: &ArrayRef, at: usize) -> String {
    let text = array_value_to_string(keys, at).unwrap();
    match text.len() {
        // Write it as a UUID.
        32 if keys.as_fixed_size_binary_opt().is_some() => format!(
            "{}-{}-{}-{}-{}",
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..]
        ),
        _ => text,
    }
}

/// Returns the keys with these numbers.
fn some(keys: &ArrayRef, numbers: impl Iterator<Item = i64>) -> ArrayRef {
    let numbers = UInt32Array::from_iter_values(numbers.map(|number| number as u32));
    take(keys, &numbers, None).unwrap()
}

async fn write(uri: &str, keys: ArrayRef, ids: impl Iterator<Item = i64>) {
    let columns: [(&str, ArrayRef); 2] =
        [("k", keys), ("id", Arc::new(Int64Array::from_iter_values(ids)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let exists = std::fs::exists(uri).unwrap();
    let mode = if exists { WriteMode::Append } else { WriteMode::Create };
    let params = WriteParams { mode, ..Default::default() };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// A table for each type of key, named after it.
struct Tables {
    _folder: TempDir,
    places: Vec<(&'static str, PathBuf)>,
}

impl Tables {
    /// Writes two data files for each table. A BTREE covers only the first.
    async fn write() -> Self {
        let folder = folder();
        let place = |name| (name, folder.path().join(name));
        let places: Vec<_> = NAMES.into_iter().map(place).collect();
        for (name, place) in &places {
            let (uri, keys) = (place.to_str().unwrap(), keys(name));
            let even = |range: std::ops::Range<i64>| range.filter(|number| number % 2 == 0);
            write(uri, some(&keys, even(0..SECOND)), even(0..SECOND)).await;
            let request = IndexRequest::Key { column: "k".into(), replace: false };
            build_index(&lake(), uri, &request, |_| {}).await.unwrap();
            write(uri, some(&keys, even(SECOND..KEYS)), even(SECOND..KEYS)).await;
        }
        Self { _folder: folder, places }
    }

    async fn serve(&self, key_index: ByteSize) -> Cluster {
        let tables: Vec<_> = self.places.iter().map(|(name, uri)| (*name, uri.as_path())).collect();
        Cluster::start_with(1, &tables, |_, query| query.key_index = key_index).await
    }
}

fn lake() -> Lake {
    Lake::new(LakeOptions::default())
}

fn ids(rows: Option<GottenRows>) -> Vec<i64> {
    match rows {
        Some(GottenRows::Arrow(rows)) => rows["id"].as_primitive::<Int64Type>().values().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Gets all keys of a type, in batches of `batch`, and compares the rows with a plain model.
async fn check(cluster: &Cluster, name: &str, batch: usize) {
    let keys = keys(name);
    let order: Vec<i64> = (0..KEYS).map(|number| number * 77 % KEYS).collect();
    let rows: HashMap<String, i64> =
        (0..KEYS).step_by(2).map(|number| (text(&keys, number as usize), number)).collect();
    assert_eq!(rows.len() as i64, KEYS / 2, "{name}");
    let columns = vec!["id".to_owned()];
    let open = LookupOpen { table: name.into(), columns: columns.clone(), ..Default::default() };
    let lookup = cluster.client.lookups().await.unwrap().open(open).await.unwrap();
    for numbers in order.chunks(batch) {
        let keys = some(&keys, numbers.iter().copied());
        let texts: Vec<String> = (0..keys.len()).map(|at| text(&keys, at)).collect();
        let found: Vec<i64> = texts.iter().filter_map(|text| rows.get(text).copied()).collect();
        let absent: Vec<u32> = (0..)
            .zip(&texts)
            .filter(|(_, text)| !rows.contains_key(*text))
            .map(|it| it.0)
            .collect();
        let (table, columns) = (name.to_owned(), columns.clone());
        let request = GetRequest { table, keys: texts, columns, ..Default::default() };
        let answer = cluster.client.get(request).await.unwrap();
        assert_eq!((ids(Some(answer.rows)), &answer.not_found), (found.clone(), &absent), "{name}");
        let answer = lookup.get(keys_of(&keys).unwrap()).await.unwrap();
        assert_eq!((ids(answer.rows), answer.not_found), (found, absent), "{name}");
    }
}

/// Waits until the key index covers a table. Returns how many of its runs were loaded.
async fn covered(cluster: &Cluster, name: &str) -> u32 {
    let deadline = soon();
    loop {
        check(cluster, name, 200).await;
        let described = cluster.client.describe(name, 0).await.unwrap().response;
        match described.key_index {
            Some(index) if index.missing_rows == 0 => return index.loaded_runs,
            state => assert!(Instant::now() < deadline, "{name}: {state:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_are_found_in_every_way() {
    let tables = Tables::write().await;
    // Look keys up through the BTREE, and by a scan of the file that it does not cover.
    let cluster = tables.serve(ByteSize::b(0)).await;
    for name in NAMES {
        check(&cluster, name, 40).await;
        check(&cluster, name, 100).await;
    }
    cluster.stop().await;
    // Look keys up in a key index that the node builds.
    let cluster = tables.serve(ByteSize::mib(64)).await;
    for name in NAMES {
        assert_eq!(covered(&cluster, name).await, 0);
        check(&cluster, name, 7).await;
    }
    cluster.stop().await;
    // Look keys up in a key index that the node loads.
    for (name, place) in &tables.places {
        let written = write_runs(&lake(), place.to_str().unwrap(), "k", |_| ()).await.unwrap();
        assert_eq!((written.rows, written.written), (KEYS as u64 / 2, 1), "{name}");
    }
    let cluster = tables.serve(ByteSize::mib(64)).await;
    for name in NAMES {
        assert_eq!(covered(&cluster, name).await, 1, "{name}");
        check(&cluster, name, 40).await;
    }
    cluster.stop().await;
    // Look keys up through the BTREE alone.
    for (_, place) in &tables.places {
        let request = IndexRequest::Key { column: "k".into(), replace: false };
        build_index(&lake(), place.to_str().unwrap(), &request, |_| {}).await.unwrap();
    }
    let cluster = tables.serve(ByteSize::b(0)).await;
    for name in NAMES {
        check(&cluster, name, 20).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integer_is_not_the_key_that_has_its_bits() {
    let tables = folder();
    let all: [(&str, ArrayRef); 2] = [
        ("signed", Arc::new(Int64Array::from(vec![-1, 7]))),
        ("unsigned", Arc::new(UInt64Array::from(vec![u64::MAX, 7]))),
    ];
    let place = |name: &str| tables.path().join(name);
    for (name, keys) in &all {
        let (place, request) =
            (place(name), IndexRequest::Key { column: "k".into(), replace: false });
        write(place.to_str().unwrap(), Arc::clone(keys), 1..3).await;
        build_index(&lake(), place.to_str().unwrap(), &request, |_| {}).await.unwrap();
    }
    let places = all.each_ref().map(|(name, _)| place(name));
    let served = [("signed", places[0].as_path()), ("unsigned", places[1].as_path())];
    let cluster = Cluster::start(1, &served).await;
    let stream = cluster.client.lookups().await.unwrap();
    for (table, _) in &all {
        let open = LookupOpen {
            table: (*table).into(),
            key_column: "k".into(),
            columns: vec!["id".into()],
            ..Default::default()
        };
        let lookup = stream.open(open).await.unwrap();
        for (of, keys) in &all {
            let answer = lookup.get(keys_of(keys).unwrap()).await.unwrap();
            let expected = if table == of { (vec![1, 2], vec![]) } else { (vec![2], vec![0]) };
            assert_eq!((ids(answer.rows), answer.not_found), expected, "{of} in {table}");
        }
    }
    cluster.stop().await;
}

#[track_caller]
fn assert_bad(fault: Fault, says: &str) {
    assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    assert!(fault.message.contains(says), "`{fault}` doesn't say `{says}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_another_type_and_of_several_columns_are_refused() {
    let tables = Tables::write().await;
    let several = folder();
    let uri = several.path().join("several");
    // Declare both columns as the primary key, as another tool may do.
    let declared = [("lance-schema:unenforced-primary-key".to_owned(), "true".to_owned())];
    let field = |name: &str| {
        Field::new(name, arrow_schema::DataType::Int64, false)
            .with_metadata(declared.clone().into())
    };
    let schema = Arc::new(Schema::new(vec![field("k"), field("id")]));
    let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column(), column()]).unwrap();
    Dataset::write(RecordBatchIterator::new([Ok(batch)], schema), uri.to_str().unwrap(), None)
        .await
        .unwrap();
    let mut all: Vec<_> = tables.places.iter().map(|(name, uri)| (*name, uri.as_path())).collect();
    all.push(("several", &uri));
    let cluster = Cluster::start(1, &all).await;

    let get = async |table: &str, key: &str, key_column: &str| {
        let (table, keys, key_column) = (table.into(), vec![key.into()], key_column.into());
        let request = GetRequest { table, keys, key_column, ..Default::default() };
        cluster.client.get(request).await.map(drop)
    };
    for (table, key, says) in [
        ("date32", "5", "\"5\" can't be a key in column \"k\": the column holds dates, written"),
        ("date64", "25.11.2026", "dates, written like 2026-11-25"),
        ("decimal128", "1.0001", "at most 30 digits, 3 of them after the point"),
        ("uuid", "0011", "16 bytes a key, this has 2"),
        ("seconds", "2026-11-25T08:30:00.5", "at most 0 digits after the point of a second"),
        ("zoned", "soon", "timestamps, written like"),
    ] {
        assert_bad(get(table, key, "").await.unwrap_err(), says);
    }
    let alone = "a key is one column; add a column that combines them";
    assert_bad(get("date32", "2026-11-25", "k,id").await.unwrap_err(), alone);
    assert_bad(get("several", "1", "").await.unwrap_err(), alone);
    get("several", "1", "id").await.unwrap();

    let stream = cluster.client.lookups().await.unwrap();
    for (table, says) in [
        ("date32", "has integers, but the key column is of type Date32; give an Arrow array"),
        ("decimal128", "Decimal128(30, 3); give an Arrow array"),
        ("uuid", "FixedSizeBinary(16); give strings"),
    ] {
        let open = LookupOpen { table: table.into(), ..Default::default() };
        let lookup = stream.open(open).await.unwrap();
        let integers = Keys::Integers(Integers { values: vec![1] });
        assert_bad(lookup.get(integers).await.unwrap_err(), says);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let texts = lookup.get(keys_of(&texts).unwrap()).await;
        assert!(table == "uuid" || texts.is_err(), "{table}");
    }
    let open = LookupOpen { table: "several".into(), ..Default::default() };
    assert_bad(stream.open(open).await.err().unwrap(), alone);
    cluster.stop().await;
}
