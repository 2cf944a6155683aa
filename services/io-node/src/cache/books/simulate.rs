//! Compares the eviction policy with others over the same trace of reads.
//!
//! Segments and policy are those of a node. Writes end at once, and extents have no bytes.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use address::{ExtentKey, PackKey, SECTOR_BYTES};

use super::eviction::{Candidate, Eviction, Log, SEGMENTS_SAVED};
use super::segments::{Allocation, Segments, Use};
use super::shares::{Shares, SpaceDecision, Unheld};
use crate::extent::{HEAD_SECTORS, HEAT_MAX, SegmentNo};

/// The outcome of one policy over a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The share of reads that found their extent.
    pub hit_ratio: f64,
    /// Bytes written per byte filled: 1, plus the bytes rewritten to keep extents.
    pub written_ratio: f64,
}

/// A drive's segments, and extents per segment, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// The number of segments.
    pub segments: u32,
    /// The number of extents per segment.
    pub extents_per_segment: u32,
}

/// Sectors of an extent; its record takes one more.
const SECTORS: u64 = 1024;

/// Bireme's policy. `first_touch` says whether the first read of a chunk fills it, or only the second.
pub fn bireme(trace: &[u32], capacity: Capacity, first_touch: bool) -> Outcome {
    let mut cache = Cache::new(capacity, |_| SECTORS, Shares::default());
    let (mut hits, mut filled) = (0, 0);
    for &chunk in trace {
        let key = ExtentKey { pack: PackKey(0), chunk };
        if cache.read(key) {
            hits += 1;
        } else if first_touch || cache.eviction.is_second_touch(key, cache.placed.len()) {
            cache.fill(key);
            filled += 1;
        }
    }
    outcome(trace, hits, filled, cache.kept)
}

struct Cache {
    sectors: fn(ExtentKey) -> u64,
    segments: Segments,
    eviction: Eviction,
    shares: Shares,
    placed: HashMap<ExtentKey, (SegmentNo, u8)>,
    by_segment: HashMap<SegmentNo, Vec<ExtentKey>>,
    kept: u64,
}

impl Cache {
    fn new(capacity: Capacity, sectors: fn(ExtentKey) -> u64, shares: Shares) -> Self {
        let Capacity { segments, extents_per_segment } = capacity;
        let segment_sectors = (SECTORS + 1) * u64::from(extents_per_segment) + 1;
        let slab = HEAD_SECTORS + segment_sectors * u64::from(segments);
        Self {
            sectors,
            segments: Segments::new(segment_sectors, &[slab], 1),
            eviction: Eviction::new(segment_sectors * SEGMENTS_SAVED),
            shares,
            placed: HashMap::new(),
            by_segment: HashMap::new(),
            kept: 0,
        }
    }

    /// Reads an extent. Returns whether it is cached.
    fn read(&mut self, key: ExtentKey) -> bool {
        let placed = self.placed.get_mut(&key);
        placed.map(|(_, heat)| *heat = (*heat + 1).min(HEAT_MAX)).is_some()
    }

    /// Fills an extent. Returns whether it got space.
    fn fill(&mut self, key: ExtentKey) -> bool {
        let sectors = (self.sectors)(key);
        let room = loop {
            let mut log = match self.shares.decide(key, sectors) {
                SpaceDecision::Room { is_held: true } => Log::Held,
                SpaceDecision::Room { is_held: false } => self.eviction.log_for(key),
                SpaceDecision::Evict(keys) => {
                    keys.into_iter().for_each(|key| self.unplace(key));
                    continue;
                }
                SpaceDecision::Wait => unreachable!("writes end at once"),
                SpaceDecision::Full => return false,
            };
            let mut allocation = self.segments.allocate(log, sectors, 1, Use::Fill);
            if allocation == Allocation::AllHeld && !self.shares.is_pinned(key) {
                log = Log::Small;
                allocation = self.segments.allocate(log, sectors, 1, Use::Fill);
            }
            match allocation {
                Allocation::Room(room) => break room,
                Allocation::Reclaim(segment) => self.reclaim(segment),
                _ => return false,
            }
        };
        let held_in = self.held_in(room.segment);
        self.shares.add(key, sectors, held_in);
        self.shares.written(key);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
        self.place(key, room.segment);
        self.eviction.filled(key, sectors);
        true
    }

    fn held_in(&self, segment: SegmentNo) -> Option<SegmentNo> {
        (self.segments.log_of(segment) == Log::Held).then_some(segment)
    }

    fn place(&mut self, key: ExtentKey, segment: SegmentNo) {
        self.segments.next_block(segment, 1);
        self.segments.settle(segment, 1, 1);
        self.by_segment.entry(segment).or_default().push(key);
        self.segments.live(segment, (self.sectors)(key));
        if let Some((replaced, _)) = self.placed.insert(key, (segment, 0)) {
            self.segments.gone(replaced, (self.sectors)(key));
        }
    }

    fn unplace(&mut self, key: ExtentKey) {
        if let Some((segment, _)) = self.placed.remove(&key) {
            self.segments.gone(segment, (self.sectors)(key));
            let unheld = self.shares.remove(key, (self.sectors)(key));
            self.release_held(unheld);
        }
    }

    fn release_held(&mut self, unheld: impl IntoIterator<Item = Unheld>) {
        for (segment, sectors) in unheld {
            self.segments.release_held(segment, sectors);
        }
    }

    fn hold(&mut self, key: ExtentKey, held_in: Option<SegmentNo>) {
        let sectors = (self.sectors)(key);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
        let unheld = self.shares.moved(key, held_in);
        self.release_held(unheld);
    }

    fn reclaim(&mut self, segment: SegmentNo) {
        self.segments.seal(segment);
        let mut keys = self.by_segment.get(&segment).cloned().unwrap_or_default();
        keys.retain(|key| self.placed.get(key).is_some_and(|(at, _)| *at == segment));
        let candidate = |key: &ExtentKey| Candidate {
            key: *key,
            sectors: (self.sectors)(*key),
            heat: self.placed.get(key).map_or(0, |(_, heat)| u32::from(*heat)),
            is_due: false,
        };
        let mut candidates: Vec<_> = keys.iter().map(candidate).collect();
        let due_sectors = self.shares.mark_due(&mut candidates);
        if self.segments.is_to_be_held(segment, due_sectors) {
            self.segments.make_held(segment);
            let due = candidates.iter().filter(|candidate| candidate.is_due);
            due.for_each(|candidate| self.hold(candidate.key, Some(segment)));
            return;
        }
        let log = self.segments.log_of(segment);
        for at in self.eviction.keep(log, &candidates, self.placed.len()) {
            let Candidate { key, sectors, is_due, .. } = candidates[at];
            let log = if self.shares.holds(key) { Log::Held } else { Log::Main };
            let for_use = if is_due { Use::Due } else { Use::Kept };
            if let Allocation::Room(room) = self.segments.allocate(log, sectors, 1, for_use) {
                self.place(key, room.segment);
                self.hold(key, self.held_in(room.segment));
                self.kept += 1;
            }
        }
        for key in self.by_segment.remove(&segment).unwrap_or_default() {
            if self.placed.get(&key).is_some_and(|(at, _)| *at == segment) {
                self.unplace(key);
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
    /// The number of extents that fit.
    pub fn extents(self) -> usize {
        (self.segments * self.extents_per_segment) as usize
    }

    /// The bytes of those extents.
    pub fn bytes(self) -> u64 {
        self.extents() as u64 * SECTORS * SECTOR_BYTES as u64
    }
}

/// Evicts the extent that was filled first.
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

/// Evicts the extent that was read longest ago. A log of segments can't do that, since it evicts whole segments.
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

/// The best that a policy with knowledge of the future could do: it evicts the extent that is read again last, and does
/// not fill one that is read again later than all cached extents.
pub fn optimum(trace: &[u32], capacity: Capacity) -> Outcome {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (at, &chunk) in trace.iter().enumerate().rev() {
        if let Some(later) = seen.insert(chunk, at) {
            next[at] = later;
        }
    }
    // The heap has stale entries; `held` tells which are current.
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
    use address::TableTag;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::cache::books::segments::held_max_sectors;
    use crate::config::Share;

    const CAPACITY: Capacity = Capacity { segments: 20, extents_per_segment: 5 };

    #[test]
    fn the_other_policies_match_a_trace_worked_out_by_hand() {
        let two = Capacity { segments: 2, extents_per_segment: 1 };
        let trace = [1, 2, 1, 3, 1, 2, 4, 1];
        let hits = |outcome: Outcome| (outcome.hit_ratio * 8.0).round() as u32;
        // 1 2 *1 3 1! 2 4 1!: FIFO evicts 1 for 3, LRU keeps it.
        assert_eq!(hits(fifo(&trace, two)), 1);
        assert_eq!(hits(lru(&trace, two)), 2);
        // 3 and 4 are never cached.
        assert_eq!(hits(optimum(&trace, two)), 4);
    }

    #[test]
    fn a_scan_does_not_flush_what_is_hot() {
        // Sixty hot chunks, interleaved with a scan of new ones.
        let mut random = StdRng::seed_from_u64(1);
        let trace: Vec<u32> = (0..60_000)
            .map(|at| if at % 2 == 0 { 1000 + at } else { random.random_range(0..60) })
            .collect();
        let (ours, lru) = (bireme(&trace, CAPACITY, true), lru(&trace, CAPACITY));
        assert!(ours.hit_ratio > 0.45 && lru.hit_ratio < 0.35, "{ours:?} {lru:?}");
        assert!(ours.written_ratio < 1.3, "{ours:?}");
        let second = bireme(&trace, CAPACITY, false);
        assert!(second.hit_ratio > 0.45 && second.written_ratio < 1.3, "{second:?}");
        // Where not even all hot chunks fit, some extents are kept.
        let trace: Vec<u32> = (0..60_000).map(|at| random.random_range(0..50 + at % 300)).collect();
        for first_touch in [true, false] {
            let outcome = bireme(&trace, CAPACITY, first_touch);
            assert!((1.01..1.3).contains(&outcome.written_ratio), "{outcome:?}");
        }
        assert!(optimum(&trace, CAPACITY).hit_ratio >= ours.hit_ratio);
    }

    #[test]
    fn extents_that_fit_are_never_evicted() {
        let trace: Vec<u32> = (0..2000).map(|at| at % 70).collect();
        let all = 1.0 - 70.0 / 2000.0;
        for outcome in
            [bireme(&trace, CAPACITY, true), lru(&trace, CAPACITY), optimum(&trace, CAPACITY)]
        {
            assert_eq!(outcome, Outcome { hit_ratio: all, written_ratio: 1.0 });
        }
    }

    const SMALL_EXTENT: u64 = SECTORS / 4;

    fn key_of(table: u32, chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey::new(TableTag(table), 1), chunk }
    }

    /// Several lengths, none more than a fifth of a segment.
    fn mixed(key: ExtentKey) -> u64 {
        SMALL_EXTENT * (1 + u64::from(key.chunk % 4))
    }

    /// The guarantee of table 1, the pinned quota of table 2 and the quota of table 3, in tenths of what can be
    /// guaranteed.
    fn some_shares() -> impl Strategy<Value = (u64, u64, u64)> {
        (1u64..=6, 1u64..=4, 1u64..=8)
    }

    proptest! {
        #[test]
        fn shares_hold_after_every_step(
            (guarantee, pinned, quota) in some_shares(),
            steps in prop::collection::vec((0u32..4, 0u32..600, 1u32..4), 1..3000),
        ) {
            let segment_sectors = (SECTORS + 1) * u64::from(CAPACITY.extents_per_segment) + 1;
            let slab = HEAD_SECTORS + segment_sectors * u64::from(CAPACITY.segments);
            let tenth = (held_max_sectors(segment_sectors, &[slab]) - segment_sectors) / 10;
            let (guarantee, pinned, quota) = (guarantee * tenth, pinned * tenth, quota * tenth);
            let share = |guarantee, quota, is_pinned| Share { guarantee, quota, is_pinned };
            let mut cache = Cache::new(CAPACITY, mixed, Shares::new([
                (TableTag(1), share(guarantee, u64::MAX, false)),
                (TableTag(2), share(pinned, pinned, true)),
                (TableTag(3), share(0, quota, false)),
            ]));
            let mut pinned_keys = Vec::new();
            let sectors = |cache: &Cache, table| cache.shares.holding(TableTag(table)).sectors;
            for (table, chunk, reads) in steps {
                let key = key_of(table, chunk);
                let before = sectors(&cache, 1);
                for _ in 0..reads {
                    if !cache.read(key) && cache.fill(key) && table == 2 {
                        pinned_keys.push(key);
                    }
                }
                let now = sectors(&cache, 1);
                prop_assert!(now >= before.min(guarantee), "{before} became {now} of {guarantee}");
                prop_assert!(sectors(&cache, 2) <= pinned && sectors(&cache, 3) <= quota);
                for table in 0..4 {
                    let placed = cache.placed.keys().filter(|key| key.pack.table().0 == table);
                    prop_assert_eq!(sectors(&cache, table), placed.map(|key| mixed(*key)).sum::<u64>());
                }
                prop_assert!(pinned_keys.iter().all(|key| cache.placed.contains_key(key)));
                // Every fill that fits succeeds, except those of the pinned table at its quota.
                prop_assert!(table == 2 || cache.placed.contains_key(&key));
                prop_assert!(cache.placed.contains_key(&key) || sectors(&cache, 2) + mixed(key) > pinned);
            }
        }
    }

    #[test]
    fn a_scan_leaves_pinned_and_guaranteed_extents_and_they_cost_little_to_keep() {
        let tenth = SECTORS * CAPACITY.extents() as u64 / 10;
        let shares = || {
            Shares::new([
                (TableTag(1), Share { guarantee: 2 * tenth, quota: u64::MAX, is_pinned: false }),
                (TableTag(2), Share { guarantee: 2 * tenth, quota: 2 * tenth, is_pinned: true }),
            ])
        };
        let mut cache = Cache::new(CAPACITY, |_| SECTORS, shares());
        // Filled before the tables had shares, so the extents are in the other logs, as after a restart.
        let mut before = Cache::new(CAPACITY, |_| SECTORS, Shares::default());
        for chunk in 0..20 {
            assert!(before.fill(key_of(1, chunk)) && before.fill(key_of(2, chunk)));
        }
        cache.segments = before.segments;
        cache.placed = before.placed;
        cache.by_segment = before.by_segment;
        for &key in cache.placed.keys() {
            cache.shares.restore(key, SECTORS, None);
        }
        for chunk in 0..50_000 {
            assert!(cache.fill(key_of(9, chunk)));
        }
        assert!((0..20).all(|chunk| cache.read(key_of(1, chunk)) && cache.read(key_of(2, chunk))));
        // A segment was given to the held log as it is, or its extents were moved once.
        assert!(cache.kept <= 40, "{} of 40 extents were written again", cache.kept);
        // Extents that are read again replace those that are not.
        for chunk in 100..20_000 {
            let key = key_of(1, 100 + chunk % 20);
            if !cache.read(key) {
                assert!(cache.fill(key));
            }
            assert!(cache.fill(key_of(9, 100_000 + chunk)));
        }
        assert!((0..20).all(|chunk| cache.read(key_of(1, 100 + chunk))));
        let holding = cache.shares.holding(TableTag(1));
        assert!((2 * tenth..2 * tenth + SECTORS).contains(&holding.held_sectors), "{holding:?}");
    }

    #[test]
    fn a_table_that_evicts_for_its_quota_takes_little_from_others() {
        let tenth = SECTORS * CAPACITY.extents() as u64 / 10;
        let share = Share { guarantee: 0, quota: 2 * tenth, is_pinned: false };
        let mut cache = Cache::new(CAPACITY, |_| SECTORS, Shares::new([(TableTag(3), share)]));
        for chunk in 0..60 {
            assert!(cache.fill(key_of(1, chunk)));
        }
        for chunk in 0..10_000 {
            assert!(cache.fill(key_of(3, chunk)));
        }
        let left = (0..60).filter(|&chunk| cache.placed.contains_key(&key_of(1, chunk))).count();
        assert!(left >= 50, "{left} of 60 are left");
    }
}
