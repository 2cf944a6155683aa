//! Tests calls that are refused under a grant for a part of a table, grants that do not fit their table, and policies
//! that change.

use client::query::{
    By, ListTagsRequest, ListVersionsRequest, NamedExpression, OrderBy, PlacementRequest,
    QueryClient, RowFormat, SearchRequest, TakeRequest, Vector, Vectors, WarmRequest,
};
use futures::StreamExt;
use lake::IndexRequest;
use serde_json::json;
use wire::query::{LookupOpen, OnMissing, TuneRequest};
use wire::{Fault, Reason};

use super::{PART, Served, by_filter, get_of, guarded, is_shown, lookup_of, shown, take};
use crate::access::secret;
use crate::http::{get_with, post_with};
use crate::lookups::{of_rows, text_keys};
use crate::node::{ids, near, serve_with, words};
use crate::table::{ROWS, TestTable, address_of, key, live, vector};

/// The error of a call that is not available.
const THIS_CALL: &str =
    "grant `some` shows a part of table `t`, and this call is not available under such a grant";

/// Positions count hidden rows.
#[tokio::test(flavor = "multi_thread")]
async fn positions_of_rows_are_refused() {
    let served = Served::new(true).await;
    let several = [31, 80].map(|id| Vector { values: vector(id) }).into();
    let computed = |sql: &str| vec![NamedExpression { name: "at".into(), sql: sql.into() }];
    let position = || vec!["_rowoffset".to_owned()];
    for by in [
        None,
        near(vector(31), 1).by,
        Some(By::Vectors(Vectors { vectors: several })),
        words("oak", 1).by,
    ] {
        let base = SearchRequest { by, ..by_filter("id < 900") };
        for request in [
            SearchRequest { columns: position(), ..base.clone() },
            SearchRequest { expressions: computed("_rowoffset"), ..base.clone() },
            SearchRequest { expressions: computed("_rowoffset + 1"), ..base.clone() },
        ] {
            let fault = served.part.search(request.clone()).await.unwrap_err();
            let refusal = "positions of rows are not available for a part of a table's rows";
            assert!(fault.message.contains(refusal), "{request:?}: {fault}");
            served.whole.search(request).await.unwrap();
        }
        let ordered = vec![OrderBy { column: "_rowoffset".into(), ..Default::default() }];
        let request = SearchRequest { order_by: ordered, ..base };
        served.part.search(request).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_are_refused() {
    let served = Served::new(false).await;
    let warm = WarmRequest { table: "t".into(), ..Default::default() };
    let placed = PlacementRequest { table: "t".into(), ..Default::default() };
    let tune = TuneRequest { table: "t".into(), ..Default::default() };
    for fault in [
        served.part.warm(warm).await.err().unwrap(),
        served.part.placement(placed).await.unwrap_err(),
        served.part.tune(tune).await.err().unwrap(),
        served.part.status().await.unwrap_err(),
    ] {
        // The grant can't have another permission than `read`.
        assert_eq!(fault.reason, Reason::Forbidden, "{fault}");
    }
    let explain = SearchRequest { explain: true, ..near(vector(1), 1) };
    let fault = served.part.search(explain).await.unwrap_err();
    assert_eq!(fault.reason, Reason::Forbidden);
    assert_eq!(
        fault.message,
        "grant `some` shows a part of table `t`, and `explain` is not available under such a grant"
    );
    let versions = ListVersionsRequest { table: "t".into(), ..Default::default() };
    let tags = ListTagsRequest { table: "t".into(), ..Default::default() };
    for fault in [
        served.part.list_versions(versions.clone()).await.unwrap_err(),
        served.part.list_tags(tags.clone()).await.unwrap_err(),
    ] {
        assert_eq!(fault.reason, Reason::Forbidden);
        assert_eq!(fault.message, THIS_CALL);
    }
    assert!(served.whole.list_versions(versions).await.unwrap().versions.len() > 1);
    served.whole.list_tags(tags).await.unwrap();
    let headers = [("x-api-key", secret("one"))];
    let query = json!({ "vector": [], "k": 1 });
    for (call, body) in [
        ("stats", json!({})),
        ("version/list", json!({})),
        ("version/describe", json!({})),
        ("tags/list", json!({})),
        ("branches/list", json!({})),
        ("index/list", json!({})),
        ("index/x/stats", json!({})),
        ("explain_plan", json!({ "query": query })),
        ("analyze_plan", query),
    ] {
        let path = format!("/v1/table/t/{call}/");
        let answer = post_with(&served.node, &path, body, &headers).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 403, "{call}: {text}");
        assert!(text.contains(THIS_CALL), "{call}: {text}");
    }
    let tag = json!({"tag": "a"});
    let (status, _, said) =
        post_with(&served.node, "/v1/table/t/describe", tag, &headers).await.error();
    assert!(status == 403 && said.contains("and `tag` is not available"), "{status}: {said}");
    let bytes = get_with(&served.node, "/v1/table/t/blob/id/0/bytes", &headers).await;
    assert!(!bytes.status.is_success());
}

/// A condition that can't be enforced for single rows shows nothing, and the caller does not learn of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_does_not_fit_the_table_shows_nothing() {
    let table = TestTable::plain().await;
    for part in [
        "rows = \"tog = 'tag-1'\"",
        "rows = \"id % 2 = 0\"",
        "rows = \"id < 5) OR (true\"",
        "rows = \"true\"",
        "rows = \"key LIKE 'row-1%'\"",
        "rows = \"id = 'x'\"",
        "columns = [\"nothing\", \"ID\"]",
        "columns = [\"nothing\"]\nrows = \"id < 5\"",
    ] {
        let (_folder, config) = guarded(&table, part);
        let (node, client) = serve_with(config).await;
        node.ready().await;
        let client = client.with_token(&secret("one")).unwrap();
        let listed = client.tables().await.unwrap();
        assert_eq!((listed.len(), listed[0].rows), (1, 0), "{part}");
        for fault in [
            client.search(near(vector(1), 1)).await.unwrap_err(),
            client.search(by_filter("id < 5")).await.unwrap_err(),
            client.get(get_of("key", vec![key(1)])).await.unwrap_err(),
            client.take(take(vec![1], OnMissing::Skip)).await.err().unwrap(),
            client.describe("t", 0).await.unwrap_err(),
        ] {
            assert_eq!(fault.reason, Reason::Forbidden, "{part}");
            assert_eq!(
                fault.message,
                "grant `some` shows a part of table `t` that does not fit this version of it; ask the operator of the \
                 node, whose log has the cause",
                "{part}"
            );
        }
    }
}

/// Faults of a table's files are for the operator: the cause may name files, columns or values.
#[tokio::test(flavor = "multi_thread")]
async fn causes_below_the_table_are_not_shown() {
    let served = Served::new(false).await;
    std::fs::remove_dir_all(format!("{}/data", served.tables[0].uri)).unwrap();
    let addrs = vec![address_of(1).to_u64()];
    let fault = async |client: &QueryClient| {
        let taken = client.take(take(addrs.clone(), OnMissing::Skip)).await;
        taken.err().unwrap()
    };
    let (part, whole) = (fault(&served.part).await, fault(&served.whole).await);
    assert!(whole.message.contains("data/"), "{whole}");
    assert_eq!(part.reason, whole.reason);
    let said = "table `t` can't be read; ask the operator of the node, whose log has the cause";
    assert_eq!((part.message.as_str(), part.metadata.len()), (said, 0));
}

async fn count(client: &QueryClient) -> Result<u64, Fault> {
    let request = client::query::CountRequest { table: "t".into(), ..Default::default() };
    client.count(request).await.map(|it| it.rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_policy_applies_to_the_next_request_of_a_stream() {
    let served = Served::new(true).await;
    let (send, requests) = futures::channel::mpsc::unbounded();
    let mut answers = served.part.get_stream(requests, RowFormat::Arrow).await.unwrap();
    let open = LookupOpen { table: "t".into(), columns: vec!["id".into()], ..Default::default() };
    let lookup = lookup_of(&served.part, open).await;
    let some: Vec<i64> = (1..40).filter(|id| id % 10 != 7).collect();
    let keys: Vec<String> = some.iter().copied().map(key).collect();
    let mut read = async || {
        send.unbounded_send(get_of("", keys.clone())).unwrap();
        let gotten = super::rows_of(answers.next().await.unwrap().unwrap());
        let looked_up = lookup.get(text_keys(&keys)).await.unwrap();
        let (gotten, looked_up) = (ids(&gotten.0), ids(&of_rows(looked_up.rows)));
        assert_eq!(gotten, looked_up);
        (gotten, count(&served.part).await.unwrap())
    };
    let of = |rest: i64| -> Vec<i64> { some.iter().copied().filter(|id| id % 3 == rest).collect() };
    assert_eq!(read().await, (of(1), shown().count() as u64));
    served.show(&PART.replace("tag-1", "tag-2")).await;
    let of_2 = live().filter(|id| id % 3 == 2).count() as u64;
    assert_eq!(read().await, (of(2), of_2));
    served.show("").await;
    assert_eq!(read().await, (some.clone(), live().count() as u64));
    served.show(PART).await;
    assert_eq!(read().await, (of(1), shown().count() as u64));
    // The columns of the open projection are hidden now.
    served.show("columns = [\"key\"]").await;
    let fault = lookup.get(text_keys(&keys)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::ColumnNotFound, "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_take_ends_when_the_policy_shows_another_part() {
    let served = Served::new(false).await;
    let addrs: Vec<u64> = (0..300_000).map(|at| address_of(at % ROWS).to_u64()).collect();
    let request =
        TakeRequest { columns: vec!["id".into(), "vector".into()], ..take(addrs, OnMissing::Skip) };
    let mut taken = served.part.take(request).await.unwrap();
    let first = taken.next().await.unwrap().unwrap();
    assert!(first.batches.iter().flat_map(ids).all(is_shown));
    served.show(&PART.replace("tag-1", "tag-2")).await;
    let fault = loop {
        match taken.next().await {
            Ok(Some(part)) => assert!(part.batches.iter().flat_map(ids).all(is_shown)),
            Ok(None) => panic!("the stream went on"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.reason, Reason::Forbidden);
    assert!(
        fault.message.starts_with("the access policy now shows another part of table `t`"),
        "{fault}"
    );
}

/// A version of the table has its own values, and later versions are shown by the same grant.
#[tokio::test(flavor = "multi_thread")]
async fn new_versions_are_shown_in_part_too() {
    let served = Served::new(false).await;
    let before = count(&served.part).await.unwrap();
    served.tables[0].append(ROWS..ROWS + 300).await;
    served.tables[0].index(IndexRequest::Key { column: "key".into(), replace: false }).await;
    served.node.refresh().await;
    assert_eq!(count(&served.part).await.unwrap(), before + 100);
    let gotten = served.part.get(get_of("", vec![key(ROWS), key(ROWS + 1)])).await.unwrap();
    assert_eq!(gotten.not_found, [u32::from(ROWS % 3 == 1)]);
    let old = SearchRequest { version: 1, k: 9_000, ..by_filter("id >= 0") };
    let found = served.part.search(old).await.unwrap();
    let of_first = (0..crate::table::FIRST).filter(|id| id % 3 == 1).collect::<Vec<_>>();
    assert_eq!(ids(&found.rows), of_first, "rows of version 1, none of which is deleted");
}
