//! A simulated I/O node: its drives, its settings, and whether it is up.

use bytesize::ByteSize;
use io_node::{IoConfig, ShareConfig, StartWarmConfig, SteppedNode, SteppedState};
use ring::sim::{SimConfig, SimDisk};
use std::sync::Arc;
use std::time::Duration;
use tables::UriPrefix;

use crate::dice::Dice;
use crate::network::Net;
use crate::store::Store;
use crate::trace::Trace;
use crate::truth::TABLES;

/// The bytes before a drive's first segment, and also the length of a segment.
const MIB: u64 = 1 << 20;

/// The number of epochs per life. Each life has its own range of epochs, above those of all earlier lives.
const EPOCHS_A_LIFE: u64 = 1 << 32;

/// An I/O node of a run.
pub struct Node {
    pub name: String,
    pub disk: SimDisk,
    /// Whether the drives were damaged in a way that recovery cannot notice.
    pub is_damaged: bool,
    config: IoConfig,
    up: Option<SteppedNode>,
    lives: u64,
    /// The core that gets the next connection.
    next_core: usize,
    /// The time at which a node that is down starts, in ms. `None` while it is up.
    pub starts_at: Option<u64>,
    /// Whether the node is stopping.
    is_stopping: bool,
    /// The time by which the streams of a stopping node must end, in ms.
    drains_until: u64,
    was_found: bool,
    /// The node's state at the end of its last life, if it had recorded what it had written.
    pub ended: Option<SteppedState>,
}

impl Node {
    /// Creates a node that is down, with empty drives.
    pub fn new(seed: u64, number: usize) -> Self {
        let mut dice = Dice::new(seed, &format!("node {number}"));
        let name = format!("io-{number}");
        let mut config = config(&mut dice, &name);
        let mut count = 1 + dice.below(3);
        let mut segments = 2;
        if dice.per_mille(300) {
            // Four segments of each drive cannot be guaranteed, so drives with shares need more segments.
            (count, segments) = (1 + dice.below(2), 9);
            config.shares = shares(&mut dice);
        }
        let drives: Vec<_> =
            (0..count).map(|_| MIB * (1 + segments + dice.below(4) as u64)).collect();
        if dice.per_mille(300) {
            config.warm_at_start = start_warms(&mut dice);
            config.start_max = dice.ms(50..=20_000);
        }
        let tick = Duration::from_millis(1);
        let latency_ticks = 1..=3;
        let disk_config =
            SimConfig { seed: dice.any(), drives, latency_ticks, tick, ..SimConfig::default() };
        Self {
            name,
            disk: SimDisk::new(disk_config),
            is_damaged: false,
            config,
            up: None,
            lives: 0,
            next_core: 0,
            starts_at: Some(0),
            is_stopping: false,
            drains_until: 0,
            was_found: false,
            ended: None,
        }
    }

    /// Returns the node if it is up.
    pub fn up(&mut self) -> Option<&mut SteppedNode> {
        self.up.as_mut()
    }

    /// Returns the credits that a stream begins with.
    pub fn credit_rows(&self) -> u32 {
        self.config.credit_rows
    }

    /// Starts the node.
    pub fn start(&mut self, store: &Store, trace: &Trace) {
        let epoch_min = self.lives * EPOCHS_A_LIFE + 1;
        let tables = Arc::new(store.clone());
        let started =
            SteppedNode::start(self.config.clone(), &self.disk, tables, runtime, epoch_min);
        self.up =
            Some(started.unwrap_or_else(|error| panic!("{} can't start: {error}", self.name)));
        self.lives += 1;
        (self.starts_at, self.is_stopping, self.was_found) = (None, false, false);
        trace.say(format_args!("{} starts", self.name));
    }

    /// Ends the node at once; with `loses_power` its drives lose writes that were not flushed. Its connections must
    /// have ended already.
    pub fn crash(&mut self, loses_power: bool, trace: &Trace) {
        if loses_power {
            self.disk.crash();
        }
        self.up = None;
        trace.say(format_args!("{} ends; power is lost: {loses_power}", self.name));
    }

    /// Begins to stop the node, as SIGTERM does: it stops listening, and its streams have until `until`, in ms, to end.
    pub fn stop(&mut self, net: &Net, until: u64, trace: &Trace) {
        if let Some(up) = self.up.as_mut().filter(|_| !self.is_stopping) {
            up.stop();
            net.unlisten(&self.name);
            (self.is_stopping, self.drains_until) = (true, until);
            trace.say(format_args!("{} is told to stop until {until}", self.name));
        }
    }

    /// Returns whether the node serves and is not stopping.
    pub fn serves(&self) -> bool {
        !self.is_stopping && self.up.as_ref().is_some_and(|up| up.found().is_some())
    }

    /// Returns whether a stopping node has stopped. `Some(true)` means that it has recorded what it had written and has
    /// ended its streams; `Some(false)` that its time is over; `None` that it has not stopped.
    pub fn has_stopped(&mut self, now: u64) -> Option<bool> {
        let up = self.up.as_mut().filter(|_| self.is_stopping)?;
        match up.has_stopped() {
            true => Some(true),
            false => (now >= self.drains_until).then_some(false),
        }
    }

    /// Returns the number of the current life, or `None` while the node is stopping.
    pub fn life(&self) -> Option<u64> {
        (!self.is_stopping).then_some(self.lives)
    }

    /// Returns how often the node was started.
    pub fn lives(&self) -> u64 {
        self.lives
    }

    /// Returns the node's settings.
    pub fn config(&self) -> &IoConfig {
        &self.config
    }

    /// Accepts waiting connections, and runs each part of the node for a millisecond, beginning with a random one.
    pub fn step(&mut self, net: &Net, dice: &mut Dice, trace: &Trace) {
        let Some(up) = &mut self.up else { return };
        if up.found().is_some() && !self.is_stopping {
            for end in net.accept(&self.name) {
                up.connect(self.next_core, Box::new(end));
                self.next_core = (self.next_core + 1) % (up.parts() - 1);
            }
        }
        let first = dice.below(up.parts());
        (first..up.parts()).chain(0..first).for_each(|part| up.step(part));
        if let Some(found) = up.found().filter(|_| !self.was_found) {
            self.was_found = true;
            if !self.is_stopping {
                net.listen(&self.name);
            }
            trace.say(format_args!("{} serves, with {found} extents", self.name));
            let damaged = if self.is_damaged { Vec::new() } else { up.damaged() };
            assert!(damaged.is_empty(), "{} found what is not whole: {damaged:?}", self.name);
        }
    }
}

/// Creates a current-thread runtime with paused time.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// Returns shares for drives of 9 segments or more. Four segments of a drive cannot be guaranteed, and two thirds of
/// the others can.
fn shares(dice: &mut Dice) -> Vec<ShareConfig> {
    let kib = |dice: &mut Dice, range| ByteSize::kib(dice.in_range(range));
    let share = |table: usize| ShareConfig {
        uri: TABLES[table][0].uri.to_owned(),
        minimum: ByteSize::b(0),
        maximum: None,
        pinned: false,
    };
    let (minimum, pinned) = (kib(dice, 1..=1024), ByteSize::mib(1));
    let maximum = kib(dice, 1024..=4096);
    let mut shares = vec![
        ShareConfig { minimum, ..share(0) },
        ShareConfig { maximum: Some(pinned), pinned: true, ..share(1) },
        ShareConfig { maximum: Some(maximum), ..share(2) },
    ];
    shares.retain(|_| dice.per_mille(700));
    shares
}

/// Returns the fills that a starting node waits for before it is ready.
fn start_warms(dice: &mut Dice) -> Vec<StartWarmConfig> {
    let warm = |table: usize, version: u64| StartWarmConfig {
        uri: TABLES[table][0].uri.to_owned(),
        version,
        columns: Vec::new(),
    };
    let mut warms = vec![warm(0, dice.in_range(0..=3)), warm(1, 1)];
    warms.retain(|_| dice.per_mille(700));
    warms
}

/// Returns settings so small that runs reach the node's bounds.
fn config(dice: &mut Dice, name: &str) -> IoConfig {
    let cores = 1 + dice.below(3);
    let batch_rows_max = [8, 64, 256][dice.below(3)];
    IoConfig {
        name: name.to_owned(),
        serve: vec![UriPrefix::of_config("s3://sim/").unwrap()],
        cores,
        pin: false,
        ram_tier: ByteSize::kib([0, 64, 1024][dice.below(3)]),
        slots: [2, 8, 32][dice.below(3)],
        read_max: ByteSize::kib([4, 32, 256][dice.below(3)]),
        read_timeout: dice.ms(40..=200),
        segment: ByteSize::mib(1),
        credit_rows: batch_rows_max * [1, 4, 16][dice.below(3)],
        batch_rows_max,
        queue_rows_max: [1024, 16_384][dice.below(2)],
        memory: ByteSize::gib(4),
        traffic_memory: ByteSize::mib(cores as u64 * [4, 16, 64][dice.below(3)]),
        fills: 1 + dice.below(3),
        fill_rate: ByteSize::mib([0, 0, 20][dice.below(3)]),
        scrub_rate: ByteSize::mib([0, 4][dice.below(2)]),
        fill_queue_max: [2, 64][dice.below(2)],
        table_reads: 1 + dice.below(4),
        table_queue_max: [8, 64][dice.below(2)],
        ..IoConfig::default()
    }
}
