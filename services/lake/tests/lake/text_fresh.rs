//! Full-text searches of tables with rows that an index does not cover.

use std::fs;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use lake::{IndexRequest, PlanReason, Table, TextExpr, TextHits, TextQuery, build_index};
use lance::Dataset;
use lance_index::scalar::inverted::query::{BooleanQuery, FtsQuery, MultiMatchQuery, Occur};

use crate::fixture::{PLAIN, STABLE_IDS, TablePlace, lake, rows, write};
use crate::text_forms::{
    any_of, assert_same, boolean, by_lance, combined, lance_match, matching, phrase,
};

async fn append(uri: &str, batch: RecordBatch) {
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::open(uri).await.unwrap().append(reader, None).await.unwrap();
}

async fn index(uri: &str, column: &str) {
    let index = IndexRequest::Text { column: column.into(), positions: true };
    build_index(&lake(), uri, &index, |_| ()).await.unwrap();
}

async fn search(table: &Table, query: TextExpr) -> TextHits {
    let query = TextQuery { query, k: 100, ..Default::default() };
    table.search_text(&query).await.unwrap()
}

/// Searches for `query`, and compares the rows with those that Lance finds. Returns the reason if Lance planned the
/// search, and otherwise the number of uncovered rows that were compared.
async fn compared(
    place: &TablePlace,
    query: TextExpr,
    lance: FtsQuery,
) -> Result<usize, PlanReason> {
    let table = lake().open(&place.uri()).await.unwrap();
    let found = search(&table, query).await;
    let dataset = Dataset::open(&place.uri()).await.unwrap();
    let expected = by_lance(&dataset, lance, None, 100, false).await;
    assert!(!expected.is_empty());
    assert_same(&found.hits, &expected, "uncovered rows");
    found.planned.map_or(Ok(found.fresh), Err)
}

fn texts(texts: Vec<String>) -> RecordBatch {
    let texts = Arc::new(StringArray::from(texts)) as ArrayRef;
    RecordBatch::try_from_iter_with_nullable([("text", texts, true)]).unwrap()
}

#[tokio::test]
async fn the_texts_of_uncovered_rows_are_read_once() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        write(&place.uri(), &[rows(0, 40)], kind).await;
        index(&place.uri(), "text").await;
        let before = files(&place);
        append(&place.uri(), rows(40, 45)).await;
        let table = lake().open(&place.uri()).await.unwrap();
        let first = search(&table, phrase("text", "ash tree", 0)).await;
        assert_eq!((first.planned, first.fresh), (None, 5));
        assert!(first.hits.iter().any(|hit| hit.addr == RowAddr::new(1, 4)));
        for name in files(&place).into_iter().filter(|name| !before.contains(name)) {
            fs::remove_file(place.folder.path().join("table/data").join(name)).unwrap();
        }
        let again = search(&table, phrase("text", "ash tree", 0)).await;
        assert_eq!(again, first);
        let found = search(&table, any_of("text", "43")).await;
        assert_eq!(found.hits.iter().map(|hit| hit.addr).collect::<Vec<_>>(), [RowAddr::new(1, 3)]);
    }
}

fn files(place: &TablePlace) -> Vec<String> {
    let data = fs::read_dir(place.folder.path().join("table/data")).unwrap();
    data.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn too_many_uncovered_rows_and_too_long_ones_are_planned() {
    let place = TablePlace::new();
    write(&place.uri(), &[texts(vec!["an oak".into(); 10])], PLAIN).await;
    index(&place.uri(), "text").await;
    let oaks = async || {
        compared(&place, any_of("text", "oak 7"), lance_match("text", "oak 7").into()).await
    };
    append(&place.uri(), texts((0..50_000).map(|at| format!("ash {at}")).collect())).await;
    assert_eq!(oaks().await, Ok(50_000));
    append(&place.uri(), texts(vec!["one more".into()])).await;
    assert_eq!(oaks().await, Err(PlanReason::Uncovered(50_001)));
    Dataset::open(&place.uri()).await.unwrap().delete("text LIKE 'ash %'").await.unwrap();
    assert_eq!(oaks().await, Ok(1));
    append(&place.uri(), texts(vec!["x".repeat(4 << 20); 9])).await;
    assert_eq!(oaks().await, Err(PlanReason::UncoveredText));
}

#[tokio::test]
async fn queries_of_columns_whose_indexes_cover_different_rows() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 60)], PLAIN).await;
    index(&place.uri(), "text").await;
    append(&place.uri(), rows(60, 72)).await;
    index(&place.uri(), "name").await;
    let of = |column: &str, words: &str| FtsQuery::from(lance_match(column, words));
    let both = || {
        let query = boolean(&[any_of("text", "oak ash")], &[any_of("name", "64")], &[]);
        let lance = [(Occur::Must, of("text", "oak ash")), (Occur::Should, of("name", "64"))];
        compared(&place, query, BooleanQuery::new(lance).into())
    };
    let best = || {
        let query = TextExpr::MultiMatch(vec![matching("text", "63 5"), matching("name", "64 63")]);
        let match_queries = vec![lance_match("text", "63 5"), lance_match("name", "64 63")];
        compared(&place, query, MultiMatchQuery { match_queries }.into())
    };
    assert_eq!(both().await, Err(PlanReason::CoverageDiffers));
    assert_eq!(best().await, Ok(12));
    let table = lake().open(&place.uri()).await.unwrap();
    let as_one = search(&table, combined(&[("text", 1.0), ("name", 1.0)], "ash 64", true)).await;
    assert_eq!(as_one.planned, Some(PlanReason::CombinedUncovered(12)));
    assert_eq!(as_one.hits[0].addr, RowAddr::new(1, 4));
    append(&place.uri(), rows(72, 75)).await;
    assert_eq!(both().await, Err(PlanReason::CoverageDiffers));
    assert_eq!(best().await, Ok(15));
    index(&place.uri(), "text").await;
    index(&place.uri(), "name").await;
    append(&place.uri(), rows(75, 81)).await;
    assert_eq!(both().await, Ok(6));
    assert_eq!(best().await, Ok(6));
}
