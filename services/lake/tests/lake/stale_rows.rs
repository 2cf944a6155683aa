//! Searches of indexes that have rows of an earlier state of the table, or lack rows of the present one.

use std::sync::Arc;

use arrow::array::RecordBatchIterator;
use lake::{
    IndexRequest, Metric, Table, TextExpr, TextQuery, VectorIndex, VectorIndexKind, VectorQuery,
    VectorRoute, build_index,
};
use lance::Dataset;
use lance::dataset::{MergeInsertBuilder, MergeInsertWriteMode, WhenMatched, WhenNotMatched};
use lance::index::DatasetIndexExt;
use lance::index::vector::VectorIndexParams;
use lance_index::IndexType;
use lance_linalg::distance::DistanceType;

use crate::fixture::{PLAIN, STABLE_IDS, TablePlace, lake, rows, search_vector, vector, write};

/// Builds an index that stores the vectors themselves.
async fn index_vectors(dataset: &mut Dataset, partitions: usize) {
    let parameters = VectorIndexParams::ivf_flat(partitions, DistanceType::L2);
    let index = dataset.create_index(&["vector"], IndexType::Vector, None, &parameters, false);
    index.await.unwrap();
}

/// Returns the ids of the `k` rows nearest to the vector of row `id`.
async fn nearest_ids(table: &Table, id: usize, k: usize) -> Vec<u64> {
    let query = VectorQuery { vector: vector(id), k, nprobes: Some(1), ..Default::default() };
    let hits = search_vector(table, &query).await.unwrap();
    hits.iter().map(|hit| hit.addr.to_u64()).collect()
}

#[tokio::test]
async fn a_recreated_table_is_searched_by_its_own_live_rows() {
    for (kind, is_closed) in [(STABLE_IDS, false), (STABLE_IDS, true), (PLAIN, false)] {
        let (place, lake) = (TablePlace::new(), lake());
        let uri = place.uri();
        let make = async |count| {
            index_vectors(&mut write(&uri, &[rows(0, count)], kind).await, 1).await;
            let text = IndexRequest::Text { column: "text".into(), positions: false };
            build_index(&lake, &uri, &text, |_| ()).await.unwrap();
            Dataset::open(&uri).await.unwrap().delete("id < 10").await.unwrap();
        };
        // The table has the same versions both times.
        make(100).await;
        let old = lake.open(&uri).await.unwrap();
        assert_eq!(nearest_ids(&old, 50, 1).await, [50], "{kind:?}");
        assert_eq!(text_ids(&old, "50").await, [50], "{kind:?}");
        std::fs::remove_dir_all(&uri).unwrap();
        make(200).await;
        let new = match is_closed {
            true => lake.open(&uri).await.unwrap(),
            false => old.newer().await.unwrap().expect("another table"),
        };
        assert_eq!(new.version(), old.version());
        assert_eq!(nearest_ids(&new, 150, 1).await, [150], "{kind:?}");
        assert_eq!(text_ids(&new, "150").await, [150], "{kind:?}");
    }
}

async fn text_ids(table: &Table, words: &str) -> Vec<u64> {
    let query = TextQuery { query: TextExpr::words(words), k: 1, ..Default::default() };
    let hits = table.search_text(&query).await.unwrap().hits;
    hits.iter().map(|hit| hit.addr.to_u64()).collect()
}

#[tokio::test]
async fn rows_whose_vectors_were_rewritten_before_their_fragment_left_take_no_places() {
    let place = TablePlace::new();
    let mut dataset = write(&place.uri(), &[rows(0, 100), rows(100, 200)], PLAIN).await;
    index_vectors(&mut dataset, 1).await;
    let changes = rows(100, 200).project(&[0, 3]).unwrap();
    let mut merge = MergeInsertBuilder::try_new(Arc::new(dataset), vec!["id".into()]).unwrap();
    merge.write_mode(MergeInsertWriteMode::RewriteColumns);
    merge.when_matched(WhenMatched::UpdateAll).when_not_matched(WhenNotMatched::DoNothing);
    let schema = changes.schema();
    let changes = RecordBatchIterator::new([Ok(changes)], schema);
    merge.try_build().unwrap().execute_reader(changes).await.unwrap();
    Dataset::open(&place.uri()).await.unwrap().delete("id >= 100").await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    assert_eq!(table.fragments().iter().map(|info| info.id).collect::<Vec<_>>(), [0]);
    assert!(table.indexes().await.unwrap()[0].rows_uncovered == 0, "the index is searched alone");
    let found = nearest_ids(&table, 150, 20).await;
    assert_eq!((found.len(), found.iter().all(|row| *row < 100)), (20, true), "{found:?}");
}

#[tokio::test]
async fn an_upper_bound_does_not_apply_to_estimates_beside_rows_that_are_scored() {
    let place = TablePlace::new();
    let lake = lake();
    write(&place.uri(), &[rows(0, 300)], PLAIN).await;
    let index = VectorIndex {
        column: "vector".into(),
        kind: VectorIndexKind::IvfPq,
        metric: Metric::Cosine,
        partitions: Some(1),
        ..Default::default()
    };
    let index = IndexRequest::Vector(index);
    build_index(&lake, &place.uri(), &index, |_| ()).await.unwrap();
    let more = rows(300, 310);
    let more = RecordBatchIterator::new([Ok(more.clone())], more.schema());
    Dataset::open(&place.uri()).await.unwrap().append(more, None).await.unwrap();
    let found = async |upper| {
        let table = lake.open(&place.uri()).await.unwrap();
        let query = VectorQuery {
            vector: vector(7),
            k: 40,
            nprobes: Some(1),
            distances: (None, upper),
            ..Default::default()
        };
        match table.open_route(&query).await.unwrap() {
            VectorRoute::Direct(search) => {
                let to_score = search.to_score.len();
                (search.hits.await.unwrap(), to_score)
            }
            _ => panic!("the index is searched directly"),
        }
    };
    let (all, to_score) = found(None).await;
    assert_eq!((all.len(), to_score), (40, 10));
    let middle = all[20].distance;
    assert_eq!(found(Some(middle)).await.0, all, "the caller scores the rows");
    build_index(&lake, &place.uri(), &index, |_| ()).await.unwrap();
    let (nearer, to_score) = found(Some(middle)).await;
    assert_eq!(to_score, 0);
    assert!(nearer.iter().all(|hit| hit.distance < middle) && !nearer.is_empty());
}
