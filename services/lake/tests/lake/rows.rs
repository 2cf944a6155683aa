//! Chunks and rows by address, compared with each other and with Lance's scan.

use std::fs::File;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Float32Type, Int32Type, UInt64Type};
use lake::{LakeError, Table};
use lance_file::version::LanceFileVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{
    KINDS, TablePlace, address_of, all, is_deleted, lake, modern_kinds, names, rows, write,
    write_with_history,
};

fn ids(batch: &RecordBatch) -> Vec<i32> {
    batch.column_by_name("id").unwrap().as_primitive::<Int32Type>().values().to_vec()
}

/// Reads all rows of all fragments in chunks of `step` rows. Deleted rows are included.
async fn by_chunks(table: &Table, columns: &[String], step: u32) -> RecordBatch {
    let mut batches = Vec::new();
    for fragment in table.fragments() {
        for start in (0..fragment.physical_rows).step_by(step as usize) {
            let rows = start..(start + step).min(fragment.physical_rows);
            let batch = table.read_chunk(fragment.id, rows.clone(), columns).await.unwrap();
            assert_eq!(batch.num_rows(), rows.len());
            batches.push(batch);
        }
    }
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

#[tokio::test]
async fn chunks_take_and_scan_agree() {
    for kind in KINDS {
        let place = TablePlace::new();
        let dataset = Arc::new(write_with_history(&place.uri(), kind).await);
        let table = lake().open(&place.uri()).await.unwrap();
        let columns = all(&table);
        let chunks = by_chunks(&table, &columns, 64).await;
        assert_eq!(chunks.schema(), *table.schema(), "{kind:?}");
        let live: Vec<u32> = (0..600).filter(|id| !is_deleted(*id as i32)).collect();
        for id in &live {
            let found = chunks.column(0).as_primitive::<Int32Type>().value(*id as usize);
            assert_eq!(found, *id as i32, "deletions do not change positions");
        }
        let scanned =
            dataset.scan().with_row_address().scan_in_order(true).try_into_batch().await.unwrap();
        let addresses: Vec<_> = scanned
            .column_by_name("_rowaddr")
            .unwrap()
            .as_primitive::<UInt64Type>()
            .values()
            .to_vec();
        let expected: Vec<_> = live.iter().map(|id| address_of(*id as i32).to_u64()).collect();
        assert_eq!(addresses, expected);
        let scanned = scanned.project(&[0, 1, 2, 3, 4]).unwrap();
        let of_chunks = take_record_batch(&chunks, &UInt32Array::from(live.clone())).unwrap();
        assert_eq!(of_chunks.columns(), scanned.columns(), "{kind:?}");
        let addresses: Vec<_> = addresses.into_iter().map(RowAddr::from_u64).collect();
        let taken = table.take(&addresses, &columns).await.unwrap();
        assert_eq!(taken.schema(), *table.schema());
        assert_eq!(taken.columns(), scanned.columns(), "{kind:?}");
    }
}

#[tokio::test]
async fn take_keeps_order_and_repeats() {
    for &kind in modern_kinds() {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let mut random = StdRng::seed_from_u64(7);
        for count in [0, 1, 2, 50, 1000] {
            let wanted: Vec<i32> = std::iter::repeat_with(|| random.random_range(0..600))
                .filter(|id| !is_deleted(*id))
                .take(count)
                .collect();
            let addresses: Vec<_> = wanted.iter().map(|id| address_of(*id)).collect();
            let batch = table.take(&addresses, &names(&["added", "id", "vector"])).await.unwrap();
            assert_eq!(ids(&batch), wanted, "{kind:?}");
            for (row, id) in wanted.iter().enumerate() {
                let added = batch.column(0).as_primitive::<Int32Type>();
                let expected = (*id < 500).then_some(id * 2);
                assert_eq!(added.iter().nth(row).unwrap(), expected);
                let vector = batch.column(2).as_fixed_size_list().value(row);
                assert_eq!(
                    vector.as_primitive::<Float32Type>().values().to_vec(),
                    crate::fixture::vector(*id as usize)
                );
            }
        }
    }
}

#[tokio::test]
async fn missing_rows_are_named() {
    for kind in KINDS {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let wanted = [
            RowAddr::new(0, 0),
            RowAddr::new(0, 7),
            RowAddr::new(2, 98),
            RowAddr::new(2, 99),
            RowAddr::new(2, 100),
            RowAddr::new(9, 0),
            RowAddr::from_u64(u64::MAX),
        ];
        assert_eq!(table.missing(&wanted).await.unwrap(), [1, 3, 4, 5, 6]);
        match table.take(&wanted, &names(&["id"])).await {
            Err(error @ LakeError::RowNotFound { .. }) => {
                let text = error.to_string();
                assert!(text.contains("row addresses 7 (0:7), 8589934691 (2:99), "), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_read_of_texts_that_take_little_space_in_files_stops_at_its_limit() {
    const ROWS: u32 = 4096;
    const TEXT_BYTES: usize = 2048;
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS as i32));
    let texts = (0..ROWS).map(|row| Some(format!("{}", row % 50).repeat(TEXT_BYTES / 2)));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    for kind in KINDS {
        let place = TablePlace::new();
        write(&place.uri(), std::slice::from_ref(&batch), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let (all, limit) = (all(&table), 1 << 20);
        let whole = table.read_chunk(0, 0..ROWS, &all).await.unwrap();
        let start = table.read_chunk_within(0, 0..ROWS, &all, limit).await.unwrap();
        let start = concat_batches(table.schema(), &start).unwrap();
        let texts = start.column(1).as_string::<i32>().values().len();
        // Batches of the legacy format are groups, because each column of a batch is a request.
        let batch_rows = if kind.version == LanceFileVersion::Legacy { 1024 } else { 256 };
        let texts_max = (1 << 20) + batch_rows * TEXT_BYTES;
        assert!(texts > 0 && texts < texts_max, "{kind:?}: {texts} bytes");
        assert_eq!(start, whole.slice(0, start.num_rows()), "{kind:?}");
        let pieces = table.read_chunk_within(0, 0..ROWS, &all, u64::MAX).await.unwrap();
        assert!(pieces.len() >= ROWS as usize / batch_rows, "{kind:?}: {} batches", pieces.len());
        assert_eq!(concat_batches(table.schema(), &pieces).unwrap(), whole, "{kind:?}");
        // The caller knows what rows of fixed width take. They are read at once.
        let ids = table.read_chunk_within(0, 1..ROWS, &names(&["id"]), 0).await.unwrap();
        let rows: Vec<_> = ids.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows.iter().sum::<usize>(), ROWS as usize - 1, "{kind:?}: {rows:?}");
        let none = table.read_chunk_within(0, 5..5, &all, 0).await.unwrap();
        assert_eq!((none.len(), none[0].num_rows()), (1, 0));
    }
}

#[tokio::test]
async fn missing_columns_and_ranges_are_errors() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), KINDS[1]).await;
    let table = lake().open(&place.uri()).await.unwrap();
    match table.read_chunk(0, 0..1, &names(&["id", "Name"])).await {
        Err(LakeError::ColumnNotFound { column, available }) => {
            assert_eq!((column.as_str(), available.len()), ("Name", 5));
        }
        other => panic!("{other:?}"),
    }
    let error = table.read_chunk(1, 199..201, &names(&["id"])).await.unwrap_err();
    assert!(matches!(
        error,
        LakeError::RangeOutOfBounds { fragment: 1, end: 201, physical_rows: 200, .. }
    ));
    assert!(matches!(
        table.read_chunk(3, 0..1, &[]).await,
        Err(LakeError::FragmentNotFound { .. })
    ));
    assert_eq!(table.read_chunk(1, 200..200, &names(&["id"])).await.unwrap().num_rows(), 0);
    assert_eq!(
        table.read_chunk(1, 0..3, &[]).await.unwrap().num_rows(),
        3,
        "no columns, still rows"
    );
    let twice = table.take(&[RowAddr::new(0, 3)], &names(&["id", "id"])).await.unwrap();
    assert_eq!(twice.num_columns(), 2);
}

#[tokio::test]
async fn columns_without_data_are_read_as_nulls() {
    for &kind in modern_kinds() {
        let place = TablePlace::new();
        let mut dataset = write_with_history(&place.uri(), kind).await;
        let batch = crate::fixture::rows(600, 610);
        let reader = arrow::array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        dataset.append(reader, None).await.unwrap();
        let table = lake().open(&place.uri()).await.unwrap();
        let chunk = table.read_chunk(3, 2..9, &names(&["added"])).await.unwrap();
        assert_eq!((chunk.num_rows(), chunk.column(0).null_count()), (7, 7), "{kind:?}");
        let rows = [RowAddr::new(3, 4), RowAddr::new(0, 4)];
        let taken = table.take(&rows, &names(&["added"])).await.unwrap();
        let added = taken.column(0).as_primitive::<Int32Type>();
        assert_eq!(added.iter().collect::<Vec<_>>(), [None, Some(8)], "{kind:?}");
    }
}

#[tokio::test]
async fn a_data_file_that_was_cut_short_is_damage() {
    // Lance reads a file of at most 64 KiB whole, and of a longer one the last 64 KiB first.
    for (count, is_small) in [(20, true), (3000, false)] {
        // On a file of the legacy format, Lance panics, which counts as damage too.
        for &kind in modern_kinds() {
            let place = TablePlace::new();
            let dataset = write(&place.uri(), &[rows(0, count)], kind).await;
            let file = dataset.get_fragments()[0].metadata().files[0].path.clone();
            let path = place.file("table").join("data").join(file);
            let bytes = std::fs::metadata(&path).unwrap().len();
            assert_eq!(bytes < 1 << 16, is_small);
            File::options().write(true).open(&path).unwrap().set_len(64).unwrap();
            let table = lake().open(&place.uri()).await.unwrap();
            let error = table.take(&[RowAddr::new(0, 5)], &all(&table)).await.unwrap_err();
            assert!(matches!(error, LakeError::Corrupt { .. }), "{count}, {kind:?}: {error:?}");
            assert!(error.to_string().contains("64 bytes"), "{error}");
        }
    }
}
