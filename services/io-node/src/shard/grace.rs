//! Grace periods, which decide when an entry of the directory, or a segment, may be reused.
//!
//! Requests refer to an extent by the index of its entry, without reference counts. An entry whose extent was forgotten
//! is therefore kept until every request that began earlier has ended; later requests cannot have found it. Requests
//! are numbered in the order in which they begin, so the oldest one under way decides.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::extent::ExtentNo;

/// Entries that wait for older requests to end.
#[derive(Default)]
pub struct Grace {
    /// The entries, in ascending order of serial numbers.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    /// Requests with a lower serial number may still hold the entries.
    serial: u64,
    entries: Vec<ExtentNo>,
    /// Dropped when the grace period ends, which closes the receiver's channel.
    _done: Option<mpsc::Sender<()>>,
}

impl Grace {
    /// Keeps `entries` until the requests before `serial`, the next serial number, have ended.
    pub fn hold(&mut self, serial: u64, entries: Vec<ExtentNo>, done: Option<mpsc::Sender<()>>) {
        self.waiting.push_back(Waiting { serial, entries, _done: done });
    }

    /// Removes and returns the entries whose grace period ended. `oldest` is the serial number of the oldest request
    /// under way, or the next serial number if there is none.
    pub fn over(&mut self, oldest: u64) -> Vec<ExtentNo> {
        let mut entries = Vec::new();
        while self.waiting.front().is_some_and(|w| w.serial <= oldest) {
            entries.extend(self.waiting.pop_front().into_iter().flat_map(|w| w.entries));
        }
        entries
    }

    /// Returns whether no entries wait.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_ends_with_the_last_request_that_began_before_it() {
        let mut grace = Grace::default();
        let (done, mut ended) = mpsc::channel::<()>(1);
        grace.hold(5, vec![], Some(done));
        assert!(grace.over(4).is_empty());
        assert!(ended.try_recv() == Err(mpsc::error::TryRecvError::Empty));
        grace.over(5);
        assert!(ended.try_recv() == Err(mpsc::error::TryRecvError::Disconnected));
        assert!(grace.is_empty());
    }
}
