//! Compares direct look-ups in an index with Lance's own plan for the same keys.

use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Int64Array, LargeStringArray,
    RecordBatch, RecordBatchIterator, StringArray, UInt32Array,
};
use arrow::datatypes::Schema;
use futures::FutureExt;
use lake::{IndexRequest, Lake, Table, build_index};
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::{
    MergeInsertBuilder, MergeInsertWriteMode, UpdateBuilder, WhenMatched, WhenNotMatched,
    WriteMode, WriteParams,
};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::optimize::OptimizeOptions;
use lance_index::scalar::ScalarIndexParams;

use crate::fixture::{PLAIN, STABLE_IDS, TableKind, TablePlace, lake, write};
use crate::key_texts::KeyTexts;

/// The rows of the three fragments that tables begin with; an index of them has three pages.
const FRAGMENTS: [std::ops::Range<u32>; 3] = [0..4_000, 4_000..8_000, 8_000..9_000];

/// Number of keys of one look-up, few enough for a direct look-up.
const KEYS: usize = 40;

/// The key columns. In each, a row has `number_of(row)` in the column's form, or null.
const COLUMNS: [&str; 6] = ["text", "large", "number", "small", "binary", "uuid"];

/// Returns the key number of `row`. Most numbers occur in two rows, which are in different fragments. Every eleventh
/// row has none.
fn number_of(row: u32) -> Option<u32> {
    (!row.is_multiple_of(11)).then_some(row * 7919 % 5_000)
}

/// Returns `number` as a key of `column`.
fn key_text(column: &str, number: u32) -> String {
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
    let text = |number: &Option<u32>| number.map(|number| key_text("text", number));
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

async fn create_table(uri: &str, kind: TableKind) -> Dataset {
    write(uri, &FRAGMENTS.map(rows), kind).await
}

async fn index(lake: &Lake, uri: &str, column: &str) {
    let request = IndexRequest::Scalar { column: column.into() };
    build_index(lake, uri, &request, |_| ()).await.unwrap();
}

/// Returns the numbers of the keys to look up: some are in no row, and some are listed twice.
fn numbers() -> Vec<u32> {
    (0..5_400).step_by(13).chain((0..300).step_by(26)).collect()
}

/// Checks that look-ups in `column` are direct if and only if `is_direct`, and that they find the same rows as Lance's
/// plan. Returns the rows of [`numbers`].
async fn compare_to_scanner(table: &Table, column: &str, is_direct: bool) -> Vec<Option<RowAddr>> {
    let keys: Vec<_> = numbers().iter().map(|number| key_text(column, *number)).collect();
    let mut all = Vec::new();
    for group in keys.chunks(KEYS).chain([&keys[..1], &keys[..0]]) {
        let planned = table.planned_lookup_texts(Some(column), group).await.unwrap();
        // This look-up opens the index, and may be direct or not.
        assert_eq!(table.lookup_texts(Some(column), group).await.unwrap(), planned, "{column}");
        let direct = table.direct_lookup_texts(Some(column), group).unwrap();
        assert_eq!(direct.is_some(), is_direct, "{column}");
        if let Some(direct) = direct {
            assert_eq!(direct.await.unwrap(), planned, "{column}");
        }
        all.extend(planned);
    }
    assert_eq!(
        table.lookup_texts(Some(column), &keys).await.unwrap(),
        all[..keys.len()],
        "{column}"
    );
    all.truncate(keys.len());
    all
}

/// Finds the rows of [`numbers`] by comparing each live row of the three fragments.
fn by_hand(is_live: impl Fn(u32) -> bool) -> Vec<Option<RowAddr>> {
    let address = |row: u32| {
        let fragment = FRAGMENTS.iter().position(|rows| rows.contains(&row)).unwrap();
        RowAddr::new(fragment as u32, row - FRAGMENTS[fragment].start)
    };
    let first = |number| (0..9_000).find(|&row| is_live(row) && number_of(row) == Some(number));
    numbers().into_iter().map(|number| first(number).map(address)).collect()
}

#[tokio::test]
async fn keys_of_all_types_are_found_as_by_the_scanner() {
    let place = TablePlace::new();
    let mut dataset = create_table(&place.uri(), PLAIN).await;
    let lake = lake();
    for column in COLUMNS.into_iter().chain(["flag"]) {
        index(&lake, &place.uri(), column).await;
    }
    dataset.checkout_latest().await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    for column in COLUMNS {
        assert_eq!(compare_to_scanner(&table, column, true).await, by_hand(|_| true), "{column}");
    }
    // Delete the first row, the second row or both rows of some keys that two rows have, and a whole fragment.
    dataset.delete("row % 10 = 7 OR row < 1000 OR (row >= 4000 AND row < 8000)").await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(table.fragments().len(), 2);
    let is_live =
        |row: u32| !(row + 3).is_multiple_of(10) && row >= 1_000 && !FRAGMENTS[1].contains(&row);
    for column in COLUMNS {
        assert_eq!(compare_to_scanner(&table, column, true).await, by_hand(is_live), "{column}");
    }
    let flags = ["true", "false"].map(str::to_owned);
    table.lookup_texts(Some("flag"), &flags).await.unwrap();
    let direct = table.direct_lookup_texts(Some("flag"), &flags).unwrap().unwrap().await.unwrap();
    assert_eq!(direct, table.planned_lookup_texts(Some("flag"), &flags).await.unwrap());
    assert!(direct.iter().all(Option::is_some), "any of thousands of rows");
    // Look-ups are not direct without an index, nor with too many keys.
    table.lookup_texts(Some("row"), &["1".into()]).await.unwrap();
    assert!(table.direct_lookup_texts(Some("row"), &["1".into()]).unwrap().is_none());
    let many: Vec<_> = (0..200).map(|number| key_text("text", number)).collect();
    assert!(table.direct_lookup_texts(Some("text"), &many).unwrap().is_none());
    let few = &many[..KEYS];
    assert_eq!(
        table.lookup_texts(Some("text"), &many).await.unwrap()[..KEYS],
        table.lookup_texts(Some("text"), few).await.unwrap()
    );
}

#[tokio::test]
async fn a_column_of_nulls_has_no_keys() {
    let place = TablePlace::new();
    let nulls: ArrayRef = Arc::new(StringArray::new_null(5_000));
    let batch = RecordBatch::try_from_iter_with_nullable([("text", nulls, true)]).unwrap();
    write(&place.uri(), &[batch], PLAIN).await;
    let lake = lake();
    index(&lake, &place.uri(), "text").await;
    let table = lake.open(&place.uri()).await.unwrap();
    assert!(compare_to_scanner(&table, "text", true).await.iter().all(Option::is_none));
}

#[tokio::test]
async fn after_any_change_of_the_table_keys_are_found_as_by_the_scanner() {
    let place = TablePlace::new();
    let uri = place.uri();
    create_table(&uri, PLAIN).await;
    let lake = lake();
    let opened = async || lake.open(&uri).await.unwrap();
    let dataset = async || Dataset::open(&uri).await.unwrap();
    compare_to_scanner(&opened().await, "text", false).await;
    index(&lake, &uri, "text").await;
    let first = opened().await;
    let before = compare_to_scanner(&first, "text", true).await;

    // Add two rows that the index does not cover. The first has a key that no row had.
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
    let found = compare_to_scanner(&opened().await, "text", false).await;
    assert_eq!((before[new], found[new]), (None, Some(RowAddr::new(3, 0))));

    // First a second segment for the new rows, then one segment for all rows.
    dataset().await.optimize_indices(&OptimizeOptions::append()).await.unwrap();
    assert_eq!(compare_to_scanner(&opened().await, "text", false).await, found);
    dataset().await.optimize_indices(&OptimizeOptions::merge(10)).await.unwrap();
    assert_eq!(compare_to_scanner(&opened().await, "text", true).await, found);

    // Updated rows are written elsewhere, while the index has their old addresses.
    let update = UpdateBuilder::new(Arc::new(dataset().await));
    let update = update.update_where("row < 2000").unwrap().set("text", "concat(text, 'x')");
    update.unwrap().build().unwrap().execute().await.unwrap();
    compare_to_scanner(&opened().await, "text", false).await;
    let changed = [format!("{}x", key_text("text", number_of(1).unwrap()))];
    assert!(opened().await.lookup_texts(Some("text"), &changed).await.unwrap()[0].is_some());
    index(&lake, &uri, "text").await;
    compare_to_scanner(&opened().await, "text", true).await;

    // Rewriting a column keeps the rows' addresses: the index has keys that the rows no longer have.
    let batch = rows(9_000..9_000);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["k00013", "new", "newer"]));
    let lines: ArrayRef = Arc::new(UInt32Array::from(vec![8_001, 8_002, 9_000]));
    let fields = ["row", "text"].map(|name| batch.schema().field_with_name(name).unwrap().clone());
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let changes = RecordBatch::try_new(Arc::clone(&schema), vec![lines, texts]).unwrap();
    let mut merge =
        MergeInsertBuilder::try_new(Arc::new(dataset().await), vec!["row".into()]).unwrap();
    merge.write_mode(MergeInsertWriteMode::RewriteColumns);
    merge.when_matched(WhenMatched::UpdateAll).when_not_matched(WhenNotMatched::DoNothing);
    let changes = RecordBatchIterator::new([Ok(changes)], schema);
    merge.try_build().unwrap().execute_reader(changes).await.unwrap();
    compare_to_scanner(&opened().await, "text", false).await;
    let changed = ["new", "newer"].map(str::to_owned);
    let places = opened().await.lookup_texts(Some("text"), &changed).await.unwrap();
    assert_eq!(places, [Some(RowAddr::new(2, 2)), Some(RowAddr::new(3, 0))], "they are not moved");
    index(&lake, &uri, "text").await;
    let found = compare_to_scanner(&opened().await, "text", true).await;
    let direct = opened().await.lookup_texts(Some("text"), &changed).await.unwrap();
    assert_eq!(direct, places);

    // Compaction moves rows.
    let into = |rows| CompactionOptions { target_rows_per_fragment: rows, ..Default::default() };
    compact_files(&mut dataset().await, into(2_000), None).await.unwrap();
    let moved = compare_to_scanner(&opened().await, "text", true).await;
    assert_ne!(moved, found, "other addresses");
    let later = CompactionOptions { defer_index_remap: true, ..into(100_000) };
    compact_files(&mut dataset().await, later, None).await.unwrap();
    compare_to_scanner(&opened().await, "text", false).await;

    assert_eq!(compare_to_scanner(&first, "text", true).await, before, "a version never changes");
}

#[tokio::test]
async fn rows_with_stable_ids_are_looked_up_through_the_scanner() {
    let place = TablePlace::new();
    create_table(&place.uri(), STABLE_IDS).await;
    let lake = lake();
    index(&lake, &place.uri(), "text").await;
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(compare_to_scanner(&table, "text", false).await, by_hand(|_| true));
}

#[tokio::test]
async fn one_of_several_indexes_that_covers_all_rows_is_enough() {
    let place = TablePlace::new();
    let uri = place.uri();
    let mut dataset = write(&uri, &[rows(0..4_000), rows(4_000..8_000)], PLAIN).await;
    let params = ScalarIndexParams::default();
    let build = async |dataset: &mut Dataset, name: &str| {
        let name = Some(name.to_owned());
        dataset.create_index(&["text"], IndexType::BTree, name, &params, false).await.unwrap();
    };
    build(&mut dataset, "a").await;
    let lake = lake();
    compare_to_scanner(&lake.open(&uri).await.unwrap(), "text", true).await;
    let batch = rows(8_000..9_000);
    let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let mut dataset = Dataset::write(reader, &uri, Some(params)).await.unwrap();
    compare_to_scanner(&lake.open(&uri).await.unwrap(), "text", false).await;
    build(&mut dataset, "b").await;
    let table = lake.open(&uri).await.unwrap();
    assert_eq!(compare_to_scanner(&table, "text", true).await, by_hand(|_| true));
}

#[tokio::test]
async fn a_segment_of_removed_fragments_is_ignored() {
    let place = TablePlace::new();
    let uri = place.uri();
    write(&uri, &[rows(0..4_000)], PLAIN).await;
    let lake = lake();
    index(&lake, &uri, "text").await;
    let batch = rows(4_000..8_000);
    let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let mut dataset = Dataset::write(reader, &uri, Some(params)).await.unwrap();
    dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
    compare_to_scanner(&lake.open(&uri).await.unwrap(), "text", false).await;
    dataset.delete("row < 4000").await.unwrap();
    let table = lake.open(&uri).await.unwrap();
    assert_eq!((table.fragments().len(), table.fragments()[0].id), (1, 1));
    let is_live = |row| FRAGMENTS[1].contains(&row);
    assert_eq!(compare_to_scanner(&table, "text", true).await, by_hand(is_live));
}

#[tokio::test]
async fn keys_in_memory_are_found_without_waiting_and_a_key_with_many_rows_yields() {
    let place = TablePlace::new();
    let uri = place.uri();
    // The first 4,990 rows with "b", except row 4444, are deleted before the index is built. All remaining rows with
    // "b", about 7,000, are on two pages of the index.
    let texts = ["a"; 10].into_iter().chain(["b"; 12_000]).chain(["c"; 10]);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let lines: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..12_020));
    let batch = RecordBatch::try_from_iter([("text", texts), ("row", lines)]).unwrap();
    let mut dataset = write(&uri, &[batch], PLAIN).await;
    dataset.delete("row >= 10 AND row < 5000 AND row != 4444").await.unwrap();
    let lake = lake();
    // A key column may have the same key in several rows.
    let request = IndexRequest::Key { column: "text".into(), replace: false };
    build_index(&lake, &uri, &request, |_| ()).await.unwrap();
    let table = lake.open(&uri).await.unwrap();
    assert_eq!(table.key_column(), Some("text"));
    let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
    let direct = |wanted: &[&str]| table.direct_lookup_texts(None, &keys(wanted)).unwrap();
    assert!(direct(&["a"]).is_none(), "not opened yet");
    let all = keys(&["c", "b", "a", "b", "d"]);
    let row = |row| Some(RowAddr::new(0, row));
    let expected = [row(12_010), row(4_444), row(0), row(4_444), None];
    assert_eq!(table.lookup_texts(None, &all).await.unwrap(), expected);
    assert_eq!(table.planned_lookup_texts(None, &all).await.unwrap(), expected);
    // The whole index is in memory now.
    let found = direct(&["c", "a", "d", "a"]).unwrap().now_or_never().unwrap().unwrap();
    assert_eq!(found, [row(12_010), row(0), None, row(0)]);
    assert!(direct(&["b", "a"]).unwrap().now_or_never().is_none());
    let few: Vec<_> = ["a"; 64].to_vec();
    assert!(direct(&few).unwrap().now_or_never().is_some(), "one key");
    assert!(direct(&["a"; 65]).is_none(), "too many");
    // The index still has rows that were deleted after it was built.
    dataset.checkout_latest().await.unwrap();
    dataset.delete("row > 4000 AND row < 12000").await.unwrap();
    let table = lake.open(&uri).await.unwrap();
    assert_eq!(table.lookup_texts(None, &all).await.unwrap()[1], row(12_000));
    let direct = table.direct_lookup_texts(None, &keys(&["b"])).unwrap().unwrap();
    let mut direct = std::pin::pin!(direct);
    assert!((&mut direct).now_or_never().is_none(), "7,000 deleted rows are skipped");
    assert_eq!(direct.await.unwrap(), [row(12_000)]);
}

#[test]
fn a_key_of_many_rows_is_scanned_in_pieces() {
    const ROWS: i64 = 1_500_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = TablePlace::new();
    // The key is in all rows but the first 10.
    let numbers = Int64Array::from_iter_values((0..ROWS).map(|row| i64::from(row >= 10)));
    let batch = RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef)]).unwrap();
    let table = runtime.block_on(async {
        write(&place.uri(), &[batch], PLAIN).await;
        lake().open(&place.uri()).await.unwrap()
    });
    let keys = ["1", "0", "2"].map(str::to_owned);
    let look_up = || runtime.block_on(table.lookup_texts(Some("number"), &keys)).unwrap();
    // A key and an address of each row take 24 MB, and the old look-up had them twice.
    let found = fuzz::within(20 << 20, look_up);
    let row = |row| Some(RowAddr::new(0, row));
    assert_eq!(found, [row(10), row(0), None]);
}
