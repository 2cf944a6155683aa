//! Tests live rows by position, rows in an order, and counts of the rows that pass a filter, against Lance's own scans.

use address::RowAddr;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use lake::{LakeError, OrderBy};
use lance::Dataset;
use lance::dataset::scanner::{ColumnOrdering, Scanner};

use crate::fixture::{
    DIMENSION, KINDS, PLAIN, TablePlace, address_of, lake, rows, write, write_with_history,
};

/// Returns the addresses of the rows that a scan returns, in its order.
async fn scanned(uri: &str, set: impl FnOnce(&mut Scanner)) -> Vec<RowAddr> {
    let dataset = Dataset::open(uri).await.unwrap();
    let mut scanner = dataset.scan();
    scanner.with_row_address().scan_in_order(true);
    set(&mut scanner);
    let rows: RecordBatch = scanner.try_into_batch().await.unwrap();
    let addresses = rows["_rowaddr"].as_primitive::<UInt64Type>();
    addresses.values().iter().copied().map(RowAddr::from_u64).collect()
}

#[tokio::test]
async fn positions_are_those_of_a_scan() {
    for kind in KINDS {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let all = scanned(&place.uri(), |_| ()).await;
        let rows = all.len() as u64;
        assert_eq!(rows, table.row_count());
        for range in
            [0..rows, 0..0, 3..4, 990..1010, rows - 1..rows, rows - 3..u64::MAX, rows..rows + 9]
        {
            let expected = &all[range.start.min(rows) as usize..range.end.min(rows) as usize];
            assert_eq!(
                table.live_rows(range.clone()).await.unwrap(),
                expected,
                "{kind:?} {range:?}"
            );
        }
        let positions: Vec<u64> = (0..rows + 2).rev().step_by(7).chain([u64::MAX, 0, 0]).collect();
        let expected: Vec<_> = positions.iter().map(|&at| all.get(at as usize).copied()).collect();
        assert_eq!(table.live_rows_at(&positions).await.unwrap(), expected, "{kind:?}");
        let there: Vec<_> = expected.iter().flatten().copied().collect();
        let of_rows = table.positions_of(&there).await.unwrap();
        let known: Vec<_> = positions.iter().copied().filter(|&at| at < rows).collect();
        assert_eq!(of_rows, known, "{kind:?}");
    }
}

#[tokio::test]
async fn a_live_row_of_a_fragment_without_live_rows_is_an_error() {
    let place = TablePlace::new();
    let mut dataset = write(&place.uri(), &[rows(0, 100), rows(100, 200)], PLAIN).await;
    dataset.delete("id = 150").await.unwrap();
    // In the last manifest, one row of the second fragment is deleted (field 4 of `DeletionFile`) of 100 (field 4 of
    // `DataFragment`, the next one). Now, all 100 are.
    let path = place.file("table").join("_versions");
    let mut damaged = 0;
    for file in std::fs::read_dir(path).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(4).position(|it| it == [0x20, 1, 0x20, 100]) {
            bytes[at + 1] = 100;
            damaged += 1;
        }
        std::fs::write(path, bytes).unwrap();
    }
    assert!(damaged > 0);
    let table = lake().open(&place.uri()).await.unwrap();
    let row = RowAddr::new(1, 2);
    assert_eq!(table.missing(&[row]).await.unwrap(), [0; 0]);
    let error = table.positions_of(&[RowAddr::new(0, 0), row]).await.unwrap_err();
    assert!(matches!(error, LakeError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("no row of fragment 1 is live"), "{error}");
}

#[tokio::test]
async fn counts_orders_and_passing_rows_are_those_of_a_scan() {
    for kind in KINDS {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let all = scanned(&place.uri(), |_| ()).await;
        for filter in
            ["id % 3 = 0", "id < 100 OR id > 900", "id < 0", "name < CAST(now() AS string)"]
        {
            let passing = scanned(&place.uri(), |it| {
                it.filter(filter).unwrap();
            })
            .await;
            assert_eq!(table.count_filter(filter).await.unwrap(), passing.len() as u64, "{filter}");
            let expected: Vec<_> = all.iter().map(|row| passing.contains(row)).collect();
            assert_eq!(table.passes(filter, &all).await.unwrap(), expected, "{kind:?} {filter}");
            let mut ascending = passing.clone();
            ascending.sort_unstable();
            let found = table.rows_passing(filter, passing.len()).await.unwrap();
            assert_eq!(found, Some(ascending), "{kind:?} {filter}");
            if let Some(fewer) = passing.len().checked_sub(1) {
                assert_eq!(table.rows_passing(filter, fewer).await.unwrap(), None, "{filter}");
            }
        }
        for (is_descending, filter) in [(true, None), (false, Some("id % 5 < 2"))] {
            let uri = place.uri();
            let expected = scanned(&uri, |it| {
                let order = ColumnOrdering {
                    ascending: !is_descending,
                    nulls_first: true,
                    column_name: "id".into(),
                };
                it.order_by(Some(vec![order])).unwrap().limit(Some(40), None).unwrap();
                if let Some(filter) = filter {
                    it.filter(filter).unwrap();
                }
            });
            let by = [OrderBy { column: "id".into(), is_descending, nulls_first: true }];
            let found = table.scan_ordered(filter, &by, 40).await.unwrap();
            assert_eq!(found, expected.await, "{kind:?} {filter:?}");
            assert!(table.scan_ordered(filter, &by, 0).await.unwrap().is_empty(), "{kind:?}");
        }
        let by = |column: &str| OrderBy {
            column: column.into(),
            is_descending: false,
            nulls_first: true,
        };
        let of_both = 4 + 4 * DIMENSION;
        assert_eq!(table.order_width(&[by("id"), by("vector")]).unwrap(), (of_both, true));
        assert_eq!(table.order_width(&[by("id"), by("name")]).unwrap(), (4, false));
        let error = table.scan_ordered(None, &[by("idd")], 1).await.unwrap_err();
        assert!(matches!(error, LakeError::ColumnNotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn filters_compare_addresses_also_beside_the_clock() {
    for kind in KINDS {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let all = scanned(&place.uri(), |_| ()).await;
        let (first, end) = (address_of(303).to_u64(), address_of(400).to_u64());
        let from_first: Vec<bool> = all.iter().map(|row| row.to_u64() >= first).collect();
        let within: Vec<_> = all.iter().map(|row| (first..end).contains(&row.to_u64())).collect();
        // With stable row ids too, `_rowid` is the address: the id of the row 303 would be 303.
        for column in ["_rowaddr", "_rowid"] {
            let plain = format!("{column} >= {first}");
            let on_clock = format!("{plain} AND CAST(now() AS string) > '2'");
            let both = format!("id < 400 AND {on_clock}");
            for (filter, expected) in
                [(&plain, &from_first), (&on_clock, &from_first), (&both, &within)]
            {
                let context = format!("{kind:?} {filter}");
                assert_eq!(table.passes(filter, &all).await.unwrap(), *expected, "{context}");
                let count = expected.iter().filter(|passes| **passes).count();
                assert_eq!(table.count_filter(filter).await.unwrap(), count as u64, "{context}");
                let found = table.search_filter(filter, all.len()).await.unwrap().rows;
                assert_eq!(found.len(), count, "{context}");
            }
        }
    }
}
