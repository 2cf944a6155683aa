//! Tests tables in namespaces, which a folder's manifest names.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use query_node::{AccessConfig, QueryConfig};
use serde_json::{Value, json};
use wire::Reason;

use crate::access::{policy, secret};
use crate::folders::{Folder, names, with_folders};
use crate::http::{get, get_with, post, post_with};
use crate::node::{config, serve_with};
use crate::table::{TestTable, rows, write};

/// Makes a folder with the tables `root`, `a$t` and `a$b$t`, and the namespaces `a`, `a$b` and `empty`.
async fn folder_with_namespaces() -> Folder {
    let folder = Folder::new();
    for (name, id) in [("root.lance", 1), ("1_a$t", 2), ("2_a$b$t", 3)] {
        put(&folder, name, rows(id..id + 1)).await;
    }
    let namespaces = ["a", "a$b", "empty"].map(|id| (id, "namespace", None));
    let tables = [
        ("root", "table", Some("root.lance")),
        ("a$t", "table", Some("1_a$t")),
        ("a$b$t", "table", Some("2_a$b$t")),
        ("a$gone", "table", Some("3_a$gone")),
    ];
    record(&folder, &[&namespaces[..], &tables[..]].concat()).await;
    folder
}

async fn put(folder: &Folder, name: &str, rows: RecordBatch) {
    write(folder.path.join(name).to_str().unwrap(), rows).await;
}

/// Adds entries to the folder's manifest: ids, types and locations.
async fn record(folder: &Folder, entries: &[(&str, &str, Option<&str>)]) {
    let properties = |it: &(&str, &str, _)| (it.1 == "namespace").then_some(r#"{"owner":"x"}"#);
    let columns: [(&str, StringArray); 4] = [
        ("object_id", entries.iter().map(|it| Some(it.0)).collect()),
        ("object_type", entries.iter().map(|it| Some(it.1)).collect()),
        ("location", entries.iter().map(|it| it.2).collect()),
        ("metadata", entries.iter().map(properties).collect()),
    ];
    let columns = columns.map(|(name, column)| (name, Arc::new(column) as _, true));
    let entries = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    put(folder, "__manifest", entries).await;
}

fn tables(names: &[&str]) -> Value {
    json!({ "tables": names, "page_token": null })
}

fn namespaces(names: &[&str]) -> Value {
    json!({ "namespaces": names, "page_token": null })
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_namespaces_are_served_by_their_ids() {
    let folder = folder_with_namespaces().await;
    let (node, client) = serve_with(with_folders(&[&folder])).await;
    node.ready().await;
    assert_eq!(names(&client).await, ["a$b$t", "a$t", "root"]);
    let listed = async |path: &str| get(&node, path).await.json();
    for (path, expected) in [
        ("/v1/table/", tables(&["root"])),
        // Namespace clients list the tables of all namespaces by this path.
        ("/v1/table", tables(&["a$b$t", "a$t", "root"])),
        ("/v1/table?delimiter=.", tables(&["a.b.t", "a.t", "root"])),
        ("/v1/namespace/$/table/list", tables(&["root"])),
        ("/v1/namespace/a/table/list", tables(&["t"])),
        ("/v1/namespace/a$b/table/list", tables(&["t"])),
        ("/v1/namespace/a%2Eb/table/list?delimiter=.", tables(&["t"])),
        ("/v1/namespace/empty/table/list", tables(&[])),
        ("/v1/namespace/$/list", namespaces(&["a", "empty"])),
        ("/v1/namespace/a/list", namespaces(&["b"])),
        ("/v1/namespace/a$b/list", namespaces(&[])),
    ] {
        assert_eq!(listed(path).await, expected, "{path}");
    }
    let first = listed("/v1/table?limit=2&delimiter=.").await;
    assert_eq!(first, json!({ "tables": ["a.b.t", "a.t"], "page_token": "a$t" }));
    assert_eq!(listed("/v1/table?page_token=a$t").await, tables(&["root"]));
    let first = listed("/v1/namespace/$/list?limit=1").await;
    assert_eq!(first, json!({ "namespaces": ["a"], "page_token": "a" }));
    let second = listed("/v1/namespace/$/list?limit=1&page_token=a").await;
    assert_eq!(second, namespaces(&["empty"]));

    let described = post(&node, "/v1/namespace/a/describe", json!({})).await;
    assert_eq!(described.json(), json!({ "properties": { "owner": "x" } }));
    let described = post(&node, "/v1/table/a$b$t/describe/", json!({})).await.json();
    assert_eq!((&described["table"], &described["namespace"]), (&json!("t"), &json!(["a", "b"])));
    for (id, count) in [("a$t", 1), ("root", 1)] {
        let counted = post(&node, &format!("/v1/table/{id}/count_rows/"), json!({})).await;
        assert_eq!(counted.json(), json!(count), "{id}");
    }
    for path in ["/v1/namespace/b/exists", "/v1/namespace/a$c/exists", "/v1/namespace/t/exists"] {
        let (status, code, said) = post(&node, path, json!({})).await.error();
        assert_eq!((status, code), (404, 1), "{path}: {said}");
        let id = path.split('/').nth(3).unwrap();
        assert_eq!(said, format!("there is no namespace `{id}` here"));
    }

    // The manifest is read again when it has changed.
    record(&folder, &[("a$new", "table", Some("1_a$t")), ("b", "namespace", None)]).await;
    node.refresh().await;
    assert_eq!(listed("/v1/namespace/a/table/list").await, tables(&["new", "t"]));
    assert_eq!(post(&node, "/v1/namespace/b/exists", json!({})).await.status, 200);

    // A manifest that cannot be read takes nothing away, and Status says what is wrong.
    let versions = folder.path.join("__manifest/_versions");
    for entry in std::fs::read_dir(&versions).unwrap() {
        std::fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    node.refresh().await;
    assert_eq!(names(&client).await.len(), 4);
    let error = client.status().await.unwrap().folders.remove(0).error;
    assert!(error.contains("__manifest"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_whose_ids_clients_refuse_do_not_end_a_list() {
    let table = TestTable::plain().await;
    let ids = ["1 bad$t", "2 bad$t", "good$t", "later$t"].map(|id| (id, &table));
    let (node, _client) = serve_with(config(&ids)).await;
    let first = get(&node, "/v1/namespace/$/list?limit=1").await.json();
    assert_eq!(first, json!({ "namespaces": ["good"], "page_token": "good" }));
    let second = get(&node, "/v1/namespace/$/list?limit=1&page_token=good").await.json();
    assert_eq!(second, namespaces(&["later"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_sees_the_namespaces_of_tables_that_it_sees() {
    let folder = folder_with_namespaces().await;
    put(&folder, "4_c$t", rows(4..5)).await;
    record(&folder, &[("c", "namespace", None), ("c$t", "table", Some("4_c$t"))]).await;
    let access = folder.path.join("policy.toml");
    let grants = r#"
        [[grants]]
        name = "deep"
        who = ["key:one"]
        tables = ["a$b$t"]
        may = ["read"]
        [[grants]]
        name = "all"
        who = ["key:all"]
        tables = ["*"]
        may = ["read"]
    "#;
    std::fs::write(&access, policy(grants)).unwrap();
    let access = Some(AccessConfig::Policy(access));
    let (node, anonymous) = serve_with(QueryConfig { access, ..with_folders(&[&folder]) }).await;
    node.ready().await;
    let one = anonymous.with_token(&secret("one")).unwrap();
    assert_eq!(names(&one).await, ["a$b$t"]);
    let get_as =
        async |name: &str, path: &str| get_with(&node, path, &[("x-api-key", secret(name))]).await;
    let listed = async |path: &str| get_as("one", path).await;
    for (path, expected) in [
        ("/v1/namespace/$/table/list", tables(&[])),
        ("/v1/namespace/$/list", namespaces(&["a"])),
        ("/v1/namespace/a/list", namespaces(&["b"])),
        ("/v1/namespace/a/table/list", tables(&[])),
        ("/v1/namespace/a$b/table/list", tables(&["t"])),
    ] {
        assert_eq!(listed(path).await.json(), expected, "{path}");
    }
    // An empty namespace, or one whose tables the caller does not see, does not exist for it.
    let hidden = ["empty", "c", "absent"].map(|id| format!("/v1/namespace/{id}/list"));
    for path in &hidden {
        let (status, code, _) = listed(path).await.error();
        assert_eq!((status, code), (404, 1), "{path}");
    }
    assert_eq!(get_as("all", &hidden[1]).await.json(), namespaces(&[]));
    // A caller that sees only one of a namespace's tables does not see the namespace's properties.
    let described = async |name: &str| {
        let key = [("x-api-key", secret(name))];
        post_with(&node, "/v1/namespace/a/describe", json!({}), &key).await.json()
    };
    assert_eq!(described("one").await, json!({ "properties": {} }));
    assert_eq!(described("all").await, json!({ "properties": { "owner": "x" } }));
    let unknown = one.describe("a$t", 0).await.unwrap_err();
    assert_eq!(unknown.reason, Reason::TableNotFound);
    let all = get_as("all", "/v1/namespace/$/list").await;
    assert_eq!(all.json(), namespaces(&["a", "c", "empty"]));
}
