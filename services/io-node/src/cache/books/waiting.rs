//! The queue of fills that wait to be scanned.
//!
//! Pure. Fills leave in order of arrival, except that chunks of the same pack and fragment that are next to each other
//! leave together, as far as the bytes of one scan allow, and are scanned together.

use std::collections::VecDeque;

use address::ExtentKey;

/// A fill that waits.
struct Waiting {
    name: ExtentKey,
    /// Bytes of its scan, if it may be scanned together with its neighbours.
    scan_bytes: Option<u64>,
}

/// The queue.
pub struct WaitingFills {
    queue: VecDeque<Waiting>,
    /// The most bytes of one scan of several chunks.
    scan_bytes_max: u64,
}

impl WaitingFills {
    /// Creates an empty queue. Chunks are scanned together as long as they have at most `scan_bytes_max` bytes.
    pub fn new(scan_bytes_max: u64) -> Self {
        Self { queue: VecDeque::new(), scan_bytes_max }
    }

    /// Adds a fill. `scan_bytes` has the bytes of its scan, if it may be scanned together with its neighbours.
    pub fn push(&mut self, name: ExtentKey, scan_bytes: Option<u64>) {
        self.queue.push_back(Waiting { name, scan_bytes });
    }

    /// The number of fills that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes the first fill and its neighbours: consecutive chunks of one pack, in order.
    pub fn pop(&mut self) -> Option<Vec<ExtentKey>> {
        let Waiting { name, scan_bytes } = self.queue.pop_front()?;
        let Some(bytes) = scan_bytes else { return Some(vec![name]) };
        let mut others: Vec<(u32, usize, u64)> = Vec::new();
        for (at, other) in self.queue.iter().enumerate() {
            if other.name.pack == name.pack {
                others.extend(other.scan_bytes.map(|bytes| (other.name.chunk, at, bytes)));
            }
        }
        others.sort_unstable();
        let mut left = self.scan_bytes_max.saturating_sub(bytes);
        let mut take = |(_, at, bytes): (u32, usize, u64)| {
            left = left.checked_sub(bytes)?;
            Some(at)
        };
        let behind = others.partition_point(|(chunk, ..)| *chunk <= name.chunk);
        let before = others.partition_point(|(chunk, ..)| *chunk < name.chunk);
        let mut places = Vec::new();
        let sides: [&mut dyn Iterator<Item = &(u32, usize, u64)>; 2] =
            [&mut others[behind..].iter(), &mut others[..before].iter().rev()];
        for side in sides {
            for (distance, &other) in (1..).zip(side) {
                let is_next = other.0.abs_diff(name.chunk) == distance;
                let Some(at) = is_next.then(|| take(other)).flatten() else { break };
                places.push(at);
            }
        }
        // Removes fills from the back, so that the other indexes stay valid.
        places.sort_unstable_by_key(|&at| std::cmp::Reverse(at));
        let taken = places.into_iter().filter_map(|at| self.queue.remove(at));
        let mut run: Vec<_> = taken.map(|it| it.name).collect();
        run.push(name);
        run.sort_by_key(|name| name.chunk);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use address::PackKey;

    use super::*;

    fn waiting(asked: &[(u128, u32, Option<u64>)]) -> WaitingFills {
        let mut fills = WaitingFills::new(40);
        for &(pack, chunk, bytes) in asked {
            fills.push(ExtentKey { pack: PackKey(pack), chunk }, bytes);
        }
        fills
    }

    fn runs(mut fills: WaitingFills) -> Vec<(u128, Vec<u32>)> {
        let mut runs = Vec::new();
        while let Some(run) = fills.pop() {
            runs.push((run[0].pack.0, run.iter().map(|name| name.chunk).collect()));
        }
        assert_eq!(fills.len(), 0);
        runs
    }

    #[test]
    fn neighbours_leave_together_in_order_and_others_as_they_came() {
        let asked = [(1, 5), (2, 6), (1, 4), (1, 9), (1, 6), (2, 5), (1, 2)];
        let asked = asked.map(|(pack, chunk)| (pack, chunk, Some(10)));
        let expected = [(1, vec![4, 5, 6]), (2, vec![5, 6]), (1, vec![9]), (1, vec![2])];
        assert_eq!(runs(waiting(&asked)), expected);
    }

    #[test]
    fn a_scan_is_bounded_and_those_that_go_alone_do() {
        let some: Vec<_> = (0..10).map(|chunk| (1, chunk, Some(10))).collect();
        let expected = [(1, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7]), (1, vec![8, 9])];
        assert_eq!(runs(waiting(&some)), expected);
        let mixed = [(1, 0, Some(100)), (1, 1, Some(10)), (1, 2, None), (1, 3, Some(10))];
        let expected = [(1, vec![0]), (1, vec![1]), (1, vec![2]), (1, vec![3])];
        assert_eq!(runs(waiting(&mixed)), expected);
        let last = [(1, u32::MAX, Some(10)), (1, 0, Some(10)), (1, u32::MAX - 1, Some(10))];
        assert_eq!(runs(waiting(&last)), [(1, vec![u32::MAX - 1, u32::MAX]), (1, vec![0])]);
    }
}
