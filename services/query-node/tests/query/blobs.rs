//! Tests blobs over plain HTTP: descriptors, whole blobs, and ranges. The oracles are the bytes that were written and,
//! for descriptors, Lance's own scan.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{
    Array, ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field, Schema};
use bytesize::ByteSize;
use client::query::SearchRequest;
use hyper::Method;
use lance::Dataset;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;
use query_node::QueryNode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::{Answer, get_with, post, request, send};
use crate::keys::with_metrics;
use crate::node::{config, metrics, serve, serve_with};
use crate::operate::metric;
use crate::table::TestTable;

const ROWS: usize = 40;

/// Returns the blob of a row: null, empty, small, or larger than a piece of an answer.
fn contents(row: usize) -> Option<Vec<u8>> {
    match row {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some((0..(5 << 20) / 2).map(|at: u32| (at % 251) as u8).collect()),
        _ => Some(vec![row as u8; row * 10]),
    }
}

fn field_of(is_v2: bool) -> Field {
    let metadata = HashMap::from([("lance-encoding:blob".to_owned(), "true".to_owned())]);
    match is_v2 {
        true => blob_field("image", true),
        false => Field::new("image", DataType::LargeBinary, true).with_metadata(metadata),
    }
}

fn rows(is_v2: bool) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let blobs: ArrayRef = match is_v2 {
        false => Arc::new(LargeBinaryArray::from_iter((0..ROWS).map(contents))),
        true => {
            let mut blobs = BlobArrayBuilder::new(ROWS);
            for row in 0..ROWS {
                match contents(row) {
                    None => blobs.push_null().unwrap(),
                    Some(bytes) if bytes.is_empty() => blobs.push_empty().unwrap(),
                    Some(bytes) => blobs.push_bytes(bytes).unwrap(),
                }
            }
            blobs.finish().unwrap()
        }
    };
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false), field_of(is_v2)]);
    RecordBatch::try_new(Arc::new(schema), vec![ids, blobs]).unwrap()
}

/// Creates a table of blobs, in which row 9 is deleted.
pub async fn table(is_v2: bool) -> TestTable {
    let table = TestTable::nowhere();
    let rows = rows(is_v2);
    let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let version = if is_v2 { LanceFileVersion::V2_2 } else { LanceFileVersion::V2_1 };
    let params = WriteParams { data_storage_version: Some(version), ..Default::default() };
    let mut dataset = Dataset::write(reader, &table.uri, Some(params)).await.unwrap();
    dataset.delete("id = 9").await.unwrap();
    table
}

async fn bytes(node: &QueryNode, row: u64, range: Option<&str>) -> Answer {
    let headers: Vec<_> = range.map(|range| ("range", range.to_owned())).into_iter().collect();
    get_with(node, &format!("/v1/table/t/blob/image/{row}/bytes"), &headers).await
}

/// Requests the bytes of a blob, and reads only the head of the answer. The blob is larger than what the node makes
/// ahead and the buffers of the connection hold, so the answer is not at its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_waits_for_its_reader_is_no_work_in_progress() {
    let table = TestTable::nowhere();
    let blob: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([vec![7; 64 << 20]]));
    let schema = Arc::new(Schema::new(vec![field_of(false)]));
    let rows = RecordBatch::try_new(Arc::clone(&schema), vec![blob]).unwrap();
    let reader = RecordBatchIterator::new([Ok(rows)], schema);
    let data_storage_version = Some(LanceFileVersion::V2_1);
    let params = WriteParams { data_storage_version, ..Default::default() };
    Dataset::write(reader, &table.uri, Some(params)).await.unwrap();
    let (node, _client) = serve_with(with_metrics(config(&[("t", &table)]))).await;
    let mut stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let request = "GET /v1/table/t/blob/image/0/bytes HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(metric(&node, "bireme_query_requests_under_way").await, 0.0);
    let ended = |text: &str| text.contains("rpc_method=\"http/query\"");
    assert!(!ended(&metrics(&node).await), "the call has not ended");
    drop(stream);
    let ends = async {
        while !ended(&metrics(&node).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ends).await.expect("the call ends");
    assert_eq!(metric(&node, "bireme_query_requests_under_way").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_have_descriptors_and_other_calls_the_bytes() {
    for is_v2 in [false, true] {
        let table = table(is_v2).await;
        let (node, client) = serve(&[("t", &table)]).await;
        let lance = Dataset::open(&table.uri).await.unwrap();
        let scanned = lance.scan().with_row_address().try_into_batch().await.unwrap();
        let described = post(&node, "/v1/table/t/describe/", json!({})).await.json();
        let image = &described["schema"]["fields"][1];
        assert_eq!(image["type"]["type"], if is_v2 { "struct" } else { "large_binary" }, "{image}");
        let (name, value) = match is_v2 {
            true => ("ARROW:extension:name", "lance.blob.v2"),
            false => ("lance-encoding:blob", "true"),
        };
        assert_eq!(image["metadata"][name], value, "{image}");

        for columns in [json!(null), json!(["id", "image"]), json!({"id": "id", "image": "image"})]
        {
            let body = json!({"vector": [], "k": 100, "columns": columns, "with_row_id": true});
            let found = post(&node, "/v1/table/t/query/", body).await;
            let found = found.rows();
            assert_eq!(found["image"].data_type(), scanned["image"].data_type());
            assert!(found["image"].as_ref() == scanned["image"].as_ref());
            assert!(found["_rowid"].as_ref() == scanned["_rowaddr"].as_ref());
        }
        let body = json!({"vector": [], "k": 3, "offset": 2, "columns": ["image"]});
        let found = post(&node, "/v1/table/t/query/", body).await;
        let found = found.rows();
        assert_eq!((found.num_columns(), found.num_rows()), (1, 3));
        let sizes = found["image"].as_struct().column_by_name("size").unwrap();
        let sizes = sizes.as_primitive::<UInt64Type>();
        let wanted = [2, 3, 4].map(|row| contents(row).unwrap().len() as u64);
        assert_eq!(sizes.values(), &wanted);
        let body = json!({"vector": [], "k": 3, "order_by": [{"column_name": "image"}]});
        let refused = post(&node, "/v1/table/t/query/", body).await;
        assert_eq!(refused.status.as_u16(), 400);

        // By gRPC blobs are whole.
        let columns = vec!["image".to_owned()];
        let filter = "id = 3".to_owned();
        let table = "t".to_owned();
        let whole = SearchRequest { table, filter, columns, k: 1, ..Default::default() };
        let whole = client.search(whole).await.unwrap().rows;
        assert_eq!(whole["image"].as_binary::<i64>().value(0), contents(3).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_blobs_of_several_rows() {
    for is_v2 in [false, true] {
        let table = table(is_v2).await;
        let (node, _client) = serve(&[("t", &table)]).await;
        let fetch = async |column: &str, ids: &[u64]| {
            let body = json!({"version": null, "column": column, "row_ids": ids});
            post(&node, "/v1/table/t/fetch_blobs/", body).await
        };
        let ids = [5, 0, 2, 5, 1];
        let found = fetch("image", &ids).await;
        assert_eq!(found.media_type, "application/vnd.apache.arrow.stream");
        let found = found.rows();
        let blobs = found["image"].as_binary::<i64>();
        for (at, id) in ids.into_iter().enumerate() {
            let wanted = contents(id as usize);
            assert_eq!(blobs.is_valid(at).then(|| blobs.value(at)), wanted.as_deref(), "{id}");
        }
        assert_eq!(fetch("image", &[]).await.rows().num_rows(), 0);
        let large = vec![2; 27];
        let many = vec![3; 1025];
        for (column, ids, said) in [
            ("image", &[9][..], "not in version"),
            ("image", &[1 << 40][..], "not in version"),
            ("id", &[1][..], "column \"id\" holds no blobs"),
            ("imag", &[1][..], "imag"),
            ("image", &large, "fetch_blobs accepts at most 67108864 total blob bytes"),
            ("image", &many, "`row_ids` has 1025 ids; fetch_blobs accepts at most 1024"),
        ] {
            let refused = fetch(column, ids).await;
            let error = refused.json()["error"].as_str().unwrap().to_owned();
            assert_eq!(refused.status.as_u16(), 400, "{error}");
            assert!(error.contains(said), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_little_memory_returns_fewer_bytes_of_blobs_at_once() {
    let table = table(false).await;
    let mut config = config(&[("t", &table)]);
    (config.cores, config.memory) = (1, ByteSize::mib(512));
    (config.index_cache, config.key_index) = (ByteSize::mib(64), ByteSize::b(0));
    let (node, _client) = serve_with(config).await;
    let fetch = async |ids: &[u64]| {
        let body = json!({"column": "image", "row_ids": ids});
        post(&node, "/v1/table/t/fetch_blobs/", body).await
    };
    // The parts take 192 + 64 + 64 + 32 + 32 MiB of 512, the last of which is for callers. Callers may also hold half
    // of the other 128 MiB, 96 MiB in total, and the blobs of one call take at most an eighth of that.
    let refused = fetch(&[2; 5]).await;
    let error = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(error.ends_with("accepts at most 12582912 total blob bytes"), "{error}");
    assert_eq!(refused.status.as_u16(), 400);
    assert_eq!(fetch(&[2; 4]).await.rows().num_rows(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_has_the_blobs_of_its_parent_but_no_ranges_of_those_of_version_1() {
    for is_v2 in [false, true] {
        let table = table(is_v2).await;
        let mut main = Dataset::open(&table.uri).await.unwrap();
        main.create_branch("exp", main.version_id(), None).await.unwrap();
        let (node, _client) = serve(&[("t", &table)]).await;
        let body = json!({"column": "image", "row_ids": [5], "branch": "exp"});
        let whole = post(&node, "/v1/table/t/fetch_blobs/", body).await.rows();
        assert_eq!(whole["image"].as_binary::<i64>().value(0), contents(5).unwrap());
        let path = "/v1/table/t/blob/image/5/bytes?branch=exp";
        let range = get_with(&node, path, &[("range", "bytes=0-9".to_owned())]).await;
        if is_v2 {
            assert_eq!(range.status.as_u16(), 206);
            assert_eq!(range.body, contents(5).unwrap()[..10]);
            continue;
        }
        assert_eq!(range.status.as_u16(), 400);
        let error = range.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("ranges of blobs of version 1"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_one_blob() {
    for is_v2 in [false, true] {
        let table = table(is_v2).await;
        let (node, _client) = serve(&[("t", &table)]).await;
        let large = contents(2).unwrap();
        let size = large.len();
        for (range, wanted) in [
            ("bytes=0-0", 0..1),
            ("bytes=100-299", 100..300),
            ("bytes=1000000-2500000", 1_000_000..2_500_001),
            ("bytes=7-", 7..size),
            ("bytes=-5", size - 5..size),
            ("bytes=9-99999999999", 9..size),
        ] {
            let answer = bytes(&node, 2, Some(range)).await;
            assert_eq!(answer.status.as_u16(), 206, "{range}");
            let of = format!("bytes {}-{}/{size}", wanted.start, wanted.end - 1);
            assert_eq!(answer.headers["content-range"], of.as_str());
            assert_eq!(answer.headers["content-length"], wanted.len().to_string().as_str());
            assert!(answer.headers.contains_key("x-lancedb-version"));
            assert!(answer.body == large[wanted], "{range}");
        }
        let whole = bytes(&node, 2, None).await;
        assert_eq!((whole.status.as_u16(), whole.body.len()), (200, size));
        assert_eq!(bytes(&node, 0, Some("bytes=0-0")).await.status.as_u16(), 204);
        for (row, range, of) in [
            (1, "bytes=0-0", "bytes */0".to_owned()),
            (2, "bytes=9999999-", format!("bytes */{size}")),
        ] {
            let answer = bytes(&node, row, Some(range)).await;
            assert_eq!(answer.status.as_u16(), 416);
            assert_eq!(answer.headers["content-range"], of.as_str());
        }
        for (row, status, bytes) in
            [(2, 200, size.to_string()), (1, 200, "0".into()), (0, 204, "0".into())]
        {
            let path = format!("/v1/table/t/blob/image/{row}/bytes");
            let answer = send(&node, request(Method::HEAD, &path, "")).await;
            let length =
                answer.headers.get("content-length").map_or("0", |it| it.to_str().unwrap());
            assert_eq!((answer.status.as_u16(), length), (status, &*bytes), "{row}");
            assert!(answer.body.is_empty() && answer.version.is_some());
        }
        let empty = bytes(&node, 1, None).await;
        assert_eq!((empty.status.as_u16(), empty.body.len()), (200, 0));
        for (row, range, said) in [
            (9, None, "not in version"),
            (2, Some("bytes=5-2"), "`range` is not one range of bytes"),
        ] {
            let refused = bytes(&node, row, range).await;
            let error = refused.json()["error"].as_str().unwrap().to_owned();
            assert_eq!(refused.status.as_u16(), 400, "{error}");
            assert!(error.contains(said), "{error}");
        }
        let path = "/v1/table/t/blob/image/x/bytes";
        assert_eq!(get_with(&node, path, &[]).await.status.as_u16(), 400);
        let path = "/v1/table/t/blob/image/2/bytes?version=0";
        assert_eq!(get_with(&node, path, &[]).await.status.as_u16(), 404);
        let path = "/v1/table/t/blob/image/2/bytes?version=1&branch=none";
        assert_eq!(get_with(&node, path, &[]).await.status.as_u16(), 404);
    }
}
