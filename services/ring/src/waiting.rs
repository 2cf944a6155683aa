//! Reads that wait for a slot: first in, first out, bounded. Pure bookkeeping.

use std::collections::VecDeque;
use std::rc::Weak;

use address::{ByteOffset, DriveNo};

use crate::ReadSink;
use crate::progress::Progress;

/// A read that was accepted.
pub(crate) struct Read {
    pub sink: Weak<dyn ReadSink>,
    pub tag: u64,
    pub offset: ByteOffset,
    pub drive: DriveNo,
    pub progress: Progress,
}

impl Read {
    fn is_wanted(&self) -> bool {
        self.sink.strong_count() > 0
    }
}

/// The queue.
pub(crate) struct Waiting {
    reads: VecDeque<Read>,
    max: usize,
    /// Whether a full queue was searched for unwanted reads since it last moved: a search costs as
    /// much as the queue is long, so an overloaded ring may make only one a tick.
    searched: bool,
}

impl Waiting {
    pub fn new(max: usize) -> Self {
        Self { reads: VecDeque::new(), max, searched: false }
    }

    pub fn len(&self) -> usize {
        self.reads.len()
    }

    pub fn is_full(&self) -> bool {
        self.reads.len() >= self.max
    }

    pub fn push(&mut self, read: Read) {
        self.reads.push_back(read);
    }

    /// The oldest read that somebody still wants, and how many nobody wants came before it.
    pub fn pop(&mut self) -> (u64, Option<Read>) {
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

    /// Removes what nobody wants, at most once between two `pop`s; how many these were.
    pub fn discard_unwanted(&mut self) -> u64 {
        if std::mem::replace(&mut self.searched, true) {
            return 0;
        }
        let before = self.reads.len();
        self.reads.retain(Read::is_wanted);
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

    struct Nobody;
    impl ReadSink for Nobody {
        fn read_done(&self, _: u64, _: Result<&[u8], ReadError>, _: Instant) {}
    }

    fn read(sink: &Rc<dyn ReadSink>, tag: u64) -> Read {
        Read {
            sink: Rc::downgrade(sink),
            tag,
            offset: ByteOffset(0),
            drive: DriveNo(0),
            progress: Progress::new(4096),
        }
    }

    #[test]
    fn skips_what_nobody_wants() {
        let kept: Rc<dyn ReadSink> = Rc::new(Nobody);
        let gone: Rc<dyn ReadSink> = Rc::new(Nobody);
        let mut waiting = Waiting::new(5);
        for (sink, tag) in [(&gone, 0), (&kept, 1), (&gone, 2), (&gone, 3), (&kept, 4)] {
            waiting.push(read(sink, tag));
        }
        assert!(waiting.is_full());
        drop(gone);
        let (discarded, first) = waiting.pop();
        assert_eq!((discarded, first.unwrap().tag), (1, 1));
        assert_eq!((waiting.discard_unwanted(), waiting.discard_unwanted()), (2, 0));
        assert_eq!(waiting.pop().1.unwrap().tag, 4);
        assert!(waiting.pop().1.is_none());
    }
}
