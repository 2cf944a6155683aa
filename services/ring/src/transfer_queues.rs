//! Transfers that wait to be submitted, and whose turn it is. Pure bookkeeping.
//!
//! Each queue is first in, first out, bounded, and has its own limit of transfers in flight; those that
//! may submit take turns. So a drive that hangs keeps its own places, and nobody else's.
//!
//! Once there is a read, only one transfer of its queue is in flight until a number of them have gone by
//! without another read: what a drive has been given to write, the next read of it waits behind.

use std::collections::VecDeque;

use address::DriveNo;

use crate::AlignedBuf;
use crate::ledger::Transfer;
use crate::transfer_limits::TransferLimits;

/// Transfers after a read until more than one may be in flight: of 256 KiB each, 50 ms of a drive that writes
/// 1.3 GB/s, so that a few reads a second are enough to be kept fast.
const TRANSFERS_AFTER_READ: u32 = 256;

/// A transfer with its buffer.
pub(crate) type Loaded = (Transfer, AlignedBuf);

/// See the module.
pub(crate) struct TransferQueues {
    limits: TransferLimits,
    queues: Vec<Queue>,
    /// Transfers that each may hold.
    len_max: usize,
    /// Over all of them.
    len: usize,
    /// Which one is asked first.
    turn: usize,
}

struct Queue {
    waiting: VecDeque<Loaded>,
    in_flight: u32,
    in_flight_max: u32,
    /// Transfers that go one by one yet, for the last read.
    one_by_one: u32,
}

impl TransferQueues {
    pub fn new(limits: TransferLimits, len_max: usize) -> Self {
        let queue = |&in_flight_max: &u32| Queue {
            waiting: VecDeque::new(),
            in_flight: 0,
            in_flight_max,
            one_by_one: 0,
        };
        let queues = limits.in_flight_max().iter().map(queue).collect();
        Self { limits, queues, len_max, len: 0, turn: 0 }
    }

    /// Over all queues.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Queues a transfer, or gives it back if its queue is at its bound.
    pub fn push(&mut self, transfer: Transfer, buf: AlignedBuf) -> Result<(), Loaded> {
        let queue = &mut self.queues[self.limits.queue(transfer.drive)];
        if queue.waiting.len() >= self.len_max {
            return Err((transfer, buf));
        }
        queue.waiting.push_back((transfer, buf));
        self.len += 1;
        Ok(())
    }

    /// Takes note of a read.
    pub fn slow_down(&mut self, drive: DriveNo) {
        self.queues[self.limits.queue(drive)].one_by_one = TRANSFERS_AFTER_READ;
    }

    /// Whether `next` would bring one.
    pub fn has_next(&self) -> bool {
        self.len > 0 && self.queues.iter().any(|queue| queue.has_next())
    }

    /// The transfer whose turn it is, in flight until `ended`, and how many nobody wants came before it.
    pub fn next(&mut self) -> (u64, Option<Loaded>) {
        let mut discarded = 0;
        let count = self.queues.len();
        for _ in 0..count {
            if self.len == 0 {
                break;
            }
            let queue = &mut self.queues[self.turn];
            self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
            while queue.has_next()
                && let Some(loaded) = queue.waiting.pop_front()
            {
                self.len -= 1;
                if loaded.0.reply.is_wanted() {
                    queue.in_flight += 1;
                    queue.one_by_one = queue.one_by_one.saturating_sub(1);
                    return (discarded, Some(loaded));
                }
                discarded += 1;
            }
        }
        (discarded, None)
    }

    /// Makes room for another in flight.
    pub fn ended(&mut self, drive: DriveNo) {
        self.queues[self.limits.queue(drive)].in_flight -= 1;
    }

    /// Empties all queues.
    pub fn drain(&mut self) -> impl Iterator<Item = Loaded> {
        self.len = 0;
        self.queues.iter_mut().flat_map(|queue| queue.waiting.drain(..))
    }
}

impl Queue {
    fn has_next(&self) -> bool {
        let max = if self.one_by_one > 0 { 1 } else { self.in_flight_max };
        self.in_flight < max && !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use address::ByteOffset;

    use crate::RingConfig;
    use crate::device::{DepthSource, QueueDepth};
    use crate::progress::{Kind, Progress};
    use crate::transfer::Reply;

    const LEN_MAX: usize = 600;

    /// Queues of drives that lie on these disks, four in flight each.
    fn queues(disks: &[&str]) -> TransferQueues {
        let source = DepthSource::Default { reason: String::new() };
        let depth = |disk: &&str| QueueDepth {
            depth: 128,
            source: source.clone(),
            disks: vec![disk.to_string()],
        };
        let depths: Vec<_> = disks.iter().map(depth).collect();
        let limits = TransferLimits::new(&RingConfig::default(), &Vec::from_iter(&depths));
        TransferQueues::new(limits, LEN_MAX)
    }

    /// Queues `count` for the drive; who wants them.
    fn push(queues: &mut TransferQueues, drive: u16, count: usize) -> Vec<Rc<Reply>> {
        let push = |_| {
            let reply = Rc::new(Reply::default());
            let transfer = Transfer {
                kind: Kind::Sync,
                drive: DriveNo(drive),
                offset: ByteOffset(0),
                progress: Progress::new(0),
                reply: Rc::clone(&reply),
            };
            queues.push(transfer, AlignedBuf::empty()).ok().map(|()| reply)
        };
        (0..count).map_while(push).collect()
    }

    /// Submits what may be; of which drives, in this order.
    fn submit(queues: &mut TransferQueues) -> Vec<u16> {
        let next = || queues.next().1.map(|(transfer, _)| transfer.drive.0);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_hung_drive_keeps_its_own_places_only() {
        let mut queues = queues(&["a", "b", "c"]);
        let _wanted = [push(&mut queues, 0, 50), push(&mut queues, 1, 50), push(&mut queues, 2, 1)];
        assert_eq!(submit(&mut queues), [0, 1, 2, 0, 1, 0, 1, 0, 1], "in turns");
        assert!(!queues.has_next());
        for _ in 0..46 {
            queues.ended(DriveNo(1));
            assert!(queues.has_next());
            assert_eq!(submit(&mut queues), [1]);
        }
        assert_eq!(queues.len(), 46, "of the drive that hangs");
        assert_eq!(queues.drain().count(), 46);
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn reads_slow_down_their_device_only() {
        let mut queues = queues(&["a", "b", "a"]);
        let _wanted = [push(&mut queues, 0, 400), push(&mut queues, 1, 4), push(&mut queues, 2, 1)];
        queues.slow_down(DriveNo(2));
        assert_eq!(submit(&mut queues), [0, 1, 1, 1, 1]);
        for _ in 2..TRANSFERS_AFTER_READ {
            queues.ended(DriveNo(0));
            assert_eq!(submit(&mut queues), [0]);
        }
        // The last that goes alone, and those beside it.
        queues.ended(DriveNo(0));
        assert_eq!(submit(&mut queues), [0; 4]);
        queues.slow_down(DriveNo(1));
        queues.ended(DriveNo(0));
        assert_eq!(submit(&mut queues), [0]);
    }

    #[test]
    fn each_queue_is_bounded_and_what_nobody_wants_takes_no_place() {
        let mut queues = queues(&["a", "b"]);
        let unwanted = push(&mut queues, 0, LEN_MAX + 1);
        assert_eq!(unwanted.len(), LEN_MAX);
        let wanted = push(&mut queues, 1, 6);
        assert_eq!((wanted.len(), queues.len()), (6, LEN_MAX + 6));
        drop(unwanted);
        let (discarded, next) = queues.next();
        assert_eq!((discarded, next.unwrap().0.drive), (LEN_MAX as u64, DriveNo(1)));
        assert_eq!(submit(&mut queues), [1, 1, 1]);
        assert_eq!(queues.len(), 2);
    }
}
