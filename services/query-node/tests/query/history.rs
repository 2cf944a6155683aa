//! Tests lists of versions and tags by gRPC, against Lance's own and those of plain HTTP.

use client::query::{ListTagsRequest, ListVersionsRequest, QueryClient, Tag, VersionSummary};
use lance::Dataset;
use serde_json::{Value, json};
use wire::Reason;

use crate::http::post;
use crate::node::{serve, served};
use crate::table::TestTable;

/// Reads all versions of a table, page by page.
async fn versions(client: &QueryClient, branch: &str, limit: u32) -> Vec<VersionSummary> {
    let (mut all, mut before) = (Vec::new(), 0);
    loop {
        let request =
            ListVersionsRequest { table: "t".into(), branch: branch.into(), limit, before };
        let page = client.list_versions(request).await.unwrap();
        assert!(limit == 0 || page.versions.len() <= limit as usize);
        all.extend(page.versions);
        before = page.next_before;
        if before == 0 {
            return all;
        }
    }
}

async fn tags(client: &QueryClient, limit: u32) -> Vec<Tag> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let request = ListTagsRequest { table: "t".into(), limit, after };
        let page = client.list_tags(request).await.unwrap();
        assert!(limit == 0 || page.tags.len() <= limit as usize);
        all.extend(page.tags);
        after = page.next_after;
        if after.is_empty() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_those_of_lance_latest_first() {
    let (table, node, client) = served().await;
    let mut dataset = Dataset::open(&table.uri).await.unwrap();
    let exp = dataset.create_branch("exp", 2, None).await.unwrap();
    for (branch, dataset) in [("", &dataset), ("main", &dataset), ("exp", &exp)] {
        let mut by_lance = dataset.versions().await.unwrap();
        by_lance.reverse();
        assert!(!by_lance.is_empty());
        for limit in [0, 1, 2, 1000] {
            let listed = versions(&client, branch, limit).await;
            assert_eq!(listed.len(), by_lance.len(), "{branch} {limit}");
            for (listed, by_lance) in listed.iter().zip(&by_lance) {
                assert_eq!(listed.version, by_lance.version);
                assert_eq!(listed.created_at_ms as i64, by_lance.timestamp.timestamp_millis());
                let metadata: Vec<_> = by_lance.metadata.iter().collect();
                let mut of_listed: Vec<_> = listed.metadata.iter().collect();
                of_listed.sort();
                assert_eq!(of_listed, metadata);
            }
        }
    }
    let by_http = post(&node, "/v1/table/t/version/list?descending=true", json!({})).await.json();
    let by_http: Vec<&Value> = by_http["versions"].as_array().unwrap().iter().collect();
    let listed = versions(&client, "", 0).await;
    assert_eq!(by_http.len(), listed.len());
    for (by_http, listed) in by_http.into_iter().zip(listed) {
        assert_eq!(by_http["version"], listed.version);
        assert_eq!(by_http["timestamp_millis"], listed.created_at_ms);
        assert_eq!(by_http["metadata"], json!(listed.metadata));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_name_versions_of_branches() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    assert_eq!(tags(&client, 0).await, []);
    let mut dataset = Dataset::open(&table.uri).await.unwrap();
    let exp = dataset.create_branch("exp", 2, None).await.unwrap();
    for tag in ["c", "a"] {
        dataset.tags().create(tag, 1).await.unwrap();
    }
    exp.tags().create("b", ("exp", exp.version().version)).await.unwrap();
    let tag = |name: &str, branch: &str, version| Tag {
        name: name.into(),
        branch: branch.into(),
        version,
    };
    let expected = [tag("a", "", 1), tag("b", "exp", exp.version().version), tag("c", "", 1)];
    for limit in 0..4 {
        assert_eq!(tags(&client, limit).await, expected, "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_lists_are_refused_with_a_sentence() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let asked = ListVersionsRequest { table: "t".into(), ..Default::default() };
    for (request, reason, said) in [
        (
            ListVersionsRequest { limit: 1001, ..asked.clone() },
            Reason::BadArgument,
            "`limit` is 1001; list 1000 entries at most",
        ),
        (
            ListVersionsRequest { branch: "exp".into(), ..asked.clone() },
            Reason::VersionNotFound,
            "branch `exp`",
        ),
        (
            ListVersionsRequest { table: "u".into(), ..asked },
            Reason::TableNotFound,
            "no table `u` is served here",
        ),
    ] {
        let fault = client.list_versions(request).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
    }
    let tags = ListTagsRequest { table: "t".into(), limit: 1001, ..Default::default() };
    let fault = client.list_tags(tags).await.unwrap_err();
    assert!(fault.message.contains("`limit` is 1001"), "{fault}");
}
