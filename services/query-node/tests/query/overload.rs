//! A request is refused if the maximum number of requests is waiting already.

use std::fs::read_dir;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytesize::ByteSize;
use client::query::{GetRequest, QueryClient, TakeRequest};
use lake::IndexRequest;
use query_node::QueryConfig;
use wire::Reason;
use wire::query::{PlacementRequest, WarmRequest};

use crate::keys::presence;
use crate::lookups::text_keys;
use crate::node::{config, ids, near, serve_with};
use crate::table::{TestTable, address_of, key, vector};

/// The maximum time of each wait: longer than the test takes on any machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A script that holds a lease on each given file, so that opening one blocks. It ends when its input does.
const HOLDER: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
for path in sys.argv[1:]:
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

/// Leases on a table's data files: opening them blocks until this is dropped. The kernel breaks a lease after 45
/// seconds (`/proc/sys/fs/lease-break-time`).
pub struct Withheld(Child);

impl Withheld {
    pub fn of(table: &TestTable) -> Self {
        let files = read_dir(PathBuf::from(&table.uri).join("data")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let mut holder = Command::new("python3")
            .args(["-c", HOLDER])
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(holder)
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn take(id: i64) -> TakeRequest {
    let row_addrs = vec![address_of(id).to_u64()];
    TakeRequest { table: "t".into(), row_addrs, ..Default::default() }
}

/// Waits until exactly `expected` requests wait for a permit.
pub async fn waiting(client: &QueryClient, expected: u32) {
    let waits = async {
        while client.status().await.unwrap().search_queue != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.expect("so many wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_a_full_queue_every_call_is_refused_alike_and_answered_later() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let (_node, client) = serve_with(QueryConfig {
        search_concurrency: 1,
        search_queue_max: 1,
        timeout: 20 * PATIENCE,
        ..config(&[("t", &table)])
    })
    .await;
    let client = client.with_timeout(10 * PATIENCE);
    let withheld = Withheld::of(&table);
    let taking = |id| {
        let client = client.clone();
        tokio::spawn(async move { client.take(take(id)).await?.collect().await })
    };
    let first = taking(1);
    // One of the two Takes has the permit and no place in the queue; the other one waits.
    let second = taking(2);
    waiting(&client, 1).await;

    let placement = PlacementRequest { table: "t".into(), ..Default::default() };
    let got = GetRequest { table: "t".into(), keys: vec![key(3)], ..Default::default() };
    let warm = WarmRequest { table: "t".into(), ..Default::default() };
    let refused = [
        ("Placement", client.placement(placement.clone()).await.err()),
        ("Warm", client.warm(warm).await.err()),
        ("Search", client.search(near(vector(4), 3)).await.err()),
        ("Get", client.get(got).await.err()),
        ("Take", client.take(take(5)).await.err()),
    ];
    for (call, fault) in refused {
        let fault = fault.unwrap_or_else(|| panic!("{call} was not refused"));
        assert_eq!(fault.reason, Reason::Overloaded, "{call}: {fault}");
        assert!(fault.message.contains("queue is full, with 1 waiting"), "{call}: {fault}");
    }

    drop(withheld);
    let answers = [first.await.unwrap(), second.await.unwrap()];
    let rows = answers.into_iter().flatten().flat_map(|taken| taken.batches);
    let rows: Vec<_> = rows.flat_map(|rows| ids(&rows)).collect();
    assert_eq!(rows, [1, 2]);
    waiting(&client, 0).await;
    let placed = client.placement(placement).await.unwrap();
    assert_eq!(placed.nodes.iter().map(|node| node.rows).sum::<u64>(), 3000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_by_a_configured_key_does_not_wait_for_the_background() {
    let table = TestTable::plain().await;
    table.index(IndexRequest::Scalar { column: "key".into() }).await;
    let mut config = QueryConfig {
        search_concurrency: 1,
        timeout: 20 * PATIENCE,
        // The BTREE answers look-ups.
        key_index: ByteSize::b(0),
        ..config(&[("t", &table)])
    };
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (_node, client) = serve_with(config).await;
    let client = client.with_timeout(10 * PATIENCE);
    let stream = presence(&client).await;
    let keys = || text_keys(&[key(1), key(7)]);
    // The first look-up opens the BTREE and loads its pages in the background.
    assert_eq!(stream.get(keys()).await.unwrap().not_found, [1]);
    let withheld = Withheld::of(&table);
    let taking = |id| {
        let client = client.clone();
        tokio::spawn(async move { client.take(take(id)).await?.collect().await })
    };
    let (first, second) = (taking(1), taking(2));
    waiting(&client, 1).await;
    let found = tokio::time::timeout(PATIENCE / 3, stream.get(keys())).await;
    drop(withheld);
    assert_eq!(found.expect("the look-up waits for no Take").unwrap().not_found, [1]);
    for taken in [first, second] {
        taken.await.unwrap().unwrap();
    }
}
