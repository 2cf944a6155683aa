//! Which drives' transfers (writes, syncs, owned reads) queue together, and how many of each queue may
//! be in flight. Pure.
//!
//! Drives of one device have one queue, as a read of either waits behind what the device has been given
//! to write; all others have one each. All rings together may have a quarter of what the device takes at
//! a time: the rest is left to reads.

use std::collections::{BTreeMap, HashMap};

use address::DriveNo;

use crate::device::QueueDepth;
use crate::{Engine, RingConfig};

/// All rings' transfers are at most one in so many of what a device takes.
const QUEUE_PARTS: u32 = 4;

/// Over all queues: with the most slots of reads, two thirds of what an io_uring can be made for.
const IN_FLIGHT_MAX: u32 = 4096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferLimits {
    /// Of each drive: the number of its queue.
    queues: Vec<usize>,
    /// Of each queue.
    in_flight_max: Vec<u32>,
}

impl TransferLimits {
    /// For drives of these depths.
    pub fn new(config: &RingConfig, drives: &[&QueueDepth]) -> Self {
        let most = config.transfers_in_flight_max;
        if matches!(config.engine, Engine::InPlace) {
            // The device is the core: each of its transfers holds up the reads of all drives.
            return Self { queues: vec![0; drives.len()], in_flight_max: vec![most] };
        }
        let queues = group(drives);
        let count = queues.iter().max().map_or(0, |last| last + 1);
        let mut in_flight_max = vec![most; count];
        for (drive, &queue) in drives.iter().zip(&queues) {
            let share = drive.requests() / QUEUE_PARTS / config.rings;
            in_flight_max[queue] = in_flight_max[queue].min(share.max(1));
        }
        let mut limits = Self { queues, in_flight_max };
        limits.hold_to(IN_FLIGHT_MAX);
        limits
    }

    /// Lowers the limits so that there are no more than `total` of all queues, or one of each.
    pub fn hold_to(&mut self, total: u32) {
        let share = total / self.in_flight_max.len().max(1) as u32;
        for max in &mut self.in_flight_max {
            *max = (*max).min(share.max(1));
        }
    }

    /// Of each queue.
    pub fn in_flight_max(&self) -> &[u32] {
        &self.in_flight_max
    }

    /// Of all queues.
    pub fn total(&self) -> u32 {
        self.in_flight_max.iter().sum()
    }

    /// The number of a drive's queue.
    pub fn queue(&self, drive: DriveNo) -> usize {
        self.queues[usize::from(drive.0)]
    }

    /// Of each drive, those of its device included.
    pub fn of_drives(&self) -> Vec<u32> {
        self.queues.iter().map(|&queue| self.in_flight_max[queue]).collect()
    }
}

/// The same number for drives with a disk in common, counted from 0 in the order of the drives.
fn group(drives: &[&QueueDepth]) -> Vec<usize> {
    let mut groups: Vec<_> = (0..drives.len()).collect();
    let mut first_on: HashMap<&str, usize> = HashMap::new();
    for (number, drive) in drives.iter().enumerate() {
        for disk in &drive.disks {
            let first = *first_on.entry(disk).or_insert(number);
            let (from, to) = (groups[number], groups[first]);
            let members = groups.iter_mut().filter(|group| **group == from);
            members.for_each(|group| *group = to);
        }
    }
    let mut numbers = BTreeMap::new();
    groups
        .iter()
        .map(|group| {
            let next = numbers.len();
            *numbers.entry(*group).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DepthSource;

    fn drive(depth: u32, disks: &[&str]) -> QueueDepth {
        let source = DepthSource::Devices { devices: vec![("any".into(), depth)] };
        let disks = disks.iter().map(ToString::to_string).collect();
        // What is told is clamped, and doesn't count.
        QueueDepth { depth: 2048, source, disks }
    }

    fn limits(rings: u32, drives: &[QueueDepth]) -> TransferLimits {
        let config = RingConfig { rings, transfers_in_flight_max: 4, ..Default::default() };
        TransferLimits::new(&config, &drives.iter().collect::<Vec<_>>())
    }

    #[test]
    fn all_rings_share_a_quarter_of_the_device() {
        for (depth, rings, expected) in [
            (1023, 1, 4),
            (1023, 63, 4),
            (1023, 64, 3),
            (256, 16, 4),
            (256, 17, 3),
            (256, 64, 1),
            (32, 4, 2),
            (2, 1, 1),
            (1, u32::MAX, 1),
        ] {
            let limits = limits(rings, &[drive(depth, &["a"])]);
            assert_eq!(limits.of_drives(), [expected], "{depth} for {rings} rings");
        }
    }

    #[test]
    fn drives_of_one_device_share_a_queue() {
        let apart = limits(1, &[drive(64, &["a"]), drive(8, &["b"]), drive(64, &["c"])]);
        assert_eq!((apart.of_drives(), apart.total()), (vec![4, 2, 4], 10));
        let shared = limits(1, &[drive(64, &["b"]), drive(64, &["a"]), drive(8, &["b"])]);
        assert_eq!(shared.queues, [0, 1, 0]);
        assert_eq!((shared.of_drives(), shared.total()), (vec![2, 4, 2], 6));
        // A disk of each of two others joins them.
        let joined = [&["a"][..], &["b"], &["c"], &["a", "b"]].map(|disks| drive(64, disks));
        assert_eq!(limits(1, &joined).queues, [0, 0, 1, 0]);
    }

    #[test]
    fn many_drives_have_one_each_and_memory_has_one_queue() {
        let drives: Vec<_> = (0..2000).map(|number| drive(64, &[&number.to_string()])).collect();
        let mut many = limits(1, &drives);
        assert_eq!((many.total(), many.of_drives()[1999]), (4000, 2));
        many.hold_to(16);
        assert_eq!(many.total(), 2000);
        let config = RingConfig { rings: 1000, engine: Engine::InPlace, ..Default::default() };
        let in_place = TransferLimits::new(&config, &drives.iter().collect::<Vec<_>>());
        assert_eq!((in_place.total(), in_place.queue(DriveNo(1999))), (4, 0));
    }
}
