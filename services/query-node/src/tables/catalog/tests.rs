use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use lake::LakeOptions;
use lance::Dataset;
use wire::Reason;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_wait_for_an_attempt_share_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_owned();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let schema = rows.schema();
    Dataset::write(RecordBatchIterator::new([Ok(rows)], schema), &uri, None).await.unwrap();
    let table = TableConfig { uri, ..Default::default() };
    let config = QueryConfig { tables: [("t".to_owned(), table)].into(), ..Default::default() };
    let lake = Lake::new(LakeOptions::default());
    let catalog = Catalog::new(lake, &config, Handle::current());
    catalog.refresh().await;
    let open = catalog.open(AskedVersion { table: "t", branch: "", version: 0 }).await.unwrap();
    let (_, entry) = catalog.entry("t", None).await.unwrap();

    let mut attempt = entry.following.lock().await;
    let fault = Fault::new(Reason::StoreUnreachable, "the store hangs");
    let fails = async {
        *attempt = Some(FailedAttempt { ended: Instant::now(), fault: fault.clone() });
        drop(attempt);
    };
    let (first, second, ()) = tokio::join!(catalog.catch_up(&open), catalog.catch_up(&open), fails);
    assert_eq!((first, second), (Err(fault.clone()), Err(fault)));
    // A later caller makes an attempt of its own.
    assert_eq!(catalog.catch_up(&open).await, Ok(()));
    assert!(entry.following.lock().await.is_none());
}
