//! Tests changes to the list of I/O nodes under load: no row may be wrong, and none may be missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::query::{QueryClient, StatusResponse};
use futures::StreamExt;
use lake::Lake;
use query_node::{IoNodeConfig, QueryConfig, QueryError, QueryNode, Source, TableConfig};
use tempfile::TempDir;
use tokio::task::JoinSet;
use wire::query::{MemberState, WarmRequest};

use crate::cluster::{
    Io, endpoint, folder, io_config, member, soon, start_io_again, stop_io, total,
};
use crate::members::{ROWS, check, write};

/// A file with the list of members.
struct List {
    path: PathBuf,
}

impl List {
    fn write(&self, nodes: &[IoNodeConfig]) {
        let node = |node: &IoNodeConfig| {
            let IoNodeConfig { endpoint, name, weight, draining, .. } = node;
            let name = name.as_deref().unwrap();
            format!(
                "[[io_nodes]]\nname = \"{name}\"\nendpoint = \"{endpoint}\"\nweight = {weight:?}\n\
                 draining = {draining}\n"
            )
        };
        self.write_text(&nodes.iter().map(node).collect::<String>());
    }

    fn write_text(&self, text: &str) {
        let next = self.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &self.path).unwrap();
    }
}

/// A query node that follows a file, and I/O nodes, some of which the file lists.
struct Followed {
    io: Vec<Io>,
    list: List,
    query: QueryNode,
    client: QueryClient,
    _folder: TempDir,
}

fn config(table: &Path, source: Source) -> QueryConfig {
    let uri = table.to_str().unwrap().to_owned();
    QueryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tables: [("t".to_owned(), TableConfig { uri, ..TableConfig::default() })].into(),
        io_nodes_from: Some(source),
        member_refresh: Duration::from_millis(5),
        slow_start: Duration::from_millis(200),
        cores: 2,
        ..QueryConfig::default()
    }
}

impl Followed {
    async fn start(io_nodes: usize, listed: &[usize]) -> Self {
        let folder = folder();
        let table = folder.path().join("table");
        write(&table).await;
        let mut io = Vec::new();
        for number in 0..io_nodes {
            io.push(Io::start(|config| config.name = format!("io-{number}")).await);
        }
        let list = List { path: folder.path().join("io.toml") };
        list.write(&listed.iter().map(|&at| member(&io[at].node)).collect::<Vec<_>>());
        let config = config(&table, Source::File(list.path.clone()));
        let lake = Lake::new(config.lake_options());
        let query = QueryNode::start(config, lake).await.unwrap();
        query.ready().await;
        let client = QueryClient::connect(&endpoint(query.local_addr())).await.unwrap();
        Self { io, list, query, client, _folder: folder }
    }

    fn members(&self, listed: &[usize]) -> Vec<IoNodeConfig> {
        listed.iter().map(|&at| member(&self.io[at].node)).collect()
    }

    /// Writes a list, and waits until all cores use it.
    async fn change_to(&self, nodes: &[IoNodeConfig]) {
        self.list.write(nodes);
        let mut names: Vec<_> = nodes.iter().map(|node| node.name.clone().unwrap()).collect();
        names.sort();
        let state = |draining| if draining { MemberState::Draining } else { MemberState::Ready };
        self.until(|status| {
            let listed = status.io_nodes.iter().map(|node| node.name.as_str());
            listed.eq(names.iter().map(String::as_str))
                && status.io_nodes.iter().all(|seen| {
                    let node = nodes.iter().find(|node| node.name.as_deref() == Some(&seen.name));
                    let node = node.unwrap();
                    seen.state() == state(node.draining)
                        && seen.endpoint == format!("http://{}", node.endpoint)
                        && seen.share == seen.weight
                })
        })
        .await;
    }

    /// Waits until `what` holds for the Status of each of the node's cores. Connections are dealt to the cores in turn.
    async fn until(&self, what: impl Fn(&StatusResponse) -> bool) -> StatusResponse {
        let (mut last, deadline) = (None, soon());
        for _core in 0..2 {
            let client = QueryClient::connect(&endpoint(self.query.local_addr())).await.unwrap();
            loop {
                let status = client.status().await.unwrap();
                let done = what(&status);
                let state = |node: &wire::query::IoNode| (node.name.clone(), node.state());
                let states: Vec<_> = status.io_nodes.iter().map(state).collect();
                let shown = format!("{:?} {states:?}", status.membership);
                last = Some(status);
                if done {
                    break;
                }
                assert!(client::fetch::Instant::now() < deadline, "{shown}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        last.unwrap()
    }

    async fn warm(&self) {
        let request = WarmRequest { table: "t".into(), ..Default::default() };
        let steps: Vec<_> = self.client.warm(request).await.unwrap().collect().await;
        let last = steps.last().unwrap().as_ref().unwrap();
        assert_eq!((last.extents_failed, last.extents_done), (0, last.extents_total));
    }

    /// Returns, for each I/O node, the number of rows that it served, and how many of them it read from the table.
    async fn served(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for io in &self.io {
            let described = io.describe().await;
            all.push((total(&described, |c| c.rows), total(&described, |c| c.table_rows)));
        }
        all
    }

    /// Restarts the last node on the same drive, at another address.
    async fn restart(&mut self, folder: TempDir) {
        let mut config = io_config(folder.path());
        config.name = format!("io-{}", self.io.len());
        let node = start_io_again(config).await;
        self.io.push(Io::with(node, folder));
    }

    async fn stop(self) {
        self.query.shutdown(Duration::from_secs(10)).await.unwrap();
        for io in self.io {
            io.stop().await;
        }
    }
}

/// Returns the ids of some rows of every fragment.
fn ids() -> Vec<i64> {
    (0..1000).map(|i| i * 7919 % ROWS).collect()
}

/// Requests rows until it is stopped. Panics if a row is missing or wrong.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Load {
    async fn start(node: &QueryNode) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for worker in 0..4 {
            let client = QueryClient::connect(&endpoint(node.local_addr())).await.unwrap();
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            tasks.spawn(async move {
                let mut from = worker;
                while !stop.load(Ordering::Relaxed) {
                    let ids: Vec<i64> = (0..100).map(|i| (from + i * 7919) % ROWS).collect();
                    check(&client, &ids).await;
                    from += 104_729;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { stop, done, tasks }
    }

    /// Waits until `requests` more requests have been answered.
    async fn go_on(&mut self, requests: usize) {
        let enough = self.done.load(Ordering::Relaxed) + requests;
        let deadline = soon();
        while self.done.load(Ordering::Relaxed) < enough {
            if let Some(ended) = self.tasks.try_join_next() {
                ended.unwrap();
            }
            assert!(client::fetch::Instant::now() < deadline, "requests are no longer answered");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go_under_load_and_no_request_fails() {
    let followed = Followed::start(4, &[0, 1, 2]).await;
    let mut load = Load::start(&followed.query).await;
    load.go_on(20).await;
    for listed in [&[0, 1, 2, 3][..], &[0, 3], &[3], &[1, 2], &[0, 1, 2, 3], &[1, 3]] {
        followed.change_to(&followed.members(listed)).await;
        load.go_on(20).await;
    }
    load.stop().await;
    // Now the two listed nodes serve all rows, and the others get no requests.
    let (before, fallback) = (followed.served().await, followed.query.fallback_rows());
    check(&followed.client, &ids()).await;
    let after = followed.served().await;
    let asked: Vec<bool> = before.iter().zip(&after).map(|(b, a)| a.0 > b.0).collect();
    assert_eq!(asked, [false, true, false, true]);
    assert_eq!(followed.query.fallback_rows(), fallback);
    followed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_at_another_address_keeps_its_chunks() {
    let mut followed = Followed::start(3, &[0, 1, 2]).await;
    followed.warm().await;
    let mut load = Load::start(&followed.query).await;
    load.go_on(20).await;
    let Io { node, folder, .. } = followed.io.pop().unwrap();
    let extents = node.extents();
    stop_io(node).await;
    load.go_on(50).await;
    assert!(followed.query.fallback_rows() > 0, "the table has answered for it");
    followed.restart(folder).await;
    assert_eq!(followed.io[2].node.extents(), extents, "it finds its extents again");
    followed.change_to(&followed.members(&[0, 1, 2])).await;
    load.go_on(20).await;
    load.stop().await;
    let fallback = followed.query.fallback_rows();
    check(&followed.client, &ids()).await;
    assert_eq!(followed.query.fallback_rows(), fallback, "no row comes from the table");
    let served = followed.served().await;
    assert!(served[2].0 > 0, "the node that came back is asked");
    assert!(served.iter().all(|(_, table_rows)| *table_rows == 0), "no chunk is filled again");
    followed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_answers_for_a_killed_node_until_it_is_back() {
    let mut followed = Followed::start(2, &[0, 1]).await;
    let mut load = Load::start(&followed.query).await;
    load.go_on(20).await;
    let Io { node, folder, .. } = followed.io.pop().unwrap();
    // Requests in progress are cut off.
    tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
    load.go_on(50).await;
    assert!(followed.query.fallback_rows() > 0, "the table has answered for it");
    followed.restart(folder).await;
    followed.change_to(&followed.members(&[0, 1])).await;
    load.go_on(50).await;
    load.stop().await;
    assert!(followed.served().await[1].0 > 0, "the node that came back is asked");
    followed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_keeps_its_chunks_and_gets_no_requests() {
    let followed = Followed::start(2, &[0, 1]).await;
    followed.warm().await;
    let mut nodes = followed.members(&[0, 1]);
    nodes[1].draining = true;
    followed.change_to(&nodes).await;
    let before = followed.served().await;
    check(&followed.client, &ids()).await;
    let after = followed.served().await;
    assert!(after[0].0 > before[0].0 && after[1] == before[1], "{before:?} {after:?}");
    assert_eq!(after[0].1, 0, "the other node does not fill its chunks");
    let answered = (after[0].0 - before[0].0) + followed.query.fallback_rows();
    assert_eq!(answered, ids().len() as u64);
    let fallback = followed.query.fallback_rows();
    followed.change_to(&followed.members(&[0, 1])).await;
    check(&followed.client, &ids()).await;
    assert_eq!(followed.query.fallback_rows(), fallback);
    followed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_list_is_reported_and_the_last_one_stays() {
    let followed = Followed::start(2, &[0, 1]).await;
    check(&followed.client, &ids()).await;
    let twice = followed.members(&[0, 0]);
    let weightless = IoNodeConfig { weight: 0.0, ..followed.members(&[0]).remove(0) };
    for (refused, (nodes, why)) in
        (1..).zip([(twice, "two I/O nodes are named `io-0`"), (vec![weightless], "has weight 0")])
    {
        followed.list.write(&nodes);
        let status = followed
            .until(|status| status.membership.as_ref().unwrap().refused_lists == refused)
            .await;
        let membership = status.membership.unwrap();
        assert!(membership.error.contains(why), "{}", membership.error);
        assert_eq!((membership.generation, status.io_nodes.len()), (1, 2));
        check(&followed.client, &ids()).await;
    }
    assert_eq!(followed.query.fallback_rows(), 0);
    followed.change_to(&followed.members(&[0])).await;
    let membership = followed.client.status().await.unwrap().membership.unwrap();
    assert_eq!((membership.error.as_str(), membership.refused_lists), ("", 2));

    followed.list.write_text("[[io_nodes]]\nendpoint = \"h\"\n");
    let config = config(Path::new("/none"), Source::File(followed.list.path.clone()));
    let lake = Lake::new(config.lake_options());
    let error = QueryNode::start(config, lake).await.err().unwrap();
    assert!(matches!(error, QueryError::Members { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("io.toml") && said.contains("names no port"), "{said}");
    followed.stop().await;
}
