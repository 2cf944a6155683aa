//! Tests several I/O nodes: each serves its chunks, and the rows of a lost node are read from the table.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatchIterator, StringArray};
use client::query::QueryClient;
use futures::StreamExt;
use lance::Dataset;
use lance::dataset::WriteParams;
use std::sync::Arc;
use wire::query::{TakeRequest, WarmRequest};

use crate::cluster::{Cluster, folder, joined, stop_io, total};

pub const ROWS: i64 = 200_000;

pub async fn write(uri: &std::path::Path) {
    let ids = Int64Array::from_iter_values(0..ROWS);
    let texts = StringArray::from_iter_values((0..ROWS).map(|id| format!("the text of row {id}")));
    let columns: [(&str, arrow_array::ArrayRef); 2] =
        [("id", Arc::new(ids)), ("text", Arc::new(texts))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams { max_rows_per_file: 20_000, ..Default::default() };
    Dataset::write(reader, uri.to_str().unwrap(), Some(params)).await.unwrap();
}

/// Takes rows and checks them.
pub async fn check(client: &QueryClient, ids: &[i64]) {
    let row_addrs = ids.iter().map(|id| ((id / 20_000) as u64) << 32 | (id % 20_000) as u64);
    let request =
        TakeRequest { table: "t".into(), row_addrs: row_addrs.collect(), ..Default::default() };
    let taken = client.take(request).await.unwrap().collect().await.unwrap();
    let rows = joined(&taken);
    assert_eq!(rows["id"].as_primitive::<Int64Type>().values(), ids);
    let texts = rows["text"].as_string::<i32>();
    assert!(texts.iter().zip(ids).all(|(text, id)| text == Some(&format!("the text of row {id}"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_spread_and_the_table_answers_for_a_lost_node() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let mut cluster = Cluster::start(3, &[("t", &uri)]).await;
    let request = WarmRequest { table: "t".into(), ..Default::default() };
    let steps: Vec<_> = cluster.client.warm(request).await.unwrap().collect().await;
    let warmed = steps.last().unwrap().as_ref().unwrap().clone();
    assert_eq!((warmed.extents_failed, warmed.extents_done), (0, warmed.extents_total));
    let ids: Vec<i64> = (0..3000).map(|i| i * 7919 % ROWS).collect();
    check(&cluster.client, &ids).await;
    let mut extents = 0;
    for io in &cluster.io {
        let described = io.describe().await;
        assert!(described.extents > 0, "each node owns some chunks");
        assert!(total(&described, |c| c.rows) > 0, "each node serves some rows");
        assert_eq!(total(&described, |c| c.table_rows), 0);
        extents += described.extents;
    }
    assert_eq!(extents, warmed.extents_total, "each chunk is on one node");

    let lost = cluster.io.pop().unwrap();
    stop_io(lost.node).await;
    tokio::time::timeout(Duration::from_secs(20), check(&cluster.client, &ids)).await.unwrap();
    let status = cluster.client.status().await.unwrap();
    let reachable: Vec<_> = status.io_nodes.iter().map(|node| node.reachable).collect();
    assert_eq!(reachable.iter().filter(|r| **r).count(), 2, "{reachable:?}");
    cluster.stop().await;
}
