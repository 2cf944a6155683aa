use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use lake::{LakeOptions, TableFolder};
use lance::Dataset;
use wire::Reason;

use super::*;

const ASKED: AskedVersion<'_> = AskedVersion { table: "t", branch: "", version: 0 };

/// Creates a table in `folder`, and returns a configuration that has it by the name `t`.
async fn config(folder: &Path) -> QueryConfig {
    let uri = folder.join("t.lance").to_str().unwrap().to_owned();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let schema = rows.schema();
    Dataset::write(RecordBatchIterator::new([Ok(rows)], schema), &uri, None).await.unwrap();
    let table = TableConfig { uri, ..Default::default() };
    QueryConfig { tables: [("t".to_owned(), table)].into(), ..Default::default() }
}

fn catalog(config: &QueryConfig) -> Catalog {
    Catalog::new(Lake::new(LakeOptions::default()), config, Handle::current())
}

fn unreachable() -> Fault {
    Fault::new(Reason::StoreUnreachable, "the store hangs")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_share_the_failure_of_the_attempt_that_they_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&config(folder.path()).await);
    let (_, entry) = catalog.entry("t", None).await.unwrap();
    let fault = entry.set_fault(unreachable());

    let mut attempt = entry.opening.lock().await;
    let fails = async {
        *attempt = Some(FailedAttempt::ended_now(&fault));
        drop(attempt);
    };
    let (first, second, ()) = tokio::join!(catalog.open(ASKED), catalog.open(ASKED), fails);
    for failed in [first, second] {
        assert_eq!(failed.map(drop).unwrap_err().to_string(), fault.to_string());
    }
    // The caller of the next attempt leaves before it ends, so the attempt has no failure to share.
    let attempt = entry.opening.lock().await;
    let (opened, ()) = tokio::join!(catalog.open(ASKED), async { drop(attempt) });
    assert_eq!(opened.map(|open| open.version()).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_a_folder_is_opened_though_its_caller_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let named = config(folder.path()).await;
    let folders = vec![TableFolder::of_config(folder.path().to_str().unwrap()).unwrap()];
    let catalog = catalog(&QueryConfig { folders, tables: BTreeMap::new(), ..named });
    catalog.list_folders().await;
    let (_, entry) = catalog.entry("t", None).await.unwrap();
    catalog.refresh().await;
    assert!(entry.state().current.is_none(), "nobody has asked for it");

    let attempt = entry.opening.lock().await;
    assert!(catalog.open(ASKED).now_or_never().is_none());
    drop(attempt);
    catalog.refresh().await;
    assert!(entry.state().current.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_wait_for_an_attempt_share_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&config(folder.path()).await);
    catalog.refresh().await;
    let open = catalog.open(ASKED).await.unwrap();
    let (_, entry) = catalog.entry("t", None).await.unwrap();

    let mut attempt = entry.following.lock().await;
    let fault = unreachable();
    let fails = async {
        *attempt = Some(FailedAttempt::ended_now(&fault));
        drop(attempt);
    };
    let (first, second, ()) = tokio::join!(catalog.catch_up(&open), catalog.catch_up(&open), fails);
    assert_eq!((first, second), (Err(fault.clone()), Err(fault)));
    // A later caller makes an attempt of its own.
    assert_eq!(catalog.catch_up(&open).await, Ok(()));
    assert!(entry.following.lock().await.is_none());
}
