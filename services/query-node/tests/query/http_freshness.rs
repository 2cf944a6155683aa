//! Tests that a client of plain HTTP never reads an older version than it has seen or written, on whichever node.

use hyper::Method;
use serde_json::{Value, json};

use crate::http::{Answer, get_with, post, post_with, request, send};
use crate::node::{serve, served};
use crate::table::{TestTable, live, vector};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_seen_is_never_unseen() {
    let (table, node, _client) = served().await;
    node.ready().await;
    let before = post(&node, "/v1/table/t/count_rows/", json!({})).await;
    table.append(3000..3010).await;
    let count = |header: Option<(&'static str, String)>| {
        let mut request = request(Method::POST, "/v1/table/t/count_rows/", "{}");
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        send(&node, request)
    };
    let rows = before.json().as_u64().unwrap();
    // In this test, the node looks for new versions only on request.
    assert_eq!(count(None).await.json(), rows);
    let seen = before.version.unwrap();
    let same = count(Some(("x-lancedb-min-read-version", seen.to_string()))).await;
    assert_eq!((same.json(), same.version), (json!(rows), Some(seen)));
    let newer = count(Some(("x-lancedb-min-version", (seen + 1).to_string()))).await;
    assert_eq!((newer.json(), newer.version), (json!(rows + 10), Some(seen + 1)));
    table.append(3010..3015).await;
    let now = humantime::format_rfc3339_nanos(std::time::SystemTime::now()).to_string();
    let latest = count(Some(("x-lancedb-min-timestamp", now.replace('Z', "+00:00")))).await;
    assert_eq!(latest.json(), rows + 15);
    // A version that nobody has written is no reason to fail.
    assert_eq!(count(Some(("x-lancedb-min-version", "1000".into()))).await.json(), rows + 15);
    assert_eq!(count(Some(("x-lancedb-min-version", "x".into()))).await.error().0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_a_client_has_seen_in_a_list_is_seen_by_its_next_read() {
    let table = TestTable::plain().await;
    // In this test, the node looks for new versions only on request.
    let (node, _client) = serve(&[("t", &table)]).await;
    node.ready().await;
    table.append(3000..3010).await;
    let count = async |headers: &[(&'static str, String)]| {
        let counted = post_with(&node, "/v1/table/t/count_rows/", json!({}), headers).await;
        (counted.json().as_u64().unwrap(), counted.version)
    };
    let rows = live().count() as u64;
    // The page of a Namespace client may lack the latest version.
    for list in ["version/list/", "version/list?limit=1"] {
        let listed = post(&node, &format!("/v1/table/t/{list}"), json!({})).await;
        assert_eq!((listed.status.as_u16(), listed.version), (200, Some(4)), "{list}");
    }
    let listed = post(&node, "/v1/table/t/version/list/", json!({})).await.json();
    assert_eq!(listed["versions"].as_array().unwrap().last().unwrap()["version"], 4);
    assert_eq!(count(&[]).await, (rows, Some(3)), "a list is no request for the latest version");
    let seen = [("x-lancedb-min-read-version", "4".to_owned())];
    assert_eq!(count(&seen).await, (rows + 10, Some(4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_seen_on_one_node_is_seen_on_every_other() {
    let table = TestTable::plain().await;
    // In this test, the nodes look for new versions only on request.
    let (one, _client) = serve(&[("t", &table)]).await;
    let (other, _client) = serve(&[("t", &table)]).await;
    one.ready().await;
    other.ready().await;
    let all = |answer: &Answer| answer.rows().num_rows() as u64;
    let number = |answer: &Answer| answer.json().as_u64().unwrap();
    let described = |answer: &Answer| answer.json()["version"].as_u64().unwrap();
    let versions = |answer: &Answer| {
        let json = answer.json();
        json["versions"].as_array().unwrap().last().unwrap()["version"].as_u64().unwrap()
    };
    // Each call, with what it says of the version: the number of its rows, or its number.
    type Counted<'a> = &'a dyn Fn(&Answer) -> u64;
    let calls: [(&str, Value, bool, Counted<'_>); 5] = [
        ("count_rows/", json!({}), true, &number),
        ("query/", json!({"k": i64::MAX, "columns": ["id"]}), true, &all),
        ("query/", json!({"k": 5000, "vector": vector(1), "columns": ["id"]}), true, &all),
        ("describe/", json!({}), false, &described),
        ("version/list/", json!({}), false, &versions),
    ];
    let (mut rows, mut seen) = (live().count() as u64, 3);
    let mut next = 3000;
    for (call, body, is_rows, said) in calls {
        let path = format!("/v1/table/t/{call}");
        table.append(next..next + 5).await;
        (next, rows, seen) = (next + 5, rows + 5, seen + 1);
        // A client has written the version, and reads it on one node.
        let written = [("x-lancedb-min-version", seen.to_string())];
        let first = post_with(&one, &path, body.clone(), &written).await;
        assert_eq!(first.version, Some(seen), "{path}");
        // The other node has not seen it yet, and still must not answer from an older version.
        let stale = post(&other, "/v1/table/t/count_rows/", json!({})).await;
        assert_eq!(stale.version, Some(seen - 1), "{path}");
        let read = [("x-lancedb-min-read-version", first.version.unwrap().to_string())];
        let second = post_with(&other, &path, body, &read).await;
        assert_eq!(second.version, Some(seen), "{path}");
        for answer in [&first, &second] {
            // The version list has only what is in the table now, on both nodes.
            let expected = if is_rows { rows } else { seen };
            assert_eq!(said(answer), expected, "{path}");
        }
        // Once seen, it is not unseen.
        let later = post(&other, "/v1/table/t/count_rows/", json!({})).await;
        assert_eq!((later.version, number(&later)), (Some(seen), rows), "{path}");
    }
    // A client that names a time reads at least what was written before, on either node.
    table.append(next..next + 1).await;
    let now = humantime::format_rfc3339_nanos(std::time::SystemTime::now()).to_string();
    for node in [&one, &other] {
        let since = [("x-lancedb-min-timestamp", now.clone())];
        let latest = post_with(node, "/v1/table/t/count_rows/", json!({}), &since).await;
        assert_eq!((latest.version, number(&latest)), (Some(seen + 1), rows + 1));
        // Lists of tables name no version.
        assert_eq!(get_with(node, "/v1/table/", &since).await.status, 200);
    }
}
