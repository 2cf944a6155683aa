//! Tests that the contents of hidden rows neither fail an answer nor appear in an error: large or damaged rows, words,
//! blobs, floating-point values, and what was measured on all rows.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema};
use client::query::{
    By, CountRequest, LookupOpen, QueryClient, SearchRequest, TakeRequest, Text, TextKind,
    TextMatch,
};
use lake::{IndexRequest, Metric};
use lance::Dataset;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance::dataset::{NewColumnTransform, WriteParams};
use lance::index::DatasetIndexExt;
use lance_file::version::LanceFileVersion;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use serde_json::json;
use wire::fetch::Opened;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::query::{OnMissing, TextBoolean};
use wire::{Fault, Reason};

use super::{PART, Served, by_filter, get_of, guarded, is_shown, lookup_of, rows_of, take};
use crate::access::secret;
use crate::http::post_with;
use crate::lookups::{of_rows, text_keys};
use crate::node::{ids, near, of, serve_with, text_of};
use crate::table::{FIRST, ROWS, TestTable, address_of, key, vector};

/// Returns a node that serves `table` under a policy, a caller who sees `part`, and one who sees everything.
async fn served(
    table: &TestTable,
    part: &str,
) -> (tempfile::TempDir, query_node::QueryNode, QueryClient, QueryClient) {
    let (folder, config) = guarded(table, part);
    let (node, anonymous) = serve_with(config).await;
    node.ready().await;
    let with_key = |name: &str| anonymous.clone().with_token(&secret(name)).unwrap();
    (folder, node, with_key("one"), with_key("two"))
}

/// The budget of a fuzzy word is for the words of all rows, so words of hidden rows would use it up.
#[tokio::test(flavor = "multi_thread")]
async fn fuzzy_words_are_refused_beside_hidden_rows() {
    let served = Served::new(true).await;
    let fuzzy =
        TextMatch { words: "oax".into(), fuzziness: 1, max_expansions: 1, ..Default::default() };
    let automatic = TextMatch { words: "oak".into(), fuzziness_auto: true, ..Default::default() };
    let within = |query| {
        TextKind::Boolean(TextBoolean {
            must: vec![of(TextKind::Match(query))],
            ..Default::default()
        })
    };
    for kind in [TextKind::Match(fuzzy.clone()), TextKind::Match(automatic), within(fuzzy)] {
        let text: Text = text_of(kind);
        let columns = vec!["id".to_owned()];
        let request = SearchRequest { by: Some(By::Text(text)), columns, ..near(vector(1), 3) };
        let fault = served.part.search(request.clone()).await.unwrap_err();
        assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
        assert!(
            fault.message.contains("fuzzy words are not available under a grant that shows only"),
            "{fault}"
        );
        served.whole.search(request).await.unwrap();
    }
}

/// A hidden row whose columns can't be read is like one that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_row_that_is_damaged_fails_nothing() {
    let table = TestTable::plain().await;
    let mut dataset = Dataset::open(&table.uri).await.unwrap();
    let extra = NewColumnTransform::SqlExpressions(vec![("extra".into(), "id * 2".into())]);
    dataset.add_columns(extra, None, None).await.unwrap();
    let (_folder, _node, part, whole) =
        served(&table, "columns = [\"id\", \"key\", \"extra\"]\nrows = \"tag = 'tag-1'\"").await;
    let first = dataset.get_fragment(0).unwrap();
    let file = &first.metadata().files.last().unwrap().path;
    std::fs::remove_file(Path::new(&table.uri).join("data").join(file)).unwrap();
    let wanted: Vec<i64> =
        (0..ROWS).filter(|&id| if id < FIRST { !is_shown(id) } else { true }).step_by(7).collect();
    let found: Vec<i64> = wanted.iter().copied().filter(|&id| is_shown(id)).collect();
    assert!(found.len() > 20 && found.len() < wanted.len() - 20);
    let columns = vec!["extra".to_owned(), "id".into()];
    let get = client::query::GetRequest {
        columns: columns.clone(),
        ..get_of("key", wanted.iter().copied().map(key).collect())
    };
    let gotten = rows_of(part.get(get.clone()).await.unwrap());
    assert_eq!((ids(&gotten.0), gotten.1.len()), (found.clone(), wanted.len() - found.len()));
    let addrs = wanted.iter().map(|&id| address_of(id).to_u64()).collect();
    let take = TakeRequest { columns, ..take(addrs, OnMissing::Skip) };
    let taken = part.take(take.clone()).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches.iter().flat_map(ids).collect::<Vec<_>>(), found);
    let of_whole = whole.get(get.clone()).await.unwrap_err();
    let fault = &of_whole;
    assert!(fault.message.contains("Not found") && fault.message.contains("data/"), "{fault}");

    // A partial request does not name hidden rows. A shown row that can't be read fails it as a whole.
    let partial = client::query::GetRequest { partial: true, ..get };
    let gotten = part.get(partial.clone()).await.unwrap();
    assert!(gotten.unread.is_none(), "{gotten:?}");
    let gotten = rows_of(gotten);
    assert_eq!((ids(&gotten.0), gotten.1.len()), (found.clone(), wanted.len() - found.len()));
    let (key_column, columns) = ("key".to_owned(), partial.columns.clone());
    let open = LookupOpen { table: "t".into(), key_column, columns, ..Default::default() };
    let lookup = lookup_of(&part, LookupOpen { partial: true, ..open }).await;
    let looked_up = lookup.get(text_keys(&partial.keys)).await.unwrap();
    assert!(looked_up.unread.is_none(), "{looked_up:?}");
    assert_eq!(looked_up.not_found, gotten.1);
    assert_eq!(ids(&of_rows(looked_up.rows)), found);
    let shown = (0..FIRST).find(|&id| is_shown(id)).unwrap();
    let keys = vec![key(shown), key(found[0])];
    let fault = lookup.get(text_keys(&keys)).await.unwrap_err();
    assert_eq!(fault.reason, of_whole.reason, "{fault}");
    let damaged = client::query::GetRequest { keys, ..partial };
    let fault = part.get(damaged).await.unwrap_err();
    assert_eq!(fault.reason, of_whole.reason, "{fault}");
}

/// A hidden row's blob in a file that the table may not read is not read.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_row_that_may_not_be_read_fails_nothing() {
    let (table, folder) = (TestTable::nowhere(), tempfile::tempdir().unwrap());
    let (own, other) = (Path::new(&table.uri).join("own"), folder.path().join("other"));
    std::fs::create_dir_all(&table.uri).unwrap();
    let mut blobs = BlobArrayBuilder::new(2);
    for file in [&own, &other] {
        std::fs::write(file, "bytes").unwrap();
        blobs.push_uri(format!("file://{}", file.display())).unwrap();
    }
    let fields = vec![Field::new("id", DataType::Int64, false), blob_field("image", true)];
    let schema = Arc::new(Schema::new(fields));
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(0..2)), blobs.finish().unwrap()];
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let params = WriteParams {
        data_storage_version: Some(LanceFileVersion::V2_2),
        allow_external_blob_outside_bases: true,
        ..Default::default()
    };
    let rows = RecordBatchIterator::new([Ok(rows)], schema);
    Dataset::write(rows, &table.uri, Some(params)).await.unwrap();
    let (_folder, _node, part, whole) = served(&table, "rows = \"id < 1\"").await;
    let columns = vec!["id".to_owned(), "image".into()];
    let take = TakeRequest { columns, ..take(vec![0, 1], OnMissing::Skip) };
    let taken = part.take(take.clone()).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches.iter().flat_map(ids).collect::<Vec<_>>(), [0]);
    assert_eq!(taken.batches[0]["image"].as_binary::<i64>().value(0), b"bytes");
    assert_eq!(taken.missing, [1]);
    let fault = whole.take(take).await.err().unwrap();
    assert_eq!(fault.reason, Reason::StoreRefused, "{fault}");
}

/// An I/O node's errors about its memory depend on the size of the rows that it reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_node_does_not_tell_how_large_hidden_rows_are() {
    let io = crate::fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            let said = "replies hold 123456 bytes; try again later";
            let error = Some(Fault::new(Reason::Overloaded, said).into());
            vec![ResponseKind::Opened(Opened { handle: open.handle, error, ..Default::default() })]
        }
        _ => Vec::new(),
    });
    let table = TestTable::plain().await;
    let (_folder, mut config) = guarded(&table, PART);
    config.io_nodes = vec![io.await];
    let (_node, anonymous) = serve_with(config).await;
    let fault = async |name: &str| {
        let client = anonymous.clone().with_token(&secret(name)).unwrap();
        let taken = client.take(take(vec![address_of(1).to_u64()], OnMissing::Skip)).await;
        match taken {
            Ok(taken) => taken.collect().await.unwrap_err(),
            Err(fault) => fault,
        }
    };
    let (part, whole) = (fault("one").await, fault("two").await);
    assert!(whole.message.contains("123456"), "{whole}");
    assert_eq!((part.reason, whole.reason), (Reason::Overloaded, Reason::Overloaded));
    assert_eq!(part.message, "the node was too busy to answer; try again later");
}

/// A descriptor has the position of a blob in its file, from which the sizes of hidden blobs follow.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_not_described_beside_hidden_rows() {
    let table = crate::blobs::table(false).await;
    for (part, is_refused) in [("rows = \"id < 20\"", true), ("columns = [\"image\"]", false)] {
        let (_folder, node, ..) = served(&table, part).await;
        let headers = [("x-api-key", secret("one"))];
        for columns in [json!(null), json!(["image"]), json!({ "picture": "image" })] {
            let body = json!({ "vector": [], "k": 100, "columns": columns });
            let answer = post_with(&node, "/v1/table/t/query/", body, &headers).await;
            let said = String::from_utf8_lossy(&answer.body);
            assert_eq!(answer.status.as_u16(), if is_refused { 400 } else { 200 }, "{said}");
            assert!(!is_refused || said.contains("whose blobs can't be described"), "{said}");
        }
        let body = json!({ "vector": [], "k": 100, "columns": ["id"] });
        let answer = post_with(&node, "/v1/table/t/query/", body, &headers).await;
        assert_eq!(answer.status.is_success(), is_refused, "{part}");
    }
}

/// The recall was measured on all rows.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreached_recall_does_not_name_what_was_measured() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let (_folder, node, _, whole) = served(&table, PART).await;
    let curve = crate::recall::tuned(&whole, crate::recall::request()).await;
    crate::recall::keep(&table, &curve).await;
    drop(node);
    let (_folder, _node, part, whole) = served(&table, PART).await;
    let request = SearchRequest { recall: Some(0.9999), ..near(vector(5), 10) };
    let fault = whole.search(request.clone()).await.unwrap_err();
    assert!(fault.message.contains("the best recall@10 is "), "{fault}");
    let fault = part.search(request).await.unwrap_err();
    assert_eq!(fault.reason, Reason::RecallUnknown);
    let said = "recall 0.9999 in column `vector` of table `t`: no measured setting reaches it; ask for less, or for an \
                exact search";
    assert_eq!(fault.message, said);
}

/// An index, a scan and the evaluation for single rows agree about numbers that compare in more than one way.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_shows_the_same_floating_point_rows() {
    let values = [
        Some(f64::NAN),
        Some(-f64::NAN),
        Some(0.0),
        Some(-0.0),
        None,
        Some(1.5),
        Some(f64::INFINITY),
        Some(f64::NEG_INFINITY),
    ];
    let numbers = values.iter().cycle().take(80).copied().collect::<Float64Array>();
    let ids_of: ArrayRef = Arc::new(Int64Array::from_iter_values(0..80));
    let numbers: ArrayRef = Arc::new(numbers);
    let rows =
        RecordBatch::try_from_iter_with_nullable([("id", ids_of, false), ("x", numbers, true)]);
    let rows = rows.unwrap();
    for index in ["none", "BTREE", "bitmap"] {
        let table = TestTable::of(rows.clone()).await;
        match index {
            "BTREE" => table.index(IndexRequest::Scalar { column: "x".into() }).await,
            "bitmap" => {
                let mut dataset = Dataset::open(&table.uri).await.unwrap();
                let params = ScalarIndexParams::default();
                let made = dataset.create_index(&["x"], IndexType::Bitmap, None, &params, false);
                made.await.unwrap();
            }
            _ => {}
        }
        for rule in [
            "x = 0.0",
            "x = -0.0",
            "x != 0.0",
            "x < 0.5",
            "x > 0.5",
            "x >= 0.0",
            "x <= 0.0",
            "NOT x > 1.0",
            "x IN (0.0, 1.5)",
            "x BETWEEN 0.0 AND 2.0",
            "x IS NULL",
            "x IS NOT NULL",
        ] {
            let (_folder, _node, part, _) = served(&table, &format!("rows = \"{rule}\"")).await;
            let context = format!("{rule}, index: {index}");
            let taken = take((0..80).collect(), OnMissing::Skip);
            let taken = part.take(taken).await.unwrap().collect().await.unwrap();
            let taken: Vec<i64> = taken.batches.iter().flat_map(ids).collect();
            assert!(!taken.is_empty() && taken.len() < 80, "{context}: {taken:?}");
            let all = SearchRequest { k: 999, ..by_filter("id >= 0") };
            assert_eq!(ids(&part.search(all).await.unwrap().rows), taken, "{context}");
            let count = CountRequest { table: "t".into(), ..Default::default() };
            assert_eq!(part.count(count).await.unwrap().rows as usize, taken.len(), "{context}");
        }
    }
}
