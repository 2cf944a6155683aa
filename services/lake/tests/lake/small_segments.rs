//! Compares searches of an index's small segments, as each update for appended rows makes one, with Lance's and with
//! the live rows.

use std::collections::HashSet;

use address::RowAddr;
use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use lake::{
    BranchName, IndexRequest, Table, VectorIndex, VectorIndexKind, VectorQuery, build_index,
};
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use crate::fixture::{PLAIN, STABLE_IDS, TableKind, TablePlace, lake, rows, write};
use crate::vectors::{append, found, query};

/// Writes 400 rows, and an index of 8 partitions for them; then appends `appended` rows each time, and updates the
/// index.
async fn write_segments(
    place: &TablePlace,
    kind: TableKind,
    index: VectorIndexKind,
    appended: &[usize],
) -> Dataset {
    write(&place.uri(), &[rows(0, 400)], kind).await;
    let request = VectorIndex {
        column: "vector".into(),
        kind: index,
        partitions: Some(8),
        ..Default::default()
    };
    build_index(&lake(), &place.uri(), &IndexRequest::Vector(request), |_| ()).await.unwrap();
    let mut dataset = Dataset::open(&place.uri()).await.unwrap();
    let mut from = 400;
    for count in appended {
        append(&mut dataset, rows(from, from + count)).await;
        dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
        from += count;
    }
    dataset
}

/// Returns a query for all rows of all partitions.
fn all() -> VectorQuery {
    VectorQuery { nprobes: Some(8), ..query(0, 1000) }
}

#[tokio::test]
async fn a_segment_with_fewer_rows_than_partitions_is_searched_as_lance_does() {
    for kind in [VectorIndexKind::IvfRq, VectorIndexKind::IvfPq] {
        let place = TablePlace::new();
        write_segments(&place, PLAIN, kind, &[2]).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let index = &table.indexes().await.unwrap()[0];
        assert_eq!((index.segments.len(), index.rows_uncovered), (2, 0), "{kind}");
        for (seed, nprobes) in (0..8).flat_map(|seed| [(seed, 1), (seed, 3), (seed, 8)]) {
            // All rows of the partitions are wanted, so each search finds the same ones.
            let query = VectorQuery { nprobes: Some(nprobes), ..query(seed, 402) };
            let planned = table.planned_search(&query).await.unwrap();
            let planned: HashSet<_> = planned.iter().map(|hit| hit.addr).collect();
            assert!(planned.len() == 402 || nprobes < 8, "{kind}, nprobes {nprobes}");
            assert_eq!(found(&table, &query).await, planned, "{kind}, nprobes {nprobes}");
        }
    }
}

#[tokio::test]
async fn rows_are_found_in_the_versions_that_have_them() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        let mut dataset = write_segments(&place, kind, VectorIndexKind::IvfRq, &[10, 10]).await;
        let before = lake().open(&place.uri()).await.unwrap();
        let rows_before = found(&before, &all()).await;
        assert_eq!(rows_before.len(), 420, "{kind:?}");
        // The versions have the index's segments, and their cache, in common. In the second fragment no row is left.
        dataset.delete("id = 7 OR id = 415 OR (id >= 400 AND id < 410)").await.unwrap();
        let after = before.newer().await.unwrap().unwrap();
        let mut rows_left = rows_before.clone();
        let is_left = |row: &RowAddr| {
            ![(0, 7), (2, 5)].contains(&(row.fragment(), row.offset())) && row.fragment() != 1
        };
        rows_left.retain(is_left);
        assert_eq!(rows_left.len(), 408, "{kind:?}");
        assert_eq!(found(&after, &all()).await, rows_left, "{kind:?}");
        assert_eq!(found(&before, &all()).await, rows_before, "{kind:?}");
    }
}

#[tokio::test]
async fn rows_are_found_in_the_branches_that_have_them() {
    let place = TablePlace::new();
    let mut main = write_segments(&place, STABLE_IDS, VectorIndexKind::IvfRq, &[10, 10]).await;
    let mut exp = main.create_branch("exp", main.version_id(), None).await.unwrap();
    // Compaction writes the first fragment without its deleted rows: each branch gets a fragment of the same number, which
    // has no deletion file, and the segments stay the same.
    for (branch, deleted) in [(&mut main, "id < 60"), (&mut exp, "id >= 60 AND id < 120")] {
        branch.delete(deleted).await.unwrap();
        compact_files(branch, CompactionOptions::default(), None).await.unwrap();
        assert_eq!(branch.count_deleted_rows().await.unwrap(), 0);
    }
    let lake = lake();
    let name = BranchName::of_request("exp").unwrap();
    let of_main = lake.open(&place.uri()).await.unwrap();
    let of_exp = lake.open_branch(of_main.canonical_uri(), name.as_ref()).await.unwrap();
    let fragments = |table: &Table| table.fragments().iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!((fragments(&of_main), fragments(&of_exp)), (vec![1, 2, 3], vec![1, 2, 3]));
    for (table, dataset) in [(&of_main, &main), (&of_exp, &exp)] {
        let expected = live_rows(dataset).await;
        assert_eq!(expected.len(), 360);
        assert_eq!(found(table, &all()).await, expected, "{table:?}");
    }
}

async fn live_rows(dataset: &Dataset) -> HashSet<RowAddr> {
    let mut scan = dataset.scan();
    let scanned = scan.project(&["id"]).unwrap().with_row_address().try_into_batch().await.unwrap();
    let rows = scanned["_rowaddr"].as_primitive::<UInt64Type>().values();
    rows.iter().map(|row| RowAddr::from_u64(*row)).collect()
}
