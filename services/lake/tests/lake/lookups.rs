//! Look-ups straight through an index, against Lance's own plan for the same keys.

use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Int64Array, LargeStringArray,
    RecordBatch, RecordBatchIterator, StringArray, UInt32Array,
};
use lake::{IndexRequest, Lake, Table, build_index};
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::{UpdateBuilder, WriteMode, WriteParams};
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use crate::fixture::{Kind, PLAIN, Place, STABLE_IDS, lake, write};

/// Rows of the three fragments that tables begin with; three pages of an index.
const FRAGMENTS: [std::ops::Range<u32>; 3] = [0..4_000, 4_000..8_000, 8_000..9_000];

/// Keys of one look-up, few enough for three pages.
const KEYS: usize = 40;

/// Columns of keys; of `row`, each has `number_of(row)` in a form of its own, or null.
const COLUMNS: [&str; 6] = ["text", "large", "number", "small", "binary", "uuid"];

/// Two rows have each, of different fragments or pages; of every eleventh row it is null.
fn number_of(row: u32) -> Option<u32> {
    (!row.is_multiple_of(11)).then_some(row * 7919 % 5_000)
}

/// As a key of `column`.
fn written(column: &str, number: u32) -> String {
    match column {
        "number" => (i64::from(number) - 2_500).to_string(),
        "small" => number.to_string(),
        "binary" => format!("{number:08x}"),
        "uuid" => format!("{number:032x}"),
        _ => format!("k{number:05}"),
    }
}

fn rows(rows: std::ops::Range<u32>) -> RecordBatch {
    let numbers: Vec<_> = rows.clone().map(number_of).collect();
    let text = |number: &Option<u32>| number.map(|number| written("text", number));
    let uuids = numbers.iter().map(|it| it.map(|it| u128::from(it).to_be_bytes()));
    let bytes: Vec<_> = numbers.iter().map(|it| it.map(u32::to_be_bytes)).collect();
    let columns: [(&str, ArrayRef, bool); 8] = [
        ("row", Arc::new(UInt32Array::from_iter_values(rows)), false),
        ("text", Arc::new(numbers.iter().map(text).collect::<StringArray>()), true),
        ("large", Arc::new(numbers.iter().map(text).collect::<LargeStringArray>()), true),
        (
            "number",
            Arc::new(Int64Array::from_iter(
                numbers.iter().map(|it| it.map(|it| i64::from(it) - 2_500)),
            )),
            true,
        ),
        ("small", Arc::new(UInt32Array::from(numbers.clone())), true),
        (
            "binary",
            Arc::new(BinaryArray::from_iter(bytes.iter().map(|it| it.as_ref().map(|it| &it[..])))),
            true,
        ),
        (
            "uuid",
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).unwrap()),
            true,
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(numbers.iter().map(|it| it.map(|it| it > 4_000)))),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

async fn made(uri: &str, kind: Kind) -> Dataset {
    write(uri, &FRAGMENTS.map(rows), kind).await
}

async fn index(lake: &Lake, uri: &str, column: &str) {
    let request = IndexRequest::Scalar { column: column.into() };
    build_index(lake, uri, &request, |_| ()).await.unwrap();
}

/// Numbers of keys: some that nobody has, and some twice.
fn numbers() -> Vec<u32> {
    (0..5_400).step_by(13).chain((0..300).step_by(26)).collect()
}

/// Whether look-ups in `column` go straight through the index; if so they find what Lance's plan finds,
/// and so do those that don't. The rows of [`numbers`].
async fn as_the_scanner(table: &Table, column: &str, is_direct: bool) -> Vec<Option<RowAddr>> {
    let keys: Vec<_> = numbers().iter().map(|number| written(column, *number)).collect();
    let mut all = Vec::new();
    for group in keys.chunks(KEYS).chain([&keys[..1], &keys[..0]]) {
        let planned = table.planned_lookup(Some(column), group).await.unwrap();
        match table.direct_lookup(Some(column), group).await.unwrap() {
            Some(direct) => assert_eq!(direct.await.unwrap(), planned, "{column}"),
            None => assert!(!is_direct, "{column}"),
        }
        assert_eq!(table.direct_lookup(Some(column), group).await.unwrap().is_some(), is_direct);
        all.extend(planned);
    }
    assert_eq!(table.lookup(Some(column), &keys).await.unwrap(), all[..keys.len()], "{column}");
    all.truncate(keys.len());
    all
}

/// By comparing each live row of the three fragments.
fn by_hand(is_live: impl Fn(u32) -> bool) -> Vec<Option<RowAddr>> {
    let address = |row: u32| {
        let fragment = FRAGMENTS.iter().position(|rows| rows.contains(&row)).unwrap();
        RowAddr::new(fragment as u32, row - FRAGMENTS[fragment].start)
    };
    let first = |number| (0..9_000).find(|&row| is_live(row) && number_of(row) == Some(number));
    numbers().into_iter().map(|number| first(number).map(address)).collect()
}

#[tokio::test]
async fn keys_of_all_types_as_the_scanner_finds_them() {
    let place = Place::new();
    let mut dataset = made(&place.uri(), PLAIN).await;
    let lake = lake();
    for column in COLUMNS.into_iter().chain(["flag"]) {
        index(&lake, &place.uri(), column).await;
    }
    dataset.checkout_latest().await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    for column in COLUMNS {
        assert_eq!(as_the_scanner(&table, column, true).await, by_hand(|_| true), "{column}");
    }
    // Of those that are there twice the first, or the second; and a whole fragment.
    dataset.delete("row % 10 = 7 OR row < 1000 OR (row >= 4000 AND row < 8000)").await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(table.fragments().len(), 2);
    let is_live =
        |row: u32| !(row + 3).is_multiple_of(10) && row >= 1_000 && !FRAGMENTS[1].contains(&row);
    for column in COLUMNS {
        assert_eq!(as_the_scanner(&table, column, true).await, by_hand(is_live), "{column}");
    }
    let flags = ["true", "false"].map(str::to_owned);
    let direct = table.direct_lookup(Some("flag"), &flags).await.unwrap().unwrap().await.unwrap();
    assert_eq!(direct, table.planned_lookup(Some("flag"), &flags).await.unwrap());
    assert!(direct.iter().all(Option::is_some), "whichever of thousands");
    // Without an index, and with more keys than are searched for one by one.
    assert!(table.direct_lookup(Some("row"), &["1".into()]).await.unwrap().is_none());
    let many: Vec<_> = (0..200).map(|number| written("text", number)).collect();
    assert!(table.direct_lookup(Some("text"), &many).await.unwrap().is_none());
    let few = &many[..KEYS];
    assert_eq!(
        table.lookup(Some("text"), &many).await.unwrap()[..KEYS],
        table.lookup(Some("text"), few).await.unwrap()
    );
}

#[tokio::test]
async fn a_column_of_nulls_has_no_keys() {
    let place = Place::new();
    let nulls: ArrayRef = Arc::new(StringArray::new_null(5_000));
    let batch = RecordBatch::try_from_iter_with_nullable([("text", nulls, true)]).unwrap();
    write(&place.uri(), &[batch], PLAIN).await;
    let lake = lake();
    index(&lake, &place.uri(), "text").await;
    let table = lake.open(&place.uri()).await.unwrap();
    assert!(as_the_scanner(&table, "text", true).await.iter().all(Option::is_none));
}

#[tokio::test]
async fn whatever_becomes_of_the_table_keys_are_found_as_by_the_scanner() {
    let place = Place::new();
    let uri = place.uri();
    made(&uri, PLAIN).await;
    let lake = lake();
    let opened = async || lake.open(&uri).await.unwrap();
    let dataset = async || Dataset::open(&uri).await.unwrap();
    as_the_scanner(&opened().await, "text", false).await;
    index(&lake, &uri, "text").await;
    let first = opened().await;
    let before = as_the_scanner(&first, "text", true).await;

    // Rows of which the index has heard nothing, with keys that nobody had.
    let batch = rows(9_000..9_000);
    let more =
        RecordBatch::try_from_iter_with_nullable(batch.schema().fields().iter().map(|field| {
            let column: ArrayRef = match field.name().as_str() {
                "row" => Arc::new(UInt32Array::from(vec![9_000, 9_001])),
                "text" => Arc::new(StringArray::from(vec!["k05200", "k00013"])),
                _ => arrow::array::new_null_array(field.data_type(), 2),
            };
            (field.name().clone(), column, field.is_nullable())
        }))
        .unwrap();
    let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
    let reader = RecordBatchIterator::new([Ok(more.clone())], more.schema());
    Dataset::write(reader, &uri, Some(params)).await.unwrap();
    let new = numbers().iter().position(|number| *number == 5_200).unwrap();
    let found = as_the_scanner(&opened().await, "text", false).await;
    assert_eq!((before[new], found[new]), (None, Some(RowAddr::new(3, 0))));

    // A segment of its own for them, and one for all.
    dataset().await.optimize_indices(&OptimizeOptions::append()).await.unwrap();
    assert_eq!(as_the_scanner(&opened().await, "text", false).await, found);
    dataset().await.optimize_indices(&OptimizeOptions::merge(10)).await.unwrap();
    assert_eq!(as_the_scanner(&opened().await, "text", true).await, found);

    // Rows that change are written anew, and the index has them where they were.
    let update = UpdateBuilder::new(Arc::new(dataset().await));
    let update = update.update_where("row < 2000").unwrap().set("text", "concat(text, 'x')");
    update.unwrap().build().unwrap().execute().await.unwrap();
    as_the_scanner(&opened().await, "text", false).await;
    let changed = [format!("{}x", written("text", number_of(1).unwrap()))];
    assert!(opened().await.lookup(Some("text"), &changed).await.unwrap()[0].is_some());
    index(&lake, &uri, "text").await;
    let found = as_the_scanner(&opened().await, "text", true).await;

    // Rows that move.
    let into = |rows| CompactionOptions { target_rows_per_fragment: rows, ..Default::default() };
    compact_files(&mut dataset().await, into(2_000), None).await.unwrap();
    let moved = as_the_scanner(&opened().await, "text", true).await;
    assert_ne!(moved, found, "other addresses");
    let later = CompactionOptions { defer_index_remap: true, ..into(100_000) };
    compact_files(&mut dataset().await, later, None).await.unwrap();
    as_the_scanner(&opened().await, "text", false).await;

    assert_eq!(as_the_scanner(&first, "text", true).await, before, "a version never changes");
}

#[tokio::test]
async fn rows_with_stable_ids_go_the_long_way() {
    let place = Place::new();
    made(&place.uri(), STABLE_IDS).await;
    let lake = lake();
    index(&lake, &place.uri(), "text").await;
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(as_the_scanner(&table, "text", false).await, by_hand(|_| true));
}
