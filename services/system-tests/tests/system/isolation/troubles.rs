//! Faults of the I/O tier: nodes that are killed and started again, drives that fail, lie and lose power, and
//! connections that are closed or fall silent.
//!
//! Drives are simulated, with the faults of the simulation of I/O nodes (`services/simulation`) and one more: sectors
//! are swapped, so that valid rows of another table or version lie in place of the expected ones.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use address::{ByteOffset, DriveNo, SECTOR_BYTES};
use bytesize::ByteSize;
use client::fetch::{FetchClient, FetchOptions, Instant};
use io_node::{IoConfig, IoNode};
use lake::Lake;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use ring::sim::{SimConfig, SimDisk, SimFaults};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::callers::Around;
use crate::cluster::{endpoint, folder, io_config, lake_of, soon, start_io_on, stop_io, total};

/// The number of simulated drives, and the size of each: its head, and two segments.
const DRIVES: u16 = 2;
const DRIVE: ByteSize = ByteSize::mib(3);
const SEGMENT: ByteSize = ByteSize::mib(1);

/// The sectors before a drive's first segment.
const HEAD_SECTORS: usize = 256;

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
    disk: SimDisk,
    /// The node's reader of tables, which is dropped with the node's last thread.
    reader: Weak<Lake>,
    proxy: watch::Sender<ProxyState>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Reachable {
    pub async fn start(number: usize, seed: u64) -> Self {
        let name = format!("io-{number}");
        let folder = folder();
        let config = IoConfig {
            name: name.clone(),
            segment: SEGMENT,
            // Turn the scrubber off, so that callers find the bad sectors.
            scrub_rate: ByteSize::b(0),
            ..io_config(folder.path())
        };
        let drives = vec![DRIVE.as_u64(); usize::from(DRIVES)];
        let disk = SimDisk::new(SimConfig { seed, drives, ..SimConfig::default() });
        let lake = lake_of(&config);
        let reader = Arc::downgrade(&lake);
        let node = start_io_on(&disk, config.clone(), lake).await;
        let (proxy, _) = watch::channel(ProxyState::Open(node.local_addr()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(accept(listener, proxy.clone()));
        let node = Some(node);
        Self { name, address, node, config, disk, reader, proxy, serving, _folder: folder }
    }

    /// Drops the node without a shutdown, and starts it again on the same drives after `pause`. With `loses_power`, the
    /// drives lose writes that were not flushed.
    async fn kill(&mut self, pause: Duration, loses_power: bool) {
        self.proxy.send_replace(ProxyState::Closed);
        let node = self.node.take();
        tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
        tokio::time::sleep(pause).await;
        let deadline = soon();
        while self.reader.strong_count() > 0 {
            assert!(Instant::now() < deadline, "the drives are still in use");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if loses_power {
            self.disk.crash();
        }
        let lake = lake_of(&self.config);
        self.reader = Arc::downgrade(&lake);
        let node = start_io_on(&self.disk, self.config.clone(), lake).await;
        self.proxy.send_replace(ProxyState::Open(node.local_addr()));
        self.node = Some(node);
    }

    /// Shuffles the sectors of the drives, and makes the drives faulty for the duration of `pause`.
    async fn damage(&self, dice: &mut StdRng, pause: Duration) {
        self.shuffle_sectors(dice);
        let mut rate = || [0, 5, 50, 300][dice.random_range(0..4)];
        self.disk.set_faults(SimFaults {
            short_reads_per_mille: rate(),
            short_writes_per_mille: rate(),
            interrupts_per_mille: rate(),
            failed_reads_per_mille: rate() / 10,
            failed_writes_per_mille: rate() / 10,
            flipped_reads_per_mille: rate(),
            lost_writes_per_mille: rate(),
            is_full: dice.random_bool(0.1),
        });
        tokio::time::sleep(pause).await;
        self.disk.set_faults(SimFaults::default());
    }

    /// Shuffles the sectors of each drive that contain data, except those of the drive's head.
    pub fn shuffle_sectors(&self, dice: &mut StdRng) {
        for drive in (0..DRIVES).map(DriveNo) {
            let contents = self.disk.contents(drive);
            let sectors = contents.chunks(SECTOR_BYTES).enumerate().skip(HEAD_SECTORS);
            let used: Vec<_> = sectors.filter(|(_, it)| it.iter().any(|byte| *byte != 0)).collect();
            let mut places: Vec<_> = used.iter().map(|(at, _)| at * SECTOR_BYTES).collect();
            places.shuffle(dice);
            for ((_, sector), place) in used.iter().zip(places) {
                self.disk.put(drive, ByteOffset(place as u64), sector);
            }
        }
    }

    /// Returns the number of bad sectors that the node has found since it started.
    pub async fn bad_sectors(&self) -> u64 {
        let node = self.node.as_ref().unwrap();
        let client = FetchClient::new(endpoint(node.local_addr()), FetchOptions::default());
        let described = client.unwrap().describe(Duration::from_secs(10)).await.unwrap();
        total(&described, |core| core.bad_sectors)
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
                // Ignore a broken connection: the client notices it.
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

/// A kind of fault.
enum Trouble {
    Kill,
    CutOff,
    Damage,
}

/// Injects faults into one random node at a time until `stop`. Then starts all nodes again, so that retired drives
/// serve again, and returns the nodes.
pub async fn inject(
    mut nodes: Vec<Reachable>,
    mut dice: StdRng,
    around: Arc<Around>,
    stop: CancellationToken,
) -> Vec<Reachable> {
    // Each round begins with damage, and then has every kind of fault once, in random order.
    let mut round = Vec::new();
    while !stop.is_cancelled() {
        let trouble = round.pop().unwrap_or_else(|| {
            round = vec![Trouble::Kill, Trouble::CutOff, Trouble::Damage];
            round.shuffle(&mut dice);
            Trouble::Damage
        });
        let node = dice.random_range(0..nodes.len());
        let node = &mut nodes[node];
        let pause = Duration::from_millis(dice.random_range(0..300));
        let counted = match trouble {
            Trouble::Kill => {
                node.kill(pause, dice.random_bool(0.5)).await;
                "nodes killed"
            }
            Trouble::CutOff => {
                let proxy = [ProxyState::Silent, ProxyState::Closed][dice.random_range(0..2)];
                node.cut(proxy, pause).await;
                "nodes cut off"
            }
            Trouble::Damage => {
                node.damage(&mut dice, pause).await;
                "drives with faults"
            }
        };
        around.count(counted, 1);
    }
    for node in &mut nodes {
        node.kill(Duration::ZERO, false).await;
    }
    nodes
}
