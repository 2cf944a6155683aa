//! Tests searches by several vectors with computed columns through both tiers. The rows are compared with brute force,
//! and the columns with those that Lance computes.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, UInt64Type};
use lance::Dataset;
use lance::dataset::ProjectionRequest;
use wire::query::search_request::By;
use wire::query::{NamedExpression, SearchRequest, Vector, Vectors};

use crate::cluster::{Cluster, total};
use crate::words::{warm, words};

const EXPRESSIONS: [(&str, &str); 3] =
    [("twice", "domain * 2"), ("name", "upper(synset)"), ("is_long", "length(gloss) > 60")];

fn expressions(all: &[(&str, &str)]) -> Vec<NamedExpression> {
    all.iter()
        .map(|(name, sql)| NamedExpression { name: (*name).into(), sql: (*sql).into() })
        .collect()
}

fn addresses(rows: &RecordBatch) -> Vec<u64> {
    rows["_rowaddr"].as_primitive::<UInt64Type>().values().to_vec()
}

/// Returns the number of rows that the I/O nodes have served.
async fn rows_served(cluster: &Cluster) -> u64 {
    let mut rows = 0;
    for io in &cluster.io {
        rows += total(&io.describe().await, |core| core.rows);
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn several_vectors_find_the_nearest_rows_with_columns_that_lance_computes_too() {
    let words = words().await;
    let cluster = words.serve(2).await;
    warm(&cluster).await;
    let asked: Vec<Vec<f32>> = [3, 700, 41, 5000, 8].map(|row| words.vector(row)).into();
    let k = 6;
    let vectors = asked.iter().map(|values| Vector { values: values.clone() }).collect();
    let search = SearchRequest {
        table: "words".into(),
        by: Some(By::Vectors(Vectors { vectors })),
        k: k as u32,
        exact: true,
        columns: vec!["synset".into()],
        expressions: expressions(&EXPRESSIONS),
        ..Default::default()
    };
    let found = cluster.client.search(search.clone()).await.unwrap();
    assert!(found.exhaustive);
    let rows = found.rows;
    let positions = rows["query_index"].as_primitive::<Int32Type>().values();
    assert!(positions.chunks(k).zip(0..).all(|(of_one, at)| of_one.iter().all(|it| *it == at)));
    let keys = words.keys();
    let nearest = asked.iter().flat_map(|values| words.nearest(values, k));
    let expected: Vec<&str> = nearest.map(|row| keys[row].as_str()).collect();
    let synsets: Vec<&str> = rows["synset"].as_string::<i32>().iter().flatten().collect();
    assert_eq!(synsets, expected);

    let dataset = Dataset::open(words.uri.to_str().unwrap()).await.unwrap();
    let by_lance = dataset
        .take_rows(&addresses(&rows), ProjectionRequest::from_sql(EXPRESSIONS))
        .await
        .unwrap();
    for (name, _) in EXPRESSIONS {
        assert_eq!(&rows[name], &by_lance[name], "{name}");
    }

    // Of rows whose columns need nothing from the table, none is fetched.
    let far = SearchRequest {
        exact: false,
        refine_factor: Some(0),
        columns: Vec::new(),
        expressions: expressions(&[("far", "_distance * 2")]),
        ..search
    };
    let before = rows_served(&cluster).await;
    let rows = cluster.client.search(far).await.unwrap().rows;
    assert_eq!(rows_served(&cluster).await, before);
    let names: Vec<_> = rows.schema_ref().fields().iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, ["query_index", "far", "_rowaddr", "_distance"]);
    let distances = rows["_distance"].as_primitive::<Float32Type>().values();
    let far = rows["far"].as_primitive::<Float32Type>().values();
    assert!(far.iter().zip(distances).all(|(far, distance)| *far == distance * 2.0));
    cluster.stop().await;
}
