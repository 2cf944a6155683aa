//! A test with real data: all of WordNet's 117,659 synsets, from the file that `BIREME_WORDNET` names.

use std::path::PathBuf;

use address::RowAddr;
use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use lake::{
    IndexRequest, IngestOptions, Table, TextExpr, TextQuery, VectorIndex, VectorQuery, build_index,
    ingest,
};

use crate::fixture::{TablePlace, lake, names, search_vector};
use crate::key_texts::KeyTexts;

fn wordnet() -> Option<PathBuf> {
    let path = std::env::var_os("BIREME_WORDNET").filter(|path| !path.is_empty());
    if path.is_none() {
        println!("skipped: BIREME_WORDNET names no file");
    }
    path.map(PathBuf::from)
}

#[tokio::test]
async fn ingest_index_search_and_look_up() {
    let Some(path) = wordnet() else { return };
    let place = TablePlace::new();
    let lake = lake();
    let options = IngestOptions {
        key: Some("synset".into()),
        max_rows_per_file: 40_000,
        ..Default::default()
    };
    let summary = ingest(&lake, &[path], &place.uri(), &options, |_| ()).await.unwrap();
    println!("{summary:?}");
    assert_eq!((summary.rows, summary.version), (117_659, 1));
    for request in [
        IndexRequest::Vector(VectorIndex {
            column: "vector".into(),
            metric: lake::Metric::Cosine,
            ..Default::default()
        }),
        IndexRequest::Text { column: "gloss".into(), positions: false },
        IndexRequest::Key { column: "synset".into(), replace: false },
    ] {
        println!("{:?}", build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap());
    }
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!((table.row_count(), table.key_column()), (117_659, Some("synset")));
    println!("{:#?}", table.indexes().await.unwrap());
    table.prewarm().await.unwrap();
    let text =
        TextQuery { query: TextExpr::words("large elephant trunk"), k: 5, ..Default::default() };
    let hits = table.search_text(&text).await.unwrap().hits;
    let addresses: Vec<_> = hits.iter().map(|hit| hit.addr).collect();
    let rows = table.take(&addresses, &names(&["synset", "vector"])).await.unwrap();
    let keys: Vec<_> =
        rows.column(0).as_string::<i32>().iter().map(|key| key.unwrap().to_owned()).collect();
    let found = table.lookup_texts(None, &keys).await.unwrap();
    assert_eq!(found, addresses.iter().copied().map(Some).collect::<Vec<_>>());
    // Version 1 has no index: Lance compares all rows there.
    let exact = lake.open_version(&place.uri(), 1).await.unwrap();
    let started = std::time::Instant::now();
    for (at, &address) in addresses.iter().enumerate().take(5) {
        let vector = rows
            .column(1)
            .as_fixed_size_list()
            .value(at)
            .as_primitive::<Float32Type>()
            .values()
            .to_vec();
        let query = VectorQuery { vector, k: 10, nprobes: Some(20), ..Default::default() };
        let hits = search_vector(&table, &query).await.unwrap();
        assert_eq!(hits[0].addr, address, "a row is nearest to itself");
    }
    println!("5 vector searches in {:?}", started.elapsed());
    for nprobes in [Some(10), Some(20), Some(40), None] {
        let found = recall(&table, &exact, nprobes).await;
        println!("nprobes {nprobes:?}: {found} of the 10 nearest are among 100 candidates");
        assert!(found >= 0.9, "nprobes {nprobes:?}: {found}");
    }
}

/// Returns the share of the 10 nearest rows (by `exact`) that is among 100 candidates of `table`.
async fn recall(table: &Table, exact: &Table, nprobes: Option<usize>) -> f64 {
    let (mut found, mut all) = (0, 0);
    for offset in (0..40_000).step_by(1_000) {
        let row = table.take(&[RowAddr::new(1, offset)], &names(&["vector"])).await.unwrap();
        let vector = row.column(0).as_fixed_size_list().value(0);
        let vector = vector.as_primitive::<Float32Type>().values().to_vec();
        // The vectors are normalised, so L2, the metric of version 1, gives the same order as cosine.
        let query = VectorQuery { vector, k: 100, nprobes, ..Default::default() };
        let hits = search_vector(table, &query).await.unwrap();
        let nearest = search_vector(exact, &VectorQuery { k: 10, ..query }).await.unwrap();
        all += nearest.len();
        found += nearest.iter().filter(|near| hits.iter().any(|hit| hit.addr == near.addr)).count();
    }
    found as f64 / all as f64
}
