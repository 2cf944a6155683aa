//! The queues of transfers, and the choice of the transfer that is submitted next. Pure bookkeeping.
//!
//! Each queue is first in, first out, has a maximum length, and has its own limit of transfers in flight. The queues
//! that have not reached their limits take turns, so a drive that hangs occupies only its own slots.
//!
//! A read waits behind the writes that its drive has already been given. Therefore, after a read, a queue has
//! only one transfer in flight until a number of transfers have been submitted without another read.

use std::collections::VecDeque;

use address::DriveNo;

use crate::AlignedBuf;
use crate::transfer::Transfer;
use crate::transfer_limits::TransferLimits;

/// The number of transfers that are submitted one at a time after a read. At 256 KiB each, a drive that writes 1.3 GB/s
/// takes 50 ms for them, so 20 reads per second are enough to keep its transfers limited.
const TRANSFERS_AFTER_READ: u32 = 256;

/// A transfer and its buffer.
pub(crate) type QueuedTransfer = (Transfer, AlignedBuf);

/// The queues of all drives of a ring.
pub(crate) struct TransferQueues {
    limits: TransferLimits,
    queues: Vec<TransferQueue>,
    /// Maximum length of each queue.
    len_max: usize,
    /// Number of transfers that wait, in all queues.
    len: usize,
    /// Index of the queue whose turn is next.
    next_queue: usize,
}

struct TransferQueue {
    waiting: VecDeque<QueuedTransfer>,
    in_flight: u32,
    in_flight_max: u32,
    /// Number of transfers that must still be submitted one at a time, because of the last read.
    one_at_a_time: u32,
}

impl TransferQueues {
    pub fn new(limits: TransferLimits, len_max: usize) -> Self {
        let queue = |&in_flight_max: &u32| TransferQueue {
            waiting: VecDeque::new(),
            in_flight: 0,
            in_flight_max,
            one_at_a_time: 0,
        };
        let queues = limits.in_flight_max().iter().map(queue).collect();
        Self { limits, queues, len_max, len: 0, next_queue: 0 }
    }

    /// Returns the number of transfers that wait, in all queues.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a transfer to its drive's queue. Returns it if the queue is full.
    pub fn push(&mut self, transfer: Transfer, buf: AlignedBuf) -> Result<(), QueuedTransfer> {
        let queue = &mut self.queues[self.limits.queue_of(transfer.drive)];
        if queue.waiting.len() >= self.len_max {
            return Err((transfer, buf));
        }
        queue.waiting.push_back((transfer, buf));
        self.len += 1;
        Ok(())
    }

    /// Records a read of `drive`, which limits the drive's queue to one transfer in flight for a while.
    pub fn limit_after_read(&mut self, drive: DriveNo) {
        self.queues[self.limits.queue_of(drive)].one_at_a_time = TRANSFERS_AFTER_READ;
    }

    /// Returns whether `next` would return a transfer.
    pub fn has_next(&self) -> bool {
        self.len > 0 && self.queues.iter().any(|queue| queue.has_next())
    }

    /// Removes the next transfer to submit, which then counts as in flight until `completed` is called. Also
    /// returns how many transfers were discarded because their futures had been dropped.
    pub fn next(&mut self) -> (u64, Option<QueuedTransfer>) {
        let mut discarded = 0;
        let count = self.queues.len();
        for _ in 0..count {
            if self.len == 0 {
                break;
            }
            let queue = &mut self.queues[self.next_queue];
            self.next_queue = if self.next_queue + 1 < count { self.next_queue + 1 } else { 0 };
            while queue.has_next()
                && let Some(queued) = queue.waiting.pop_front()
            {
                self.len -= 1;
                if queued.0.reply.is_wanted() {
                    queue.in_flight += 1;
                    queue.one_at_a_time = queue.one_at_a_time.saturating_sub(1);
                    return (discarded, Some(queued));
                }
                discarded += 1;
            }
        }
        (discarded, None)
    }

    /// Records that a transfer of `drive` has completed, so that another may be submitted.
    pub fn completed(&mut self, drive: DriveNo) {
        self.queues[self.limits.queue_of(drive)].in_flight -= 1;
    }

    /// Removes and returns all waiting transfers.
    pub fn drain(&mut self) -> impl Iterator<Item = QueuedTransfer> {
        self.len = 0;
        self.queues.iter_mut().flat_map(|queue| queue.waiting.drain(..))
    }
}

impl TransferQueue {
    fn has_next(&self) -> bool {
        let max = if self.one_at_a_time > 0 { 1 } else { self.in_flight_max };
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
    use crate::progress::{OpKind, Progress};
    use crate::transfer::Reply;

    const LEN_MAX: usize = 600;

    /// Returns queues for drives on these disks, with a limit of four transfers in flight each.
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

    /// Queues `count` transfers for the drive. Returns the replies of those that were accepted.
    fn push(queues: &mut TransferQueues, drive: u16, count: usize) -> Vec<Rc<Reply>> {
        let push = |_| {
            let reply = Rc::new(Reply::default());
            let transfer = Transfer {
                kind: OpKind::Fsync,
                drive: DriveNo(drive),
                offset: ByteOffset(0),
                progress: Progress::new(0),
                reply: Rc::clone(&reply),
            };
            queues.push(transfer, AlignedBuf::empty()).ok().map(|()| reply)
        };
        (0..count).map_while(push).collect()
    }

    /// Takes all transfers that may be submitted. Returns their drives in order.
    fn submit(queues: &mut TransferQueues) -> Vec<u16> {
        let next = || queues.next().1.map(|(transfer, _)| transfer.drive.0);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_hung_drive_blocks_only_its_own_queue() {
        let mut queues = queues(&["a", "b", "c"]);
        let _wanted = [push(&mut queues, 0, 50), push(&mut queues, 1, 50), push(&mut queues, 2, 1)];
        assert_eq!(submit(&mut queues), [0, 1, 2, 0, 1, 0, 1, 0, 1], "queues take turns");
        assert!(!queues.has_next());
        for _ in 0..46 {
            queues.completed(DriveNo(1));
            assert!(queues.has_next());
            assert_eq!(submit(&mut queues), [1]);
        }
        assert_eq!(queues.len(), 46, "only transfers of the hung drive remain");
        assert_eq!(queues.drain().count(), 46);
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn a_read_limits_only_its_own_device() {
        let mut queues = queues(&["a", "b", "a"]);
        let _wanted = [push(&mut queues, 0, 400), push(&mut queues, 1, 4), push(&mut queues, 2, 1)];
        queues.limit_after_read(DriveNo(2));
        assert_eq!(submit(&mut queues), [0, 1, 1, 1, 1]);
        for _ in 2..TRANSFERS_AFTER_READ {
            queues.completed(DriveNo(0));
            assert_eq!(submit(&mut queues), [0]);
        }
        // This submits the last transfer that the read limits, and three more beside it.
        queues.completed(DriveNo(0));
        assert_eq!(submit(&mut queues), [0; 4]);
        queues.limit_after_read(DriveNo(1));
        queues.completed(DriveNo(0));
        assert_eq!(submit(&mut queues), [0]);
    }

    #[test]
    fn queues_are_bounded_and_dropped_transfers_are_discarded() {
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
