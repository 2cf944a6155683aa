//! More than the node may hold: refused with a reason, and nothing is lost.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field};
use bytesize::ByteSize;
use futures::future::join_all;
use lance::Dataset;
use wire::Reason;

use crate::cluster::{Io, folder, soon, total};

const ROWS: usize = 4000;

async fn write(uri: &str) {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values = Float32Array::from_iter_values((0..ROWS * 512).map(|x| x as f32));
    let vectors = FixedSizeListArray::new(item, 512, Arc::new(values), None);
    let ids = Int64Array::from_iter_values(0..ROWS as i64);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, uri, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_over_the_memory_for_them_are_shed_and_the_rest_is_right() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| {
        config.reply_memory = ByteSize::mib(2);
        config.cores = 1;
    })
    .await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["vector", "id"]).await;
    // A megabyte each, all at once.
    let fetches = (0..40u32).map(|first| {
        let addrs = (0..500).map(|row| RowAddr::new(0, first + row * 7)).collect();
        let fetch = io.client.fetch(&projection, addrs, None, soon());
        async move { (first, fetch.await) }
    });
    let (mut served, mut shed) = (0, 0);
    for (first, outcome) in join_all(fetches).await {
        match outcome {
            Ok(reply) => {
                served += 1;
                let rows = reply.into_rows().unwrap();
                let ids = rows["id"].as_primitive::<Int64Type>().values();
                let expected = |row: usize| i64::from(first) + row as i64 * 7;
                assert!(ids.iter().enumerate().all(|(row, &id)| id == expected(row)));
            }
            Err(fault) => {
                shed += 1;
                assert_eq!(fault.reason, Reason::Overloaded, "{fault}");
            }
        }
    }
    println!("{served} served, {shed} shed");
    assert!(served > 0 && shed > 0);
    let described = io.describe().await;
    assert_eq!(total(&described, |c| c.shed), shed);
    assert_eq!(total(&described, |c| c.reply_bytes), 0, "all of it is given back");
    io.stop().await;
}
