//! The eviction policy held against others, over the same trace of reads: which share of them a drive has.
//!
//! Segments and policy are those that a node runs; here their writes end at once, and nothing has bytes.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use address::{ExtentKey, PackKey, SECTOR_BYTES};

use super::eviction::{Candidate, Eviction, HEAT_MAX, Log};
use super::filler::SEGMENTS_SAVED;
use super::segments::{Allocation, SegmentNo, Segments};
use crate::slab::HEAD_SECTORS;

/// What one policy made of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Reads that found their extent.
    pub hit_ratio: f64,
    /// Bytes written for each byte filled: 1, and what is written once more to be kept.
    pub written_ratio: f64,
}

/// A drive of so many extents, all of one length, in segments of so many.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Segments.
    pub segments: u32,
    /// Extents of a segment.
    pub extents_per_segment: u32,
}

/// Of an extent, in sectors; its record takes one more.
const SECTORS: u64 = 1024;

/// Bireme's policy. `first_touch` is whether the first read of a chunk fills it, or the second.
pub fn bireme(trace: &[u32], capacity: Capacity, first_touch: bool) -> Outcome {
    let segment_sectors = (SECTORS + 1) * u64::from(capacity.extents_per_segment) + 1;
    let sectors = HEAD_SECTORS + segment_sectors * u64::from(capacity.segments);
    let mut cache = Cache {
        segments: Segments::new(segment_sectors, &[sectors], 1),
        eviction: Eviction::new(segment_sectors * SEGMENTS_SAVED),
        placed: HashMap::new(),
        by_segment: HashMap::new(),
        kept: 0,
    };
    let (mut hits, mut filled) = (0, 0);
    for &chunk in trace {
        let key = ExtentKey { pack: PackKey(0), chunk };
        if let Some((_, heat)) = cache.placed.get_mut(&key) {
            *heat = (*heat + 1).min(HEAT_MAX);
            hits += 1;
        } else if first_touch || cache.eviction.is_second_touch(key, cache.placed.len()) {
            cache.fill(key);
            filled += 1;
        }
    }
    outcome(trace, hits, filled, cache.kept)
}

struct Cache {
    segments: Segments,
    eviction: Eviction,
    placed: HashMap<ExtentKey, (SegmentNo, u8)>,
    by_segment: HashMap<SegmentNo, Vec<ExtentKey>>,
    kept: u64,
}

impl Cache {
    fn fill(&mut self, key: ExtentKey) {
        loop {
            match self.segments.allocate(self.eviction.log_for(key), SECTORS, 1, false) {
                Allocation::Room(room) => break self.place(key, room.segment),
                Allocation::Reclaim(segment) => self.reclaim(segment),
                Allocation::Busy | Allocation::TooLong | Allocation::NoDrive => return,
            }
        }
        self.eviction.filled(key, SECTORS);
    }

    fn place(&mut self, key: ExtentKey, segment: SegmentNo) {
        self.segments.next_block(segment, 1);
        self.segments.settle(segment, 1, 1);
        self.by_segment.entry(segment).or_default().push(key);
        self.placed.insert(key, (segment, 0));
    }

    fn reclaim(&mut self, segment: SegmentNo) {
        self.segments.seal(segment);
        let keys = self.by_segment.remove(&segment).unwrap_or_default();
        let heat = |key: &ExtentKey| self.placed.get(key).map_or(0, |(_, heat)| u32::from(*heat));
        let candidates: Vec<_> = keys
            .iter()
            .map(|key| Candidate { key: *key, sectors: SECTORS, heat: heat(key) })
            .collect();
        let log = self.segments.log_of(segment);
        let kept = self.eviction.keep(log, &candidates, self.placed.len());
        for key in &keys {
            self.placed.remove(key);
        }
        for at in kept {
            if let Allocation::Room(room) = self.segments.allocate(Log::Main, SECTORS, 1, true) {
                self.place(keys[at], room.segment);
                self.kept += 1;
            }
        }
        self.segments.empty(segment);
        self.segments.release(segment);
    }
}

fn outcome(trace: &[u32], hits: u64, filled: u64, kept: u64) -> Outcome {
    Outcome {
        hit_ratio: hits as f64 / trace.len().max(1) as f64,
        written_ratio: (filled + kept) as f64 / filled.max(1) as f64,
    }
}

impl Capacity {
    /// How many extents fit.
    pub fn extents(self) -> usize {
        (self.segments * self.extents_per_segment) as usize
    }

    /// Bytes of them.
    pub fn bytes(self) -> u64 {
        self.extents() as u64 * SECTORS * SECTOR_BYTES as u64
    }
}

/// What was filled first goes first.
pub fn fifo(trace: &[u32], capacity: Capacity) -> Outcome {
    let (mut order, mut held) = (VecDeque::new(), HashMap::new());
    let mut hits = 0;
    for &chunk in trace {
        if held.contains_key(&chunk) {
            hits += 1;
            continue;
        }
        if order.len() == capacity.extents()
            && let Some(oldest) = order.pop_front()
        {
            held.remove(&oldest);
        }
        order.push_back(chunk);
        held.insert(chunk, ());
    }
    outcome(trace, hits, trace.len() as u64 - hits, 0)
}

/// What was read longest ago goes first; each extent by itself, which a log of segments can't do.
pub fn lru(trace: &[u32], capacity: Capacity) -> Outcome {
    let (mut last, mut by_age) = (HashMap::new(), BTreeMap::new());
    let mut hits = 0;
    for (now, &chunk) in trace.iter().enumerate() {
        match last.insert(chunk, now) {
            Some(then) => {
                hits += 1;
                by_age.remove(&then);
            }
            None if by_age.len() == capacity.extents() => {
                if let Some((_, oldest)) = by_age.pop_first() {
                    last.remove(&oldest);
                }
            }
            None => {}
        }
        by_age.insert(now, chunk);
    }
    outcome(trace, hits, trace.len() as u64 - hits, 0)
}

/// The best that any policy could do that knew what comes: what is read again last goes first, and what is
/// read again later than all that is held is not filled.
pub fn optimum(trace: &[u32], capacity: Capacity) -> Outcome {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (at, &chunk) in trace.iter().enumerate().rev() {
        if let Some(later) = seen.insert(chunk, at) {
            next[at] = later;
        }
    }
    // The heap keeps places that are out of date; `held` says which are not.
    let (mut held, mut heap) = (HashMap::new(), BinaryHeap::new());
    let (mut hits, mut filled) = (0, 0);
    for (at, &chunk) in trace.iter().enumerate() {
        let is_hit = held.contains_key(&chunk);
        if is_hit {
            hits += 1;
        } else if held.len() == capacity.extents() {
            while let Some(&(later, other)) = heap.peek() {
                if held.get(&other) == Some(&later) {
                    break;
                }
                heap.pop();
            }
            match heap.peek() {
                Some(&(later, other)) if later > next[at] => {
                    heap.pop();
                    held.remove(&other);
                }
                _ => continue,
            }
        }
        filled += u64::from(!is_hit);
        held.insert(chunk, next[at]);
        heap.push((next[at], chunk));
    }
    outcome(trace, hits, filled, 0)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const CAPACITY: Capacity = Capacity { segments: 20, extents_per_segment: 5 };

    #[test]
    fn the_others_are_as_by_hand() {
        let two = Capacity { segments: 2, extents_per_segment: 1 };
        let trace = [1, 2, 1, 3, 1, 2, 4, 1];
        let hits = |outcome: Outcome| (outcome.hit_ratio * 8.0).round() as u32;
        // 1 2 *1 3 1! 2 4 1!: FIFO lets 1 go for 3, LRU keeps it.
        assert_eq!(hits(fifo(&trace, two)), 1);
        assert_eq!(hits(lru(&trace, two)), 2);
        // 3 and 4 are never held.
        assert_eq!(hits(optimum(&trace, two)), 4);
    }

    #[test]
    fn a_scan_does_not_flush_what_is_hot() {
        // Sixty hot chunks, and a scan of new ones in between.
        let mut random = StdRng::seed_from_u64(1);
        let trace: Vec<u32> = (0..60_000)
            .map(|at| if at % 2 == 0 { 1000 + at } else { random.random_range(0..60) })
            .collect();
        let (ours, lru) = (bireme(&trace, CAPACITY, true), lru(&trace, CAPACITY));
        assert!(ours.hit_ratio > 0.45 && lru.hit_ratio < 0.35, "{ours:?} {lru:?}");
        assert!(ours.written_ratio < 1.3, "{ours:?}");
        let second = bireme(&trace, CAPACITY, false);
        assert!(second.hit_ratio > 0.45 && second.written_ratio < 1.3, "{second:?}");
        // Where the hot ones don't all fit either, something is kept.
        let trace: Vec<u32> = (0..60_000).map(|at| random.random_range(0..50 + at % 300)).collect();
        for first_touch in [true, false] {
            let outcome = bireme(&trace, CAPACITY, first_touch);
            assert!((1.01..1.3).contains(&outcome.written_ratio), "{outcome:?}");
        }
        assert!(optimum(&trace, CAPACITY).hit_ratio >= ours.hit_ratio);
    }

    #[test]
    fn what_fits_is_never_let_go() {
        let trace: Vec<u32> = (0..2000).map(|at| at % 70).collect();
        let all = 1.0 - 70.0 / 2000.0;
        for outcome in
            [bireme(&trace, CAPACITY, true), lru(&trace, CAPACITY), optimum(&trace, CAPACITY)]
        {
            assert_eq!(outcome, Outcome { hit_ratio: all, written_ratio: 1.0 });
        }
    }
}
