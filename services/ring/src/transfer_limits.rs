//! Assigns each drive's transfers (writes, fsyncs, owned reads) to a queue, and limits how many of each queue
//! may be in flight. Pure.
//!
//! Drives on the same device share a queue, because a read of any of them waits behind the writes that the device has
//! been given. Every other drive has a queue of its own. Transfers of all rings together may use a quarter of the
//! device's queue depth, and the rest is left to reads. But each queue of a ring may always have one transfer in
//! flight. If operations are system calls on the ring's own thread (`Engine::InPlace`), all drives share one queue, and
//! no queue depth limits it.

use std::collections::{BTreeMap, HashMap};

use address::DriveNo;

use crate::device::QueueDepth;
use crate::{Engine, RingConfig};

/// The transfers of all rings together may use 1 / `QUEUE_PARTS` of a device's queue depth; the rest is left to reads.
/// But each queue of a ring may always have one transfer in flight.
const QUEUE_PARTS: u32 = 4;

/// Maximum number of transfers in flight over all queues. With the maximum of 8,192 read slots that makes 12,288
/// operations, and an io_uring can have 32,768 entries. If there are more queues than this maximum, each may have one
/// transfer in flight.
const IN_FLIGHT_MAX: u32 = 4096;

/// The queue of each drive, and the limit of each queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferLimits {
    /// For each drive, the index of its queue.
    queues: Vec<usize>,
    /// For each queue, the maximum number of transfers in flight.
    in_flight_max: Vec<u32>,
}

impl TransferLimits {
    /// Computes the limits for drives with these queue depths.
    pub fn new(config: &RingConfig, drives: &[&QueueDepth]) -> Self {
        let configured_max = config.transfers_in_flight_max;
        if matches!(config.engine, Engine::InPlace) {
            // The core itself carries out the transfers, so each transfer delays the reads of all drives.
            return Self { queues: vec![0; drives.len()], in_flight_max: vec![configured_max] };
        }
        let queues = queues_by_disk(drives);
        let count = queues.iter().max().map_or(0, |last| last + 1);
        let mut in_flight_max = vec![configured_max; count];
        for (drive, &queue) in drives.iter().zip(&queues) {
            let share = drive.requests() / QUEUE_PARTS / config.rings;
            in_flight_max[queue] = in_flight_max[queue].min(share.max(1));
        }
        let mut limits = Self { queues, in_flight_max };
        limits.cap_total(IN_FLIGHT_MAX);
        limits
    }

    /// Lowers the highest limits so that all add up to at most `total`, but no limit to less than 1.
    pub fn cap_total(&mut self, total: u32) {
        let mut ascending = self.in_flight_max.clone();
        ascending.sort_unstable();
        let (mut left, mut queues) = (total, ascending.len() as u32);
        // Lower limits stay as they are, and leave what they don't use to the higher ones.
        for limit in ascending {
            let share = left / queues;
            if limit > share {
                let cap = share.max(1);
                self.in_flight_max.iter_mut().for_each(|max| *max = (*max).min(cap));
                return;
            }
            (left, queues) = (left - limit, queues - 1);
        }
    }

    /// Returns the limit of each queue.
    pub fn in_flight_max(&self) -> &[u32] {
        &self.in_flight_max
    }

    /// Returns the sum of the limits of all queues.
    pub fn total(&self) -> u32 {
        self.in_flight_max.iter().sum()
    }

    /// Returns the index of a drive's queue.
    pub fn queue_of(&self, drive: DriveNo) -> usize {
        self.queues[usize::from(drive.0)]
    }

    /// Returns, for each drive, the limit of its queue, which it may share with other drives.
    pub fn by_drive(&self) -> Vec<u32> {
        self.queues.iter().map(|&queue| self.in_flight_max[queue]).collect()
    }
}

/// Returns the index of each drive's queue. Drives that have a disk in common have the same queue. The indexes count
/// from 0, in the order of the drives.
fn queues_by_disk(drives: &[&QueueDepth]) -> Vec<usize> {
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
        // The limits must be computed from the depth in `source`, not from this clamped depth.
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
            assert_eq!(limits.by_drive(), [expected], "depth {depth}, {rings} rings");
        }
    }

    #[test]
    fn drives_of_one_device_share_a_queue() {
        let apart = limits(1, &[drive(64, &["a"]), drive(8, &["b"]), drive(64, &["c"])]);
        assert_eq!((apart.by_drive(), apart.total()), (vec![4, 2, 4], 10));
        let shared = limits(1, &[drive(64, &["b"]), drive(64, &["a"]), drive(8, &["b"])]);
        assert_eq!(shared.queues, [0, 1, 0]);
        assert_eq!((shared.by_drive(), shared.total()), (vec![2, 4, 2], 6));
        // A drive that has a disk in common with two others joins their groups.
        let joined = [&["a"][..], &["b"], &["c"], &["a", "b"]].map(|disks| drive(64, disks));
        assert_eq!(limits(1, &joined).queues, [0, 0, 1, 0]);
    }

    #[test]
    fn only_limits_that_do_not_fit_are_lowered() {
        for (limits, total, expected) in [
            (vec![1, 4096], 4097, vec![1, 4096]),
            (vec![4096, 1], 4096, vec![4095, 1]),
            (vec![2, 9, 5], 16, vec![2, 9, 5]),
            (vec![2, 9, 5], 15, vec![2, 8, 5]),
            (vec![2, 9, 5], 11, vec![2, 4, 4]),
            (vec![7, 7], 1, vec![1, 1]),
            (vec![], 5, vec![]),
        ] {
            let mut capped = TransferLimits { queues: vec![], in_flight_max: limits.clone() };
            capped.cap_total(total);
            assert_eq!(capped.in_flight_max, expected, "{limits:?}, {total}");
        }
    }

    #[test]
    fn many_drives_get_one_transfer_each_and_memory_one_queue() {
        let drives: Vec<_> = (0..2000).map(|number| drive(64, &[&number.to_string()])).collect();
        let mut many = limits(1, &drives);
        assert_eq!((many.total(), many.by_drive()[1999]), (4000, 2));
        many.cap_total(16);
        assert_eq!(many.total(), 2000);
        let config = RingConfig { rings: 1000, engine: Engine::InPlace, ..Default::default() };
        let in_place = TransferLimits::new(&config, &drives.iter().collect::<Vec<_>>());
        assert_eq!((in_place.total(), in_place.queue_of(DriveNo(1999))), (4, 0));
    }
}
