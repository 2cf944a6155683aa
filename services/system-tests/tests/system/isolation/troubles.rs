//! Faults of the I/O tier: nodes that are killed and start again, and connections that are cut or say nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use io_node::{IoConfig, IoNode};
use rand::Rng;
use rand::rngs::StdRng;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{folder, io_config, start_io, start_io_again, stop_io};

/// The state of the way to an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Connections lead to this address.
    Open(SocketAddr),
    /// Connections are closed.
    Closed,
    /// Connections are accepted, and nothing is sent or read.
    Silent,
}

/// An I/O node behind an address that stays the same.
pub struct Reachable {
    pub name: String,
    /// The address of the way to the node.
    pub address: SocketAddr,
    node: Option<IoNode>,
    config: IoConfig,
    way: watch::Sender<Way>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Reachable {
    pub async fn start(number: usize) -> Self {
        let name = format!("io-{number}");
        let folder = folder();
        let config = IoConfig { name: name.clone(), ..io_config(folder.path()) };
        let node = start_io(config.clone()).await;
        let (way, _) = watch::channel(Way::Open(node.local_addr()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(accept(listener, way.clone()));
        Self { name, address, node: Some(node), config, way, serving, _folder: folder }
    }

    /// Ends the node without a farewell, and starts it again over the same drive.
    async fn kill(&mut self, pause: Duration) {
        self.way.send_replace(Way::Closed);
        let node = self.node.take();
        tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
        tokio::time::sleep(pause).await;
        let node = start_io_again(self.config.clone()).await;
        self.way.send_replace(Way::Open(node.local_addr()));
        self.node = Some(node);
    }

    /// Cuts the node off for a while.
    async fn cut(&mut self, way: Way, pause: Duration) {
        let before = self.way.send_replace(way);
        tokio::time::sleep(pause).await;
        self.way.send_replace(before);
    }

    pub async fn stop(mut self) {
        self.serving.abort();
        if let Some(node) = self.node.take() {
            stop_io(node).await;
        }
    }
}

/// Serves the way to a node.
async fn accept(listener: TcpListener, way: watch::Sender<Way>) {
    let way = Arc::new(way);
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(carry(stream, way.subscribe()));
    }
}

/// Carries a connection until the way changes.
async fn carry(mut stream: TcpStream, mut way: watch::Receiver<Way>) {
    let now = *way.borrow_and_update();
    let carried = async {
        match now {
            Way::Open(address) => {
                let Ok(mut node) = TcpStream::connect(address).await else { return };
                // A connection that breaks is the caller's to notice.
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut node).await;
            }
            Way::Closed => {}
            Way::Silent => std::future::pending().await,
        }
    };
    tokio::select! {
        () = carried => {}
        _ = way.changed() => {}
    }
}

/// Injects faults into one node after the other until `stop`. Returns how many nodes were killed and cut off, and the
/// nodes, all of which can be reached again.
pub async fn inject(
    mut nodes: Vec<Reachable>,
    mut dice: StdRng,
    stop: CancellationToken,
) -> (Vec<Reachable>, [usize; 2]) {
    let [mut killed, mut cut] = [0; 2];
    while !stop.is_cancelled() {
        let node = dice.random_range(0..nodes.len());
        let pause = Duration::from_millis(dice.random_range(0..300));
        match dice.random_range(0..4) {
            0 => {
                nodes[node].kill(pause).await;
                killed += 1;
            }
            1 | 2 => {
                let way = [Way::Silent, Way::Closed][dice.random_range(0..2)];
                nodes[node].cut(way, pause).await;
                cut += 1;
            }
            _ => tokio::time::sleep(pause).await,
        }
    }
    (nodes, [killed, cut])
}
