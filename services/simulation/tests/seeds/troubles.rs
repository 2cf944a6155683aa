//! What goes wrong in a run, and when: each seed has some kinds of trouble, and each kind its moments.

use std::collections::BTreeSet;

use address::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo};
use ring::sim::SimFaults;

use crate::dice::Dice;
use crate::happened::Happened;
use crate::network::{Net, NetTroubles};
use crate::node::Node;
use crate::store::{Store, StoreTroubles};
use crate::trace::Trace;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Operations of drives end short, interrupted, in EIO.
    DriveErrors,
    /// Drives bring bits that are wrong, or say that they have written and have not.
    DriveLies,
    /// Bits turn on a drive, sectors can't be read any more.
    DriveRot,
    /// Drives have no room for a while.
    DriveFull,
    /// Drives are slow, or hang for a while.
    DriveSlow,
    /// Drives are pulled out, and put back later.
    DriveGone,
    /// Nodes end and start again, some with their machine.
    Crash,
    /// Nodes are stopped and start again.
    Restart,
    /// Connections are reset, or cut off for a while.
    NetBreaks,
    /// Bytes take long, and come in pieces; clients read slowly.
    NetSlow,
    /// The store fails, or hangs.
    StoreErrors,
    /// Files of the store are gone.
    StoreLoss,
}

const ALL: [Kind; 12] = [
    Kind::DriveErrors,
    Kind::DriveLies,
    Kind::DriveRot,
    Kind::DriveFull,
    Kind::DriveSlow,
    Kind::DriveGone,
    Kind::Crash,
    Kind::Restart,
    Kind::NetBreaks,
    Kind::NetSlow,
    Kind::StoreErrors,
    Kind::StoreLoss,
];

/// Those of one seed.
pub struct Troubles {
    kinds: Vec<Kind>,
    dice: Dice,
    /// Of 1,000 milliseconds, in how many something begins.
    per_mille: u64,
    /// What is over when, in ms.
    ends: BTreeSet<(u64, Kind, usize)>,
}

impl Troubles {
    /// Each kind in half of the seeds, and none at all in some.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "troubles");
        let share = [0, 300, 300, 600, 600][dice.below(5)];
        let kinds = ALL.into_iter().filter(|_| dice.per_mille(share)).collect();
        let per_mille = dice.from(5..=40);
        Self { kinds, dice, per_mille, ends: BTreeSet::new() }
    }

    /// Its kinds.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Begins and ends what is due.
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
            if kind == Kind::Crash {
                happened.in_life_of(&mut nodes[node]);
            }
            if let Some(length) =
                begin(&mut self.dice, kind, &mut nodes[node], net, store, now, trace)
            {
                self.ends.insert((now + length, kind, node));
            }
        }
    }

    /// Ends all that is under way; nodes that are down start soon.
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

/// How long it lasts, in ms, if it is to end.
fn begin(
    dice: &mut Dice,
    kind: Kind,
    node: &mut Node,
    net: &Net,
    store: &Store,
    now: u64,
    trace: &Trace,
) -> Option<u64> {
    let name = node.name.clone();
    match kind {
        Kind::DriveErrors => {
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
        Kind::DriveLies => {
            node.is_damaged = true;
            let mut rate = || [0, 5, 50, 300][dice.below(4)];
            node.disk.set_faults(SimFaults {
                flipped_reads_per_mille: rate(),
                lost_writes_per_mille: rate(),
                ..SimFaults::default()
            });
        }
        Kind::DriveRot => {
            node.is_damaged = true;
            for _ in 0..1 + dice.below(40) {
                rot(dice, node);
            }
            return None;
        }
        Kind::DriveFull => {
            node.disk.set_faults(SimFaults { is_full: true, ..SimFaults::default() });
        }
        Kind::DriveSlow => match dice.below(3) {
            0 => node.disk.hold(true),
            1 => node.disk.set_latency(1..=400),
            _ => node.disk.set_latency(20..=60),
        },
        Kind::DriveGone => {
            let drives = node.disk.slabs().len();
            node.disk.unplug(DriveNo(dice.below(drives) as u16), true);
        }
        Kind::Crash => {
            if node.up().is_some() {
                net.vanish(&name, dice.per_mille(300));
                node.crash(dice.per_mille(600), trace);
                node.starts_at = Some(now + dice.from(1..=150));
            }
            return None;
        }
        Kind::Restart => {
            let time = [2, 40, 1000, 10_000][dice.below(4)];
            node.stop(net, now + time, trace);
            return None;
        }
        Kind::NetBreaks => {
            match dice.per_mille(500) {
                true => net.reset_some(&name),
                false => net.cut_off(&name, dice.from(5..=900)),
            }
            return None;
        }
        Kind::NetSlow => {
            let most = [0, 3, 40][dice.below(3)];
            let short_per_mille = [0, 200][dice.below(2)];
            net.set_troubles(NetTroubles { latency_ms: 0..=most, short_per_mille });
            net.slow_some(&name, [200, 5000, usize::MAX][dice.below(3)]);
            return None;
        }
        Kind::StoreErrors => store.set_troubles(StoreTroubles {
            latency_ms: 1..=[10, 100][dice.below(2)],
            failing_per_mille: [0, 50, 500, 1000][dice.below(4)],
            hanging_per_mille: [0, 0, 20][dice.below(3)],
            ..StoreTroubles::default()
        }),
        Kind::StoreLoss => store.set_troubles(StoreTroubles {
            vanished: (0..6).filter(|_| dice.per_mille(400)).collect(),
            ..StoreTroubles::default()
        }),
    }
    Some(dice.from(5..=300))
}

fn end(kind: Kind, node: &mut Node, store: &Store) {
    match kind {
        Kind::DriveErrors | Kind::DriveLies | Kind::DriveFull => {
            node.disk.set_faults(SimFaults::default());
        }
        Kind::DriveSlow => {
            node.disk.hold(false);
            node.disk.set_latency(1..=3);
        }
        Kind::DriveGone => {
            let drives = 0..node.disk.slabs().len();
            drives.for_each(|drive| node.disk.unplug(DriveNo(drive as u16), false));
        }
        Kind::StoreErrors | Kind::StoreLoss => store.set_troubles(StoreTroubles::default()),
        Kind::DriveRot | Kind::Crash | Kind::Restart | Kind::NetBreaks | Kind::NetSlow => {}
    }
}

/// A bit turns, or a sector can't be read any more: behind the superblock, whose loss is the operator's to mend.
fn rot(dice: &mut Dice, node: &Node) {
    let slabs = node.disk.slabs();
    let drive = dice.below(slabs.len());
    let sectors = slabs[drive].len() / SECTOR_BYTES as u64;
    let (drive, sector) = (DriveNo(drive as u16), SectorNo(dice.from(256..=sectors - 1)));
    match dice.per_mille(700) {
        true => {
            let at = sector.0 * SECTOR_BYTES as u64 + dice.from(0..=SECTOR_BYTES as u64 - 1);
            node.disk.flip_bit(drive, ByteOffset(at), dice.below(8) as u8);
        }
        false => node.disk.break_sector(drive, sector),
    }
}
