//! Tests branches over plain HTTP: in both places where clients name them, and how a node follows writes to them.
//! Both tiers together are tested in `services/system-tests`.

use std::time::{Duration, Instant};

use client::query::TuneRequest;
use lance::Dataset;
use serde_json::{Value, json};
use wire::Reason;

use crate::http::post;
use crate::node::{config, serve_with};
use crate::table::{ROWS, TestTable, live, rows, write};

/// Returns the path of a branch's own folder.
fn folder(table: &TestTable, branch: &str) -> String {
    format!("{}/tree/{branch}", table.uri)
}

async fn branch(table: &TestTable, name: &str) {
    let mut main = Dataset::open(&table.uri).await.unwrap();
    main.create_branch(name, main.version_id(), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_has_versions_rows_and_freshness_of_its_own() {
    let table = TestTable::plain().await;
    branch(&table, "exp").await;
    // A version that the configuration pins is one of the main branch, so other branches are not pinned.
    let mut config = config(&[("t", &table)]);
    config.tables.get_mut("t").unwrap().version = Some(1);
    let (node, _client) = serve_with(config).await;
    let all = live().count();
    let count = async |body: Value| post(&node, "/v1/table/t/count_rows/", body).await.json();
    assert_eq!(count(json!({"branch": "exp"})).await, all);
    assert_eq!(count(json!({"branch": "main"})).await, 2000);
    let described = async || {
        let described = post(&node, "/v1/table/t/describe/", json!({"branch": "exp"})).await;
        described.json()["version"].as_u64().unwrap()
    };
    let before = described().await;
    write(&folder(&table, "exp"), rows(ROWS..ROWS + 5)).await;
    table.append(ROWS..ROWS + 1).await;

    assert_eq!(described().await, before, "nobody has looked for a newer version");
    let wanted = json!({"predicate": format!("id >= {ROWS}"), "branch": "exp"});
    assert_eq!(count(wanted.clone()).await, 0);
    let newer = [("x-lancedb-min-version", (before + 1).to_string())];
    let fresh =
        crate::http::post_with(&node, "/v1/table/t/count_rows/", wanted.clone(), &newer).await;
    assert_eq!(fresh.json(), 5);
    assert_eq!((described().await, count(wanted).await), (before + 1, json!(5)));
    let old = json!({"branch": "exp", "version": before});
    assert_eq!(count(old).await, all);
    for body in
        [json!({"branch": "exp", "query": {"k": 1}}), json!({"query": {"k": 1, "branch": "exp"}})]
    {
        let explained = post(&node, "/v1/table/t/explain_plan", body).await;
        assert_eq!((explained.status.as_u16(), explained.version), (200, Some(before + 1)));
    }

    let versions = async |query: &str| {
        let path = format!("/v1/table/t/version/list/{query}");
        let listed = post(&node, &path, json!({})).await.json();
        let versions = listed["versions"].as_array().unwrap().clone();
        let of = |it: &Value| {
            let path = it["manifest_path"].as_str().unwrap().to_owned();
            (it["version"].as_u64().unwrap(), path.starts_with("tree/exp/_versions/"))
        };
        versions.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(versions("?branch=exp").await, [(before, true), (before + 1, true)]);
    let of_main = versions("").await;
    assert!(of_main.len() == 4 && of_main.iter().all(|(_, is_branch)| !is_branch), "{of_main:?}");
    let listed = post(&node, "/v1/table/t/branches/list/", json!({})).await.json();
    assert!(listed["branches"]["exp"]["parentVersion"].is_u64(), "{listed}");

    let removed = folder(&table, "exp");
    std::fs::remove_dir_all(removed).unwrap();
    std::fs::remove_file(format!("{}/_refs/branches/exp.json", table.uri)).unwrap();
    node.refresh().await;
    let gone = post(&node, "/v1/table/t/count_rows/", json!({"branch": "exp"})).await;
    assert_eq!((gone.status.as_u16(), gone.json()["code"].clone()), (404, json!(22)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recall_of_a_branch_is_not_measured() {
    let table = TestTable::plain().await;
    branch(&table, "exp").await;
    let (_node, client) = serve_with(config(&[("t", &table)])).await;
    let request = TuneRequest { table: "t".into(), branch: "exp".into(), ..Default::default() };
    let fault = client.tune(request).await.err().unwrap();
    assert_eq!(fault.reason, Reason::BadArgument);
    assert!(fault.message.starts_with("`branch` is `exp`; recall is measured on"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_created_anew_does_not_keep_versions_of_the_old_one() {
    let table = TestTable::plain().await;
    branch(&table, "exp").await;
    let (node, _client) = serve_with(config(&[("t", &table)])).await;
    let count = async |body: Value| post(&node, "/v1/table/t/count_rows/", body).await.json();
    let described = post(&node, "/v1/table/t/describe/", json!({"branch": "exp"})).await.json();
    let first = described["version"].as_u64().unwrap();
    write(&folder(&table, "exp"), rows(ROWS..ROWS + 5)).await;
    write(&folder(&table, "exp"), rows(ROWS..ROWS + 5)).await;
    node.refresh().await;
    // This version is not the latest one, so the node keeps it beside the latest one.
    let second = json!({"branch": "exp", "version": first + 1});
    let all = live().count();
    assert_eq!(count(second.clone()).await, all + 5);

    // The new branch has the same version with other rows, and a latest version that is higher than the old one's.
    let mut main = Dataset::open(&table.uri).await.unwrap();
    main.delete_branch("exp").await.unwrap();
    branch(&table, "exp").await;
    for _ in 0..3 {
        write(&folder(&table, "exp"), rows(ROWS..ROWS + 1)).await;
    }
    node.refresh().await;
    assert_eq!(count(json!({"branch": "exp"})).await, all + 3);
    assert_eq!(count(second).await, all + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_asked_for_before_it_existed_is_served_soon() {
    let table = TestTable::plain().await;
    let mut config = config(&[("t", &table)]);
    config.refresh_interval = Duration::from_millis(500);
    let (node, _client) = serve_with(config).await;
    let count = async || post(&node, "/v1/table/t/count_rows/", json!({"branch": "exp"})).await;
    assert_eq!(count().await.json()["code"], 22);
    branch(&table, "exp").await;
    let created = Instant::now();
    while count().await.status != 200 {
        assert!(created.elapsed() < Duration::from_secs(5), "the branch is never served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(count().await.json(), live().count());
}
