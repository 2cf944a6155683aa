//! The queue of fills that wait to be scanned.
//!
//! Pure. The queue serves tables in turn, so that many misses of one table do not delay the fills of another. Within a
//! table, fills leave in the order of their arrival, with two exceptions. Adjacent chunks of the same pack and fragment
//! leave together and are scanned together, up to the maximum number of bytes of a scan. Chunks that a scan leaves,
//! because they take more memory than estimated or because it failed, enter again at the end.

use std::collections::VecDeque;

use address::ExtentKey;
use scheduler::{Cost, FairQueue, Flow, Priority, has_room};

/// A fill that waits.
struct Waiting {
    name: ExtentKey,
    /// Bytes of its scan; `None` if it can't be scanned together with its neighbours.
    scan_bytes: Option<u64>,
}

impl Cost for Waiting {
    fn cost(&self) -> u32 {
        1
    }
}

/// Returns the flow of the fills of an extent's table.
fn flow_of(name: ExtentKey) -> Flow {
    // A table's tag may be 0, but flow 0 is reserved for work without a flow.
    Flow::new(1 + u64::from(name.pack.table().0), 1)
}

/// The fills that wait to be scanned.
pub struct WaitingFills {
    queue: FairQueue<Waiting>,
    /// The maximum number of bytes of a scan of several chunks.
    scan_bytes_max: u64,
}

impl WaitingFills {
    /// Creates an empty queue. Neighbouring chunks are scanned together if they have at most `scan_bytes_max` bytes in
    /// total.
    pub fn new(scan_bytes_max: u64) -> Self {
        Self { queue: FairQueue::default(), scan_bytes_max }
    }

    /// Adds a fill. `scan_bytes` is the number of bytes of its scan, or `None` if it can't be scanned together with its
    /// neighbours.
    pub fn push(&mut self, name: ExtentKey, scan_bytes: Option<u64>) {
        self.queue.push(Waiting { name, scan_bytes }, flow_of(name), Priority::Interactive);
    }

    /// Adds the fills that a scan left after it had read `read` chunks, each with the bytes of its scan as estimated
    /// before. If the scan did not fail, `read + 1` chunks exceeded the maximum. So each estimate is raised to more
    /// than the maximum divided by `read + 1`. After a scan that read none, or failed, the estimate exceeds the
    /// maximum, so each chunk is scanned alone.
    pub fn push_left(&mut self, left: Vec<(ExtentKey, Option<u64>)>, read: usize) {
        let bytes_min = self.scan_bytes_max / (read as u64 + 1) + 1;
        for (name, scan_bytes) in left {
            self.push(name, scan_bytes.map(|bytes| bytes.max(bytes_min)));
        }
    }

    /// Returns the maximum number of bytes of a scan of several chunks.
    pub fn scan_bytes_max(&self) -> u64 {
        self.scan_bytes_max
    }

    /// The number of fills that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether another fill of this extent's table may wait, if at most `max` fills of all tables may wait.
    pub fn has_room(&self, name: ExtentKey, max: usize) -> bool {
        has_room(self.queue.cost_of(flow_of(name)) as usize, 1, self.len(), max)
    }

    /// Removes the next fill together with its neighbours. Returns consecutive chunks of one pack, in order.
    pub fn pop(&mut self) -> Option<Vec<ExtentKey>> {
        let scan_bytes_max = self.scan_bytes_max;
        let (first, others) =
            self.queue.pop_with(|first, rest| neighbours(first, rest, scan_bytes_max))?;
        let mut run: Vec<_> = others.into_iter().map(|it| it.name).collect();
        run.push(first.name);
        run.sort_by_key(|name| name.chunk);
        Some(run)
    }
}

/// Returns the indexes, ascending, of the fills in `rest` that are scanned together with `first`.
fn neighbours(first: &Waiting, rest: &VecDeque<Waiting>, scan_bytes_max: u64) -> Vec<usize> {
    let Some(bytes) = first.scan_bytes else { return Vec::new() };
    let mut others: Vec<(u32, usize, u64)> = Vec::new();
    for (at, other) in rest.iter().enumerate() {
        if other.name.pack == first.name.pack {
            others.extend(other.scan_bytes.map(|bytes| (other.name.chunk, at, bytes)));
        }
    }
    others.sort_unstable();
    let mut left = scan_bytes_max.saturating_sub(bytes);
    let mut take = |(_, at, bytes): (u32, usize, u64)| {
        left = left.checked_sub(bytes)?;
        Some(at)
    };
    let chunk_of_first = first.name.chunk;
    let behind = others.partition_point(|(chunk, ..)| *chunk <= chunk_of_first);
    let before = others.partition_point(|(chunk, ..)| *chunk < chunk_of_first);
    let mut places = Vec::new();
    let sides: [&mut dyn Iterator<Item = &(u32, usize, u64)>; 2] =
        [&mut others[behind..].iter(), &mut others[..before].iter().rev()];
    for side in sides {
        for (distance, &other) in (1..).zip(side) {
            let is_next = other.0.abs_diff(chunk_of_first) == distance;
            let Some(at) = is_next.then(|| take(other)).flatten() else { break };
            places.push(at);
        }
    }
    places.sort_unstable();
    places
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

    #[test]
    fn chunks_that_a_scan_left_are_scanned_with_no_more_than_it_read() {
        let key = |chunk| ExtentKey { pack: PackKey(1), chunk };
        let left = |chunks: std::ops::Range<u32>| chunks.map(|it| (key(it), Some(10))).collect();
        let mut fills = WaitingFills::new(100);
        (0..8).for_each(|chunk| fills.push(key(chunk), Some(10)));
        assert_eq!(fills.pop().unwrap().len(), 8);
        // Two of the eight chunks took at most 100 bytes, and three more than that: 34 each.
        fills.push_left(left(2..8), 2);
        assert_eq!(runs(fills), [(1, vec![2, 3]), (1, vec![4, 5]), (1, vec![6, 7])]);
        let mut fills = WaitingFills::new(100);
        fills.push(key(3), Some(10));
        fills.push_left(left(0..3), 0);
        assert_eq!(runs(fills), [(1, vec![3]), (1, vec![0]), (1, vec![1]), (1, vec![2])]);
    }

    #[test]
    fn tables_take_turns_and_none_takes_all_places() {
        let mut fills = WaitingFills::new(40);
        let name = |table: u32, chunk| {
            let pack = PackKey::new(address::TableTag(table), table.into());
            ExtentKey { pack, chunk }
        };
        let fill = |fills: &mut WaitingFills, table: u32| {
            // No two of these chunks are neighbours.
            for chunk in (0..).step_by(2) {
                if !fills.has_room(name(table, chunk), 64) {
                    return;
                }
                fills.push(name(table, chunk), Some(10));
            }
        };
        fill(&mut fills, 1);
        assert_eq!(fills.len(), 56);
        fill(&mut fills, 2);
        assert_eq!(fills.len(), 63);
        let order = std::iter::from_fn(|| fills.pop()).map(|run| run[0].pack.table().0);
        assert_eq!(order.take(16).collect::<Vec<_>>(), [[1, 2].repeat(7), vec![1, 1]].concat());
    }
}
