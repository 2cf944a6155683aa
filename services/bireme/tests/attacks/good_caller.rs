//! A caller who behaves while a node is attacked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::cast::AsArray;
use client::query::{GetRequest, GottenRows, QueryClient};

use super::cluster::Cluster;

/// The pause between two requests. It keeps the caller's own load light, so that all effects that the caller sees come
/// from the attack.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks for two rows by their keys, again and again, each time within `TIMEOUT`.
pub struct GoodCaller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

const TIMEOUT: Duration = Duration::from_secs(30);

/// The answers that a good caller got while the node was attacked.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests answered with the right rows.
    pub answered: u64,
    /// The number of errors by their text. A wrong row is a panic.
    pub refused: BTreeMap<String, u64>,
}

impl GoodCaller {
    /// Calls the query node of `cluster` until [`GoodCaller::stop`]. Before `start` returns, the caller has connected
    /// and got one right answer. That answer does not count, so all answers that are reported came during the attack.
    pub fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (endpoint, token) = (cluster.query.endpoint.clone(), cluster.token.clone());
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let client = QueryClient::connect(&endpoint.parse().unwrap()).await.unwrap();
                let mut client = client.with_timeout(TIMEOUT);
                if let Some(token) = token {
                    client = client.with_token(&token).unwrap();
                }
                ask(&client).await.expect("an answer before the attack");
                let _ = ready.send(());
                let mut seen = Seen::default();
                while !stopped.load(Ordering::Relaxed) {
                    match ask(&client).await {
                        Ok(()) => seen.answered += 1,
                        Err(fault) => *seen.refused.entry(fault).or_default() += 1,
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                seen
            })
        });
        is_ready.recv().expect("the first request failed");
        Self { stop, thread }
    }

    /// Stops the caller, and returns the answers that it got.
    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a good caller got a wrong row")
    }
}

async fn ask(client: &QueryClient) -> Result<(), String> {
    let keys = ["n02503517", "n02121620"];
    let request = GetRequest {
        table: "words".into(),
        keys: keys.map(str::to_owned).into(),
        columns: vec!["synset".into()],
        ..Default::default()
    };
    let gotten = client.get(request).await.map_err(|fault| fault.to_string())?;
    let GottenRows::Arrow(rows) = gotten.rows else { panic!("asked for Arrow") };
    let found: Vec<_> = rows["synset"].as_string::<i32>().iter().flatten().collect();
    assert_eq!(found, keys);
    Ok(())
}
