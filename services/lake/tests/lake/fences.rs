//! Tests that a table's reader opens only files in the table's folder, and others that it is configured to read.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use address::RowAddr;
use arrow::array::{AsArray, Int32Array, RecordBatch, RecordBatchIterator};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use lake::{AlsoReads, Lake, LakeError, LakeOptions, TableUri, UriPrefix};
use lance::Dataset;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;

use crate::fixture::{STABLE_IDS, TablePlace, lake, names, rows, write};

const SECRET: &str = "a token that only this process may read";

/// Writes a table whose rows are numbers and external blobs at the URIs `blobs`.
async fn external(uri: &str, blobs: &[String]) {
    let mut array = BlobArrayBuilder::new(blobs.len());
    for blob in blobs {
        array.push_uri(blob).unwrap();
    }
    let ids = Int32Array::from_iter_values(0..blobs.len() as i32);
    let fields = vec![Field::new("id", DataType::Int32, false), blob_field("blob", true)];
    let schema = Arc::new(Schema::new(fields));
    let batch =
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), array.finish().unwrap()]).unwrap();
    let params = WriteParams {
        data_storage_version: Some(LanceFileVersion::V2_2),
        allow_external_blob_outside_bases: true,
        ..Default::default()
    };
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// Starts a listener that counts connections. Returns its port and the count.
async fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, seen) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, seen)
}

/// Checks that a read was refused, and that the error shows nothing of the file.
fn expect_refused(error: &LakeError, what: &str) {
    assert!(matches!(error, LakeError::OutsideTable { .. }), "{what}: {error:?}");
    let fault = lake::fault_of(error);
    assert_eq!(fault.reason, wire::Reason::StoreRefused, "{what}");
    assert!(!error.to_string().contains(SECRET), "{what}: {error}");
}

#[tokio::test]
async fn external_blobs_elsewhere_are_refused_and_the_rest_of_the_table_is_read() {
    let place = TablePlace::new();
    let secret = place.file("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let own = Path::new(&place.uri()).join("attached");
    std::fs::create_dir_all(place.uri()).unwrap();
    std::fs::write(&own, "the table's own").unwrap();
    let (port, seen) = listener().await;
    let link = Path::new(&place.uri()).join("link");
    symlink(&secret, &link).unwrap();
    let blobs = [
        format!("file://{}", own.display()),
        format!("file://{}", secret.display()),
        "file:///proc/self/environ".into(),
        format!("file://{}/../secret", place.uri()),
        format!("file://{}/%2e%2e/secret", place.uri()),
        format!("file://{}", link.display()),
        format!("file://localhost{}", secret.display()),
        format!("file+uring://{}", secret.display()),
        format!("file-object-store://{}", secret.display()),
        format!("s3://127.0.0.1:{port}/x"),
        "s3://another-bucket/x".into(),
        "gs://another-bucket/x".into(),
        "memory://x".into(),
    ];
    external(&place.uri(), &blobs).await;
    let storage = [
        ("aws_endpoint", format!("http://127.0.0.1:{port}")),
        ("azure_storage_account_name", "account".into()),
        ("azure_endpoint", format!("http://127.0.0.1:{port}")),
    ];
    let storage = storage.map(|(name, value)| (name.to_owned(), value)).into();
    let lake = Lake::new(LakeOptions { storage, ..Default::default() });
    let table = lake.open(&place.uri()).await.unwrap();
    let ids: Vec<_> = (0..blobs.len()).map(|row| RowAddr::new(0, row as u32)).collect();
    let read = table.take(&ids, &names(&["id"])).await.unwrap();
    assert_eq!(read.num_rows(), blobs.len());
    let first = table.take(&ids[..1], &names(&["blob"])).await.unwrap();
    assert_eq!(first.column(0).as_binary::<i64>().value(0), b"the table's own");
    for (row, blob) in blobs.iter().enumerate().skip(1) {
        let error = table.take(&ids[row..=row], &names(&["id", "blob"])).await.unwrap_err();
        expect_refused(&error, blob);
    }
    // A fill reads chunks.
    let error = table.read_chunk(0, 0..ids.len() as u32, &names(&["blob"])).await.unwrap_err();
    expect_refused(&error, "a chunk");
    let chunk = table.read_chunk(0, 0..ids.len() as u32, &names(&["id"])).await.unwrap();
    assert_eq!(chunk.column(0).as_primitive::<Int32Type>().len(), ids.len());
    assert_eq!(seen.load(Ordering::SeqCst), 0, "requests left the node");
}

#[tokio::test]
async fn links_in_a_tables_folder_are_not_followed() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 20)], STABLE_IDS).await;
    let folder = Path::new(&place.uri()).to_owned();
    let [data, versions] = ["data", "_versions"].map(|name| folder.join(name));
    let file = std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().path();
    let moved = place.file("moved");
    std::fs::rename(&file, &moved).unwrap();
    symlink(&moved, &file).unwrap();
    let read = async || {
        let table = lake().open(&place.uri()).await?;
        table.read_chunk(0, 0..20, &names(&["id"])).await
    };
    expect_refused(&read().await.unwrap_err(), "a data file");
    std::fs::remove_file(&file).unwrap();
    std::fs::rename(&moved, &file).unwrap();
    assert_eq!(read().await.unwrap().num_rows(), 20);
    std::fs::rename(&data, &moved).unwrap();
    symlink(&moved, &data).unwrap();
    expect_refused(&read().await.unwrap_err(), "a folder");
    std::fs::remove_file(&data).unwrap();
    std::fs::rename(&moved, &data).unwrap();
    std::fs::rename(&versions, &moved).unwrap();
    symlink(&moved, &versions).unwrap();
    expect_refused(&lake().open(&place.uri()).await.unwrap_err(), "the manifests");
    std::fs::remove_file(&versions).unwrap();
    std::fs::rename(&moved, &versions).unwrap();
    // A reader of a FIFO would wait for a writer.
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    expect_refused(&read().await.unwrap_err(), "a FIFO");
}

#[tokio::test]
async fn a_link_to_a_table_is_that_table() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 20)], STABLE_IDS).await;
    let link = place.file("link");
    symlink(place.uri(), &link).unwrap();
    let table = lake().open(link.to_str().unwrap()).await.unwrap();
    let real = std::fs::canonicalize(place.uri()).unwrap();
    assert_eq!(table.uri(), real.to_str().unwrap());
    assert_eq!(table.read_chunk(0, 0..20, &names(&["id"])).await.unwrap().num_rows(), 20);
}

#[tokio::test]
async fn a_shallow_clone_is_read_if_it_may_read_its_base() {
    let place = TablePlace::new();
    let mut base = write(&place.uri(), &[rows(0, 20)], STABLE_IDS).await;
    let clone = place.file("clone").to_str().unwrap().to_owned();
    base.shallow_clone(&clone, 1, None).await.unwrap();
    let read = async |also_reads: Vec<AlsoReads>| {
        let lake = Lake::new(LakeOptions { also_reads, ..Default::default() });
        lake.open(&clone).await?.read_chunk(0, 0..20, &names(&["id"])).await
    };
    expect_refused(&read(vec![]).await.unwrap_err(), "a base elsewhere");
    let prefixes = vec![UriPrefix::of_config(&place.uri()).unwrap()];
    let allow = |table: &str| {
        vec![AlsoReads { table: TableUri::parse(table).unwrap(), prefixes: prefixes.clone() }]
    };
    assert_eq!(read(allow(&clone)).await.unwrap().num_rows(), 20);
    expect_refused(&read(allow("/another/table")).await.unwrap_err(), "allowed to another table");
}
