//! One I/O node, a network and a client on one clock, for tests that choose what happens.

use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use client::fetch::Instant;
use io_node::{IoConfig, SteppedNode};
use ring::sim::SimDisk;
use tables::UriPrefix;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::network::Net;
use crate::node::runtime;
use crate::store::Store;

/// The node's name.
pub const NODE: &str = "io-0";

/// A node that serves, the network to it, and the runtime of its client.
pub struct Arena {
    pub node: SteppedNode,
    pub net: Net,
    pub local: LocalSet,
    pub runtime: Runtime,
    pub began: Instant,
    pub now_ms: u64,
}

/// Returns settings of a node with one core, without a RAM tier and a scrubber.
pub fn config() -> IoConfig {
    IoConfig {
        name: NODE.into(),
        serve: vec![UriPrefix::of_config("s3://sim/").unwrap()],
        cores: 1,
        pin: false,
        ram_tier: ByteSize::b(0),
        segment: ByteSize::mib(1),
        memory: ByteSize::gib(4),
        scrub_rate: ByteSize::b(0),
        ..IoConfig::default()
    }
}

impl Arena {
    /// Starts a node, and runs it until it serves.
    pub fn start(seed: u64, config: IoConfig, disk: &SimDisk, store: Store) -> Self {
        let node = SteppedNode::start(config, disk, Arc::new(store), runtime, 1).unwrap();
        let runtime = runtime().unwrap();
        let began = runtime.block_on(async { Instant::now() });
        let (net, local) = (Net::new(seed), LocalSet::new());
        let mut arena = Self { node, net, local, runtime, began, now_ms: 0 };
        while arena.node.found().is_none() {
            arena.step();
        }
        arena.net.listen(NODE);
        arena
    }

    /// Runs everything for a millisecond.
    pub fn step(&mut self) {
        self.now_ms += 1;
        self.net.tick(self.now_ms);
        for end in self.net.accept(NODE) {
            self.node.connect(0, Box::new(end));
        }
        (0..self.node.parts()).for_each(|part| self.node.step(part));
        let until = self.began + Duration::from_millis(self.now_ms);
        self.local.block_on(&self.runtime, async { tokio::time::sleep_until(until).await });
    }

    /// Runs `work` to its end, together with the node and the network.
    pub fn run<T: 'static>(&mut self, work: impl Future<Output = T> + 'static) -> T {
        let task = self.local.spawn_local(work);
        while !task.is_finished() {
            self.step();
        }
        futures::FutureExt::now_or_never(task).unwrap().unwrap()
    }
}
