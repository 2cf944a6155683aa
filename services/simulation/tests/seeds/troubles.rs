//! Injects faults into a run: each seed selects some kinds of faults, and the times at which they begin and end.

use std::collections::BTreeSet;

use address::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo};
use ring::sim::SimFaults;

use crate::dice::Dice;
use crate::files::FILES;
use crate::happened::Happened;
use crate::network::{Net, NetTroubles};
use crate::node::Node;
use crate::store::{Store, StoreTroubles};
use crate::trace::Trace;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Operations of drives are short, interrupted, or fail with EIO.
    DriveErrors,
    /// Drives return flipped bits, or lose writes that they have acknowledged.
    DriveLies,
    /// Bits flip on a drive, or sectors become unreadable.
    DriveRot,
    /// Drives are full for a while.
    DriveFull,
    /// Drives are slow or hang for a while, or one of them hangs.
    DriveSlow,
    /// Drives are unplugged, and plugged in again later.
    DriveGone,
    /// Nodes crash and start again, some with a power loss.
    Crash,
    /// Nodes are stopped gracefully and start again.
    Restart,
    /// Connections are reset, or cut off for a while.
    NetBreaks,
    /// Bytes arrive late and in pieces; clients read slowly.
    NetSlow,
    /// Requests to the store fail, hang or are slow, or their answers are cut short.
    StoreErrors,
    /// Files of the store are missing.
    StoreLoss,
}

const ALL: [FaultKind; 12] = [
    FaultKind::DriveErrors,
    FaultKind::DriveLies,
    FaultKind::DriveRot,
    FaultKind::DriveFull,
    FaultKind::DriveSlow,
    FaultKind::DriveGone,
    FaultKind::Crash,
    FaultKind::Restart,
    FaultKind::NetBreaks,
    FaultKind::NetSlow,
    FaultKind::StoreErrors,
    FaultKind::StoreLoss,
];

/// The faults of one seed.
pub struct Troubles {
    kinds: Vec<FaultKind>,
    dice: Dice,
    /// The number of milliseconds in 1,000 in which a fault begins.
    per_mille: u64,
    /// The faults under way: when they end, in ms, their kind, and the index of the node.
    ends: BTreeSet<(u64, FaultKind, usize)>,
}

impl Troubles {
    /// Selects the kinds of faults for a seed. Some seeds have none.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "troubles");
        let share = [0, 300, 300, 600, 600][dice.below(5)];
        let kinds = ALL.into_iter().filter(|_| dice.per_mille(share)).collect();
        let per_mille = dice.in_range(5..=40);
        Self { kinds, dice, per_mille, ends: BTreeSet::new() }
    }

    /// Returns the kinds of faults.
    pub fn kinds(&self) -> &[FaultKind] {
        &self.kinds
    }

    /// Begins and ends the faults that are due.
    pub fn act(
        &mut self,
        now: u64,
        nodes: &mut [Node],
        net: &Net,
        store: &Store,
        trace: &Trace,
        happened: &mut Happened,
    ) {
        while let Some(&(at, kind, node)) = self.ends.first().filter(|end| end.0 <= now) {
            self.ends.remove(&(at, kind, node));
            trace.say(format_args!("{kind:?} of {} is over", nodes[node].name));
            end(kind, &mut nodes[node], store);
        }
        if !self.kinds.is_empty() && self.dice.per_mille(self.per_mille) {
            let kind = *self.dice.pick(&self.kinds);
            let node = self.dice.below(nodes.len());
            trace.say(format_args!("{kind:?} of {}", nodes[node].name));
            happened.count(&format!("{kind:?}"), 1);
            if kind == FaultKind::Crash {
                happened.in_life_of(&mut nodes[node]);
            }
            if let Some(length) =
                begin(&mut self.dice, kind, &mut nodes[node], net, store, now, trace)
            {
                self.ends.insert((now + length, kind, node));
            }
        }
    }

    /// Ends all faults. Nodes that are down start soon.
    pub fn end_all(&mut self, now: u64, nodes: &mut [Node], net: &Net, store: &Store) {
        self.ends.clear();
        net.heal();
        for node in nodes {
            for kind in ALL {
                end(kind, node, store);
            }
            node.starts_at = node.starts_at.map(|_| now + 1);
        }
    }
}

/// Begins a fault. Returns its duration in ms if it must be ended later.
fn begin(
    dice: &mut Dice,
    kind: FaultKind,
    node: &mut Node,
    net: &Net,
    store: &Store,
    now: u64,
    trace: &Trace,
) -> Option<u64> {
    let name = node.name.clone();
    match kind {
        FaultKind::DriveErrors => {
            let mut rate = || [0, 2, 30, 300][dice.below(4)];
            node.disk.set_faults(SimFaults {
                short_reads_per_mille: rate(),
                short_writes_per_mille: rate(),
                interrupts_per_mille: rate(),
                failed_reads_per_mille: rate(),
                failed_writes_per_mille: rate(),
                ..SimFaults::default()
            });
        }
        FaultKind::DriveLies => {
            node.is_damaged = true;
            let mut rate = || [0, 5, 50, 300][dice.below(4)];
            node.disk.set_faults(SimFaults {
                flipped_reads_per_mille: rate(),
                lost_writes_per_mille: rate(),
                ..SimFaults::default()
            });
        }
        FaultKind::DriveRot => {
            node.is_damaged = true;
            for _ in 0..1 + dice.below(40) {
                rot(dice, node);
            }
            return None;
        }
        FaultKind::DriveFull => {
            node.disk.set_faults(SimFaults { is_full: true, ..SimFaults::default() });
        }
        FaultKind::DriveSlow => match dice.below(4) {
            0 => node.disk.hold(true),
            3 => node.disk.hang(DriveNo(dice.below(node.disk.slabs().len()) as u16), true),
            1 => node.disk.set_latency(1..=400),
            _ => node.disk.set_latency(20..=60),
        },
        FaultKind::DriveGone => {
            let drives = node.disk.slabs().len();
            node.disk.unplug(DriveNo(dice.below(drives) as u16), true);
        }
        FaultKind::Crash => {
            if node.up().is_some() {
                net.vanish(&name, dice.per_mille(300));
                node.crash(dice.per_mille(600), trace);
                node.starts_at = Some(now + dice.in_range(1..=150));
            }
            return None;
        }
        FaultKind::Restart => {
            let time = [2, 40, 1000, 10_000][dice.below(4)];
            node.stop(net, now + time, trace);
            return None;
        }
        FaultKind::NetBreaks => {
            match dice.per_mille(500) {
                true => net.reset_some(&name),
                false => net.cut_off(&name, dice.in_range(5..=900)),
            }
            return None;
        }
        FaultKind::NetSlow => {
            let most = [0, 3, 40][dice.below(3)];
            let short_per_mille = [0, 200][dice.below(2)];
            net.set_troubles(NetTroubles { latency_ms: 0..=most, short_per_mille });
            net.slow_some(&name, [200, 5000, usize::MAX][dice.below(3)]);
            return None;
        }
        FaultKind::StoreErrors => store.set_troubles(StoreTroubles {
            latency_ms: 1..=[10, 100][dice.below(2)],
            failing_per_mille: [0, 50, 500, 1000][dice.below(4)],
            hanging_per_mille: [0, 0, 20][dice.below(3)],
            truncated_per_mille: [0, 200][dice.below(2)],
            overwritten: FILES.iter().map(|it| it.path).filter(|_| dice.per_mille(700)).collect(),
            ..StoreTroubles::default()
        }),
        FaultKind::StoreLoss => store.set_troubles(StoreTroubles {
            vanished: (0..20).filter(|_| dice.per_mille(400)).collect(),
            ..StoreTroubles::default()
        }),
    }
    Some(dice.in_range(5..=300))
}

fn end(kind: FaultKind, node: &mut Node, store: &Store) {
    match kind {
        FaultKind::DriveErrors | FaultKind::DriveLies | FaultKind::DriveFull => {
            node.disk.set_faults(SimFaults::default());
        }
        FaultKind::DriveSlow => {
            node.disk.hold(false);
            node.disk.set_latency(1..=3);
            let drives = 0..node.disk.slabs().len();
            drives.for_each(|drive| node.disk.hang(DriveNo(drive as u16), false));
        }
        FaultKind::DriveGone => {
            let drives = 0..node.disk.slabs().len();
            drives.for_each(|drive| node.disk.unplug(DriveNo(drive as u16), false));
        }
        FaultKind::StoreErrors | FaultKind::StoreLoss => {
            store.set_troubles(StoreTroubles::default());
        }
        FaultKind::DriveRot
        | FaultKind::Crash
        | FaultKind::Restart
        | FaultKind::NetBreaks
        | FaultKind::NetSlow => {}
    }
}

/// Flips a bit or makes a sector unreadable, but never in the drive's first MiB, which contains the superblock: if the
/// superblock is lost, an operator has to repair the drive.
fn rot(dice: &mut Dice, node: &Node) {
    let slabs = node.disk.slabs();
    let drive = dice.below(slabs.len());
    let sectors = slabs[drive].len() / SECTOR_BYTES as u64;
    let (drive, sector) = (DriveNo(drive as u16), SectorNo(dice.in_range(256..=sectors - 1)));
    match dice.per_mille(700) {
        true => {
            let at = sector.0 * SECTOR_BYTES as u64 + dice.in_range(0..=SECTOR_BYTES as u64 - 1);
            node.disk.flip_bit(drive, ByteOffset(at), dice.below(8) as u8);
        }
        false => node.disk.break_sector(drive, sector),
    }
}
