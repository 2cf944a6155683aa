//! Faults of the I/O tier: nodes that are killed and started again, and connections that are closed or fall silent.

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

/// The state of the proxy in front of an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyState {
    /// Connections are forwarded to this address.
    Open(SocketAddr),
    /// Connections are closed.
    Closed,
    /// Connections are accepted, but nothing is read or sent.
    Silent,
}

/// An I/O node behind a proxy, whose address stays the same when the node starts again.
pub struct Reachable {
    pub name: String,
    /// The address of the proxy.
    pub address: SocketAddr,
    node: Option<IoNode>,
    config: IoConfig,
    proxy: watch::Sender<ProxyState>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Reachable {
    pub async fn start(number: usize) -> Self {
        let name = format!("io-{number}");
        let folder = folder();
        let config = IoConfig { name: name.clone(), ..io_config(folder.path()) };
        let node = start_io(config.clone()).await;
        let (proxy, _) = watch::channel(ProxyState::Open(node.local_addr()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(accept(listener, proxy.clone()));
        Self { name, address, node: Some(node), config, proxy, serving, _folder: folder }
    }

    /// Drops the node without a shutdown, and starts it again on the same drive after `pause`.
    async fn kill(&mut self, pause: Duration) {
        self.proxy.send_replace(ProxyState::Closed);
        let node = self.node.take();
        tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
        tokio::time::sleep(pause).await;
        let node = start_io_again(self.config.clone()).await;
        self.proxy.send_replace(ProxyState::Open(node.local_addr()));
        self.node = Some(node);
    }

    /// Cuts the node off for the duration of `pause`.
    async fn cut(&mut self, proxy: ProxyState, pause: Duration) {
        let before = self.proxy.send_replace(proxy);
        tokio::time::sleep(pause).await;
        self.proxy.send_replace(before);
    }

    pub async fn stop(mut self) {
        self.serving.abort();
        if let Some(node) = self.node.take() {
            stop_io(node).await;
        }
    }
}

/// Runs the proxy of a node.
async fn accept(listener: TcpListener, proxy: watch::Sender<ProxyState>) {
    let proxy = Arc::new(proxy);
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(carry(stream, proxy.subscribe()));
    }
}

/// Serves a connection of the proxy until the proxy's state changes.
async fn carry(mut stream: TcpStream, mut proxy: watch::Receiver<ProxyState>) {
    let now = *proxy.borrow_and_update();
    let carried = async {
        match now {
            ProxyState::Open(address) => {
                let Ok(mut node) = TcpStream::connect(address).await else { return };
                // If the connection breaks, the client notices.
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut node).await;
            }
            ProxyState::Closed => {}
            ProxyState::Silent => std::future::pending().await,
        }
    };
    tokio::select! {
        () = carried => {}
        _ = proxy.changed() => {}
    }
}

/// Injects faults into one random node at a time until `stop`. Returns the nodes, all of which are reachable again, and
/// how often nodes were killed and cut off.
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
                let proxy = [ProxyState::Silent, ProxyState::Closed][dice.random_range(0..2)];
                nodes[node].cut(proxy, pause).await;
                cut += 1;
            }
            _ => tokio::time::sleep(pause).await,
        }
    }
    (nodes, [killed, cut])
}
