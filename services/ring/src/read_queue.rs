//! The queue of reads that wait for a slot: first in, first out, with a maximum length. Pure bookkeeping.

use std::collections::VecDeque;
use std::rc::Weak;

use address::{ByteOffset, DriveNo};

use crate::ReadSink;
use crate::progress::Progress;

/// A read that was accepted and is not submitted yet.
pub(crate) struct QueuedRead {
    pub sink: Weak<dyn ReadSink>,
    pub tag: u64,
    pub offset: ByteOffset,
    pub drive: DriveNo,
    pub progress: Progress,
}

impl QueuedRead {
    fn is_wanted(&self) -> bool {
        self.sink.strong_count() > 0
    }
}

/// The queue of accepted reads.
pub(crate) struct ReadQueue {
    reads: VecDeque<QueuedRead>,
    len_max: usize,
    /// Whether the full queue was searched for unwanted reads since the last `pop`. A search takes time
    /// proportional to the queue's length, so an overloaded ring may make only one between two submissions.
    searched: bool,
}

impl ReadQueue {
    pub fn new(len_max: usize) -> Self {
        Self { reads: VecDeque::new(), len_max, searched: false }
    }

    pub fn len(&self) -> usize {
        self.reads.len()
    }

    pub fn is_full(&self) -> bool {
        self.reads.len() >= self.len_max
    }

    pub fn push(&mut self, read: QueuedRead) {
        self.reads.push_back(read);
    }

    /// Removes and returns the oldest read whose sink still exists. Discards the reads before it, and also returns
    /// their number.
    pub fn pop(&mut self) -> (u64, Option<QueuedRead>) {
        self.searched = false;
        let mut discarded = 0;
        while let Some(read) = self.reads.pop_front() {
            if read.is_wanted() {
                return (discarded, Some(read));
            }
            discarded += 1;
        }
        (discarded, None)
    }

    /// Discards the reads whose sinks were dropped, at most once between two calls of `pop`. Returns how many it
    /// discarded.
    pub fn discard_unwanted(&mut self) -> u64 {
        if std::mem::replace(&mut self.searched, true) {
            return 0;
        }
        let before = self.reads.len();
        self.reads.retain(QueuedRead::is_wanted);
        (before - self.reads.len()) as u64
    }

    pub fn clear(&mut self) {
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    use crate::ReadError;
    use std::rc::Rc;

    struct IgnoringSink;
    impl ReadSink for IgnoringSink {
        fn read_done(&self, _: u64, _: Result<&[u8], ReadError>, _: Instant) {}
    }

    fn read(sink: &Rc<dyn ReadSink>, tag: u64) -> QueuedRead {
        QueuedRead {
            sink: Rc::downgrade(sink),
            tag,
            offset: ByteOffset(0),
            drive: DriveNo(0),
            progress: Progress::new(4096),
        }
    }

    #[test]
    fn reads_of_dropped_sinks_are_discarded() {
        let kept: Rc<dyn ReadSink> = Rc::new(IgnoringSink);
        let gone: Rc<dyn ReadSink> = Rc::new(IgnoringSink);
        let mut queue = ReadQueue::new(5);
        for (sink, tag) in [(&gone, 0), (&kept, 1), (&gone, 2), (&gone, 3), (&kept, 4)] {
            queue.push(read(sink, tag));
        }
        assert!(queue.is_full());
        drop(gone);
        let (discarded, first) = queue.pop();
        assert_eq!((discarded, first.unwrap().tag), (1, 1));
        assert_eq!((queue.discard_unwanted(), queue.discard_unwanted()), (2, 0));
        assert_eq!(queue.pop().1.unwrap().tag, 4);
        assert!(queue.pop().1.is_none());
    }
}
