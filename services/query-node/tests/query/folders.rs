//! Tests tables of folders: which are served under which names, and when they are opened and closed.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::query::{QueryClient, SearchRequest};
use lake::TableFolder;
use query_node::{AccessConfig, QueryConfig, TableConfig};
use serde_json::json;
use telemetry::TelemetryConfig;
use tempfile::TempDir;
use wire::Reason;

use crate::access::{policy, secret};
use crate::http::{get, post};
use crate::node::{config, ids, metrics, serve_with};
use crate::table::{rows, write};

/// A folder of tables.
pub struct Folder {
    _root: TempDir,
    pub path: PathBuf,
}

impl Folder {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap().join("lake");
        std::fs::create_dir(&path).unwrap();
        Self { _root: root, path }
    }

    fn table(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.lance"))
    }

    /// Creates a table, or appends to it.
    async fn put(&self, name: &str, ids: Range<i64>) {
        write(self.table(name).to_str().unwrap(), rows(ids)).await;
    }

    fn remove(&self, name: &str) {
        std::fs::remove_dir_all(self.table(name)).unwrap();
    }
}

/// Returns a configuration with folders, which the tests list explicitly.
pub fn with_folders(folders: &[&Folder]) -> QueryConfig {
    let folder = |it: &&Folder| TableFolder::of_config(it.path.to_str().unwrap()).unwrap();
    QueryConfig {
        folders: folders.iter().map(folder).collect(),
        folder_refresh: Duration::from_secs(3600),
        ..config(&[])
    }
}

pub async fn names(client: &QueryClient) -> Vec<String> {
    client.tables().await.unwrap().into_iter().map(|it| it.name).collect()
}

fn all_rows(table: &str, version: u64) -> SearchRequest {
    let filter = "id >= 0".into();
    SearchRequest { table: table.into(), version, filter, k: 100, ..Default::default() }
}

async fn ids_of(client: &QueryClient, table: &str, version: u64) -> Vec<i64> {
    ids(&client.search(all_rows(table, version)).await.unwrap().rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_come_and_go_while_the_node_runs() {
    let folder = Folder::new();
    let (node, client) = serve_with(with_folders(&[&folder])).await;
    node.ready().await;
    assert_eq!(names(&client).await, [""; 0]);
    let unknown = client.search(all_rows("a", 0)).await.unwrap_err();
    assert_eq!(unknown.message, "no table `a` is served here; there is none");

    folder.put("a", 0..3).await;
    folder.put("b", 0..1).await;
    node.refresh().await;
    assert_eq!(names(&client).await, ["a", "b"]);
    let list = json!({"tables": ["a", "b"], "page_token": null});
    assert_eq!(get(&node, "/v1/table/").await.json(), list);
    let described = post(&node, "/v1/table/b/describe/", json!({})).await;
    assert_eq!((described.status.as_u16(), described.json()["table"].as_str()), (200, Some("b")));
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
    folder.put("a", 3..4).await;
    node.refresh().await;
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2, 3]);
    assert_eq!(ids_of(&client, "a", 1).await, [0, 1, 2]);

    folder.remove("a");
    node.refresh().await;
    assert_eq!(names(&client).await, ["b"]);
    let gone = client.search(all_rows("a", 0)).await.unwrap_err();
    assert_eq!(gone.reason, Reason::TableNotFound);
    assert_eq!(gone.message, "no table `a` is served here; there is b");
    assert_eq!(post(&node, "/v1/table/a/describe/", json!({})).await.status, 404);

    // Another table of the same name, with the same versions, is not mistaken for the one that has gone.
    folder.put("a", 10..12).await;
    folder.put("a", 12..13).await;
    node.refresh().await;
    assert_eq!(ids_of(&client, "a", 1).await, [10, 11]);
    assert_eq!(ids_of(&client, "a", 0).await, [10, 11, 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_interval_is_kept_without_being_asked() {
    let folder = Folder::new();
    let mut config = with_folders(&[&folder]);
    config.folder_refresh = Duration::from_millis(50);
    let (node, client) = serve_with(config).await;
    node.ready().await;
    let until = async |wanted: &[&str]| {
        for _ in 0..500 {
            let tables = get(&node, "/v1/table/").await.json();
            if names(&client).await == wanted && tables["tables"] == json!(wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?} in place of {wanted:?}", names(&client).await);
    };
    folder.put("a", 0..3).await;
    until(&["a"]).await;
    folder.remove("a");
    until(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_listing_keeps_what_is_served_and_status_says_so() {
    let folder = Folder::new();
    folder.put("a", 0..3).await;
    let (node, client) = serve_with(with_folders(&[&folder])).await;
    node.ready().await;
    let error = async || client.status().await.unwrap().folders.remove(0).error;
    assert_eq!((names(&client).await, error().await), (vec!["a".into()], String::new()));
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
    let away = folder.path.with_file_name("away");
    std::fs::rename(&folder.path, &away).unwrap();
    node.refresh().await;
    assert_eq!(names(&client).await, ["a"]);
    let said = error().await;
    assert!(
        said.starts_with(&format!("no folder or bucket at {}", folder.path.display())),
        "{said}"
    );
    std::fs::rename(&away, &folder.path).unwrap();
    node.refresh().await;
    assert_eq!((names(&client).await, error().await), (vec!["a".into()], String::new()));
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_the_named_table_or_else_for_that_of_the_first_folder() {
    let (one, two, other) = (Folder::new(), Folder::new(), Folder::new());
    for (folder, first) in [(&one, 0), (&two, 10)] {
        for name in ["both", "named"] {
            folder.put(name, first..first + 1).await;
        }
    }
    two.put("second", 20..21).await;
    other.put("x", 30..31).await;
    std::fs::create_dir(one.path.join("not a name.lance")).unwrap();
    let mut config = with_folders(&[&one, &two]);
    let uri = other.table("x").to_str().unwrap().to_owned();
    config.tables.insert("named".into(), TableConfig { uri, ..Default::default() });
    let (node, client) = serve_with(config).await;
    node.ready().await;
    assert_eq!(names(&client).await, ["both", "named", "second"]);
    for (name, id) in [("both", 0), ("named", 30), ("second", 20)] {
        assert_eq!(ids_of(&client, name, 0).await, [id], "{name}");
    }
    let folders = client.status().await.unwrap().folders;
    let shown: Vec<_> = folders.iter().map(|it| (it.tables, it.hidden.join(","))).collect();
    assert_eq!(shown, [(1, "named".into()), (1, "both,named".into())]);
    assert_eq!((&folders[0].refused, folders[1].refused.len()), (&vec!["not a name".into()], 0));
    one.remove("both");
    node.refresh().await;
    assert_eq!(ids_of(&client, "both", 0).await, [10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_hold_for_tables_that_appear_later() {
    let folder = Folder::new();
    let access = folder.path.with_file_name("access.toml");
    let grants = r#"
        [[grants]]
        name = "one"
        who = ["key:one"]
        tables = ["a*"]
        may = ["read", "observe"]
        [[grants]]
        name = "all"
        who = ["key:all"]
        tables = ["*"]
        may = ["observe"]
    "#;
    std::fs::write(&access, policy(grants)).unwrap();
    let access = Some(AccessConfig::Policy(access));
    let (node, anonymous) = serve_with(QueryConfig { access, ..with_folders(&[&folder]) }).await;
    node.ready().await;
    let with_key = |name: &str| anonymous.clone().with_token(&secret(name)).unwrap();
    let (one, all) = (with_key("one"), with_key("all"));
    for name in ["a1", "a2", "b"] {
        folder.put(name, 0..3).await;
    }
    node.refresh().await;
    assert_eq!(names(&one).await, ["a1", "a2"]);
    assert_eq!(ids_of(&one, "a1", 0).await, [0, 1, 2]);
    let forbidden = one.search(all_rows("b", 0)).await.unwrap_err();
    let mut absent = one.search(all_rows("c", 0)).await.unwrap_err();
    absent.message = absent.message.replace("`c`", "`b`");
    absent.metadata.insert("table".into(), "b".into());
    assert_eq!(forbidden, absent);
    assert_eq!(forbidden.message, "no table `b` is served here; there is a1, a2");
    // A caller that may see all current tables might not have been allowed to see all earlier ones.
    folder.remove("b");
    node.refresh().await;
    assert!(one.status().await.unwrap().folders.is_empty());
    let folders = all.status().await.unwrap().folders;
    assert_eq!(
        (folders[0].tables, folders[0].uri.as_str()),
        (2, &*format!("{}/", folder.path.display()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_open_while_somebody_asks_for_it() {
    let folder = Folder::new();
    folder.put("a", 0..3).await;
    folder.put("b", 0..3).await;
    let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
    let config = QueryConfig {
        telemetry: TelemetryConfig { metrics_listen, ..Default::default() },
        ..with_folders(&[&folder])
    };
    let (node, client) = serve_with(config).await;
    node.ready().await;
    let listed = async || {
        let tables = client.tables().await.unwrap();
        tables.into_iter().map(|it| (it.version, it.rows, it.error)).collect::<Vec<_>>()
    };
    let (closed, open) = ((0, 0, String::new()), (1, 3, String::new()));
    assert_eq!(listed().await, [closed.clone(), closed.clone()]);
    assert!(!metrics(&node).await.contains("table=\"a\""));
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
    assert_eq!(listed().await, [open.clone(), closed.clone()]);
    let shown = metrics(&node).await;
    assert!(shown.contains("table=\"a\"") && !shown.contains("table=\"b\""));
    for _ in 0..301 {
        node.refresh().await;
    }
    assert_eq!(listed().await, [closed.clone(), closed]);
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_table_has_an_error_until_it_is_complete() {
    let folder = Folder::new();
    std::fs::create_dir(folder.table("a")).unwrap();
    let (node, client) = serve_with(with_folders(&[&folder])).await;
    node.ready().await;
    let fault = client.search(all_rows("a", 0)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::TableNotFound);
    let error = async || client.tables().await.unwrap().remove(0).error;
    assert!(error().await.starts_with("no table at <a>"), "{}", error().await);
    folder.remove("a");
    folder.put("a", 0..3).await;
    node.refresh().await;
    assert_eq!(error().await, "");
    assert_eq!(ids_of(&client, "a", 0).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_tables_place_is_not_followed() {
    let (folder, secret) = (Folder::new(), Folder::new());
    folder.put("a", 0..3).await;
    secret.put("s", 100..103).await;
    let (node, client) = serve_with(with_folders(&[&folder])).await;
    node.ready().await;
    assert_eq!(names(&client).await, ["a"]);
    folder.remove("a");
    link(&secret.table("s"), &folder.table("a"));
    let fault = client.search(all_rows("a", 0)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::StoreRefused, "{fault}");
    node.refresh().await;
    assert_eq!(names(&client).await, [""; 0]);
}

fn link(target: &Path, link: &Path) {
    std::os::unix::fs::symlink(target, link).unwrap();
}
