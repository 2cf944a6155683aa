//! Compares the eviction policy with others over the same trace of reads.
//!
//! Bireme's policy is simulated with the books of a node ([`CacheBooks`]). All actions succeed at once, and extents
//! have no bytes.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use address::{ExtentKey, PackKey, SECTOR_BYTES};
use pack::ExtentIndex;
use tokio::time::Instant;
use uuid::Uuid;

use super::cache_books::{CacheBooks, FillLimits};
use super::events::{Action, Event, RequestOutcome};
use super::shares::Shares;
use crate::drive::{Superblock, trial_extent};
use crate::error::NodeError;
use crate::extent::{HEAD_SECTORS, HEAT_MAX};

/// The outcome of one policy over a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The share of reads that found their extent.
    pub hit_ratio: f64,
    /// Bytes written per byte filled: 1, plus the bytes that are rewritten per byte filled to keep extents.
    pub written_ratio: f64,
}

/// The capacity of a drive, whose extents all have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// The number of segments.
    pub segments: u32,
    /// The number of extents per segment.
    pub extents_per_segment: u32,
}

/// Sectors of an extent; its record takes one more.
const SECTORS: u64 = 64;

/// Simulates Bireme's policy.
///
/// # Errors
/// [`NodeError::Pack`] if the extents' index can't be made.
pub fn bireme(trace: &[u32], capacity: Capacity) -> Result<Outcome, NodeError> {
    let index = trial_extent(SECTORS as u32)?.index;
    let mut cache = Cache::new(capacity, Shares::default(), move |_| index.clone());
    let mut hits = 0;
    for &chunk in trace {
        let key = ExtentKey { pack: PackKey(0), chunk };
        match cache.read(key) {
            true => hits += 1,
            false => cache.request(key, false),
        }
    }
    let counts = cache.books.counts();
    Ok(outcome(trace, hits, counts.bytes_filled, counts.bytes_kept))
}

/// A node's cache without drives and tables.
struct Cache {
    books: CacheBooks,
    /// Creates the index of the extent with this name.
    index: Box<dyn Fn(ExtentKey) -> ExtentIndex>,
    /// The number of reads of each extent since it was placed, up to [`HEAT_MAX`].
    heats: HashMap<ExtentKey, u8>,
    /// The time of all events; nothing depends on it.
    now: Instant,
}

impl Cache {
    fn new(
        capacity: Capacity,
        shares: Shares,
        index: impl Fn(ExtentKey) -> ExtentIndex + 'static,
    ) -> Self {
        let slab = Superblock {
            uuid: Uuid::nil(),
            segment_sectors: capacity.segment_sectors(),
            sectors: capacity.slab_sectors(),
        };
        let limits = FillLimits {
            fills_max: 1,
            queue_max: 1,
            fill_rate: 0,
            scrub_rate: 0,
            directory_bytes_max: u64::MAX,
        };
        let now = Instant::now();
        Self {
            books: CacheBooks::new(1, vec![slab], limits, shares, 1, now),
            index: Box::new(index),
            heats: HashMap::new(),
            now,
        }
    }

    /// Reads an extent. Returns whether it is cached.
    fn read(&mut self, key: ExtentKey) -> bool {
        let is_placed = self.books.contains(key);
        if is_placed {
            let heat = self.heats.entry(key).or_default();
            *heat = (*heat + 1).min(HEAT_MAX);
        }
        is_placed
    }

    /// Requests a fill, and carries out all actions that follow from it.
    fn request(&mut self, key: ExtentKey, is_awaited: bool) {
        let outcome = self.books.request(key, None, is_awaited, self.now);
        if !matches!(outcome, RequestOutcome::Queued) {
            return;
        }
        let mut events = VecDeque::from([Event::Woken]);
        while let Some(event) = events.pop_front() {
            for action in self.books.apply(event, self.now) {
                events.extend(self.carry_out(action));
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Scan(keys) => {
                let extents = keys.into_iter().map(|key| (key, Ok(self.extent(key))));
                Event::Scanned { extents: extents.collect(), left: Vec::new() }
            }
            Action::Write { extent, purpose, .. } => {
                Event::Written { extent, purpose, outcome: Ok(()) }
            }
            Action::Publish { extent, purpose } => {
                self.heats.remove(&extent.key);
                Event::Published { extent, purpose }
            }
            Action::Record { of, .. } => Event::Recorded { of, outcome: Ok(()) },
            Action::AskHeat { segment, extents } => {
                let heat = |key: ExtentKey| self.heats.get(&key).copied().unwrap_or_default();
                let heats = extents.into_iter().map(|extent| {
                    let heat = heat(extent.key).into();
                    (extent, heat)
                });
                Event::Heated { segment, heats: heats.collect() }
            }
            Action::Reread(extent) => {
                let copy = Ok(self.extent(extent.key));
                Event::Reread { extent, copy }
            }
            Action::Empty { segment, forgotten, .. } => {
                self.forget(&forgotten);
                Event::Emptied { segment, outcome: Ok(()) }
            }
            Action::Scrub(extent) => Event::Scrubbed { extent, outcome: Ok(()) },
            Action::Forget(keys) => {
                self.forget(&keys);
                return None;
            }
            Action::End(..) => return None,
        })
    }

    fn forget(&mut self, keys: &[ExtentKey]) {
        for key in keys {
            self.heats.remove(key);
        }
    }

    /// An extent without its bytes.
    fn extent(&self, key: ExtentKey) -> pack::Extent {
        pack::Extent { index: (self.index)(key), bytes: Vec::new() }
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

    /// The bytes of the extents that fit.
    pub fn bytes(self) -> u64 {
        self.extents() as u64 * SECTORS * SECTOR_BYTES as u64
    }

    /// The length of a segment that has room for its extents, their records, and the block with which its journal
    /// begins.
    fn segment_sectors(self) -> u64 {
        (SECTORS + 1) * u64::from(self.extents_per_segment) + 1
    }

    fn slab_sectors(self) -> u64 {
        HEAD_SECTORS + self.segment_sectors() * u64::from(self.segments)
    }
}

/// Simulates FIFO, which evicts the extent that was filled first.
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

/// Simulates LRU, which evicts the extent whose last read is longest ago. A node can't do that, because a log evicts
/// whole segments.
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

/// Simulates the best policy that knowledge of the future allows: it evicts the extent that is read again last, and
/// does not fill one that is read again later than all cached extents.
pub fn optimum(trace: &[u32], capacity: Capacity) -> Outcome {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (at, &chunk) in trace.iter().enumerate().rev() {
        if let Some(later) = seen.insert(chunk, at) {
            next[at] = later;
        }
    }
    // The heap has stale entries. An entry is current if `held` has the same next read for its chunk.
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
    use std::collections::BTreeSet;

    use address::TableTag;
    use bytesize::ByteSize;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::cache::books::promised::files_share;
    use crate::cache::books::segments::held_max_sectors;
    use crate::cache::books::shares::Holding;
    use crate::config::Share;

    fn bireme(trace: &[u32], capacity: Capacity) -> Outcome {
        super::bireme(trace, capacity).unwrap()
    }

    const CAPACITY: Capacity = Capacity { segments: 20, extents_per_segment: 5 };

    #[test]
    fn the_other_policies_match_a_trace_worked_out_by_hand() {
        let two = Capacity { segments: 2, extents_per_segment: 1 };
        let trace = [1, 2, 1, 3, 1, 2, 4, 1];
        let hits = |outcome: Outcome| (outcome.hit_ratio * 8.0).round() as u32;
        // FIFO and LRU hit 1 at its second read. FIFO then evicts 1 for 3; LRU keeps 1, and hits it at its third read.
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
        let (ours, lru) = (bireme(&trace, CAPACITY), lru(&trace, CAPACITY));
        assert!(ours.hit_ratio > 0.45 && lru.hit_ratio < 0.35, "{ours:?} {lru:?}");
        assert!(ours.written_ratio < 1.3, "{ours:?}");
        // Where not even all hot chunks fit, some extents are kept.
        let trace: Vec<u32> = (0..60_000).map(|at| random.random_range(0..50 + at % 300)).collect();
        let outcome = bireme(&trace, CAPACITY);
        assert!((1.01..1.3).contains(&outcome.written_ratio), "{outcome:?}");
        assert!(optimum(&trace, CAPACITY).hit_ratio >= ours.hit_ratio);
    }

    #[test]
    fn extents_that_fit_are_never_evicted() {
        let trace: Vec<u32> = (0..2000).map(|at| at % 70).collect();
        let all = 1.0 - 70.0 / 2000.0;
        for outcome in [bireme(&trace, CAPACITY), lru(&trace, CAPACITY), optimum(&trace, CAPACITY)]
        {
            assert_eq!(outcome, Outcome { hit_ratio: all, written_ratio: 1.0 });
        }
    }

    const SMALL_EXTENT: u64 = SECTORS / 4;

    fn key_of(table: u32, chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey::new(TableTag(table), 1), chunk }
    }

    /// Returns the length of an extent in sectors: one of four lengths, at most a fifth of a segment.
    fn mixed(key: ExtentKey) -> u64 {
        SMALL_EXTENT * (1 + u64::from(key.chunk % 4))
    }

    fn cache(sectors: fn(ExtentKey) -> u64, shares: Shares) -> Cache {
        let index = |quarters: u64| trial_extent((SMALL_EXTENT * quarters) as u32).unwrap().index;
        let indexes: Vec<_> = (1..=4).map(index).collect();
        let index = move |key| indexes[(sectors(key) / SMALL_EXTENT) as usize - 1].clone();
        Cache::new(CAPACITY, shares, index)
    }

    impl Cache {
        /// Fills an extent as a warm does. Returns whether it is cached afterwards.
        fn fill(&mut self, key: ExtentKey) -> bool {
            self.request(key, true);
            self.books.contains(key)
        }

        fn holding(&self, table: u32) -> Holding {
            let mut holdings = self.books.holdings();
            let holding = holdings.find(|(tag, _)| *tag == TableTag(table));
            holding.map_or(Holding::default(), |(_, holding)| holding)
        }
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
            let segment_sectors = CAPACITY.segment_sectors();
            let tenth = (held_max_sectors(segment_sectors, &[CAPACITY.slab_sectors()]) - segment_sectors) / 10;
            let (guarantee, pinned, quota) = (guarantee * tenth, pinned * tenth, quota * tenth);
            let share = |guarantee, quota, is_pinned| Share { guarantee, quota, is_pinned };
            let mut cache = cache(mixed, Shares::new([
                (TableTag(1), share(guarantee, u64::MAX, false)),
                (TableTag(2), share(pinned, pinned, true)),
                (TableTag(3), share(0, quota, false)),
            ]));
            let mut pinned_keys = Vec::new();
            let sectors = |cache: &Cache, table| cache.holding(table).sectors;
            let (mut seen, mut is_full) = (BTreeSet::new(), false);
            for (table, chunk, reads) in steps {
                let key = key_of(table, chunk);
                let before = sectors(&cache, 1);
                seen.insert(key);
                for _ in 0..reads {
                    if !cache.read(key) && cache.fill(key) && table == 2 {
                        pinned_keys.push(key);
                    }
                }
                let now = sectors(&cache, 1);
                prop_assert!(now >= before.min(guarantee), "{before} became {now} of {guarantee}");
                prop_assert!(sectors(&cache, 2) <= pinned && sectors(&cache, 3) <= quota);
                for table in 0..4 {
                    let placed = seen.iter().filter(|key| key.pack.table().0 == table);
                    let placed = placed.filter(|key| cache.books.contains(**key));
                    prop_assert_eq!(sectors(&cache, table), placed.map(|key| mixed(*key)).sum::<u64>());
                }
                prop_assert!(pinned_keys.iter().all(|key| cache.books.contains(*key)));
                // Every fill that fits succeeds, except those of the pinned table at its quota.
                prop_assert!(table == 2 || cache.books.contains(key));
                // After a fill of a pinned table was refused, the table's later fills are refused too, even shorter
                // ones.
                is_full |= sectors(&cache, 2) + mixed(key) > pinned;
                prop_assert!(cache.books.contains(key) || is_full);
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
        // The extents are filled before the tables have shares, so they are not in the held log. Then the node restarts
        // with shares.
        let mut cache = cache(|_| SECTORS, Shares::default());
        for chunk in 0..20 {
            assert!(cache.fill(key_of(1, chunk)) && cache.fill(key_of(2, chunk)));
        }
        cache.books = cache.books.restarted(shares(), cache.now);
        for chunk in 0..50_000 {
            assert!(cache.fill(key_of(9, chunk)));
        }
        assert!((0..20).all(|chunk| cache.read(key_of(1, chunk)) && cache.read(key_of(2, chunk))));
        // Each segment was given to the held log as it is, or its extents were moved at most once.
        let kept = cache.books.counts().bytes_kept / (SECTORS * SECTOR_BYTES as u64);
        assert!(kept <= 40, "{kept} of 40 extents were written again");
        // Extents that are read again replace those that are not.
        for chunk in 100..20_000 {
            let key = key_of(1, 100 + chunk % 20);
            if !cache.read(key) {
                assert!(cache.fill(key));
            }
            assert!(cache.fill(key_of(9, 100_000 + chunk)));
        }
        assert!((0..20).all(|chunk| cache.read(key_of(1, 100 + chunk))));
        let holding = cache.holding(1);
        assert!((2 * tenth..2 * tenth + SECTORS).contains(&holding.held_sectors), "{holding:?}");
    }

    #[test]
    fn a_scan_leaves_blocks_of_files_and_old_blocks_make_room_for_new_ones() {
        let [one, two] = [1, 2].map(|hash| TableTag::of_files(hash).0);
        let drive = [CAPACITY.slab_sectors()];
        let segment = ByteSize::b(CAPACITY.segment_sectors() * SECTOR_BYTES as u64);
        let files = files_share(&[], segment, &drive).unwrap();
        let blocks = (files.guarantee / SECTORS) as u32;
        let mut cache = cache(|_| SECTORS, Shares::default().with_files(Some(files)));
        let scan = |cache: &mut Cache, from| {
            for chunk in from..from + 50_000 {
                assert!(cache.fill(key_of(9, chunk)));
            }
        };
        // Both tables' files fit into the guarantee.
        let old: Vec<_> =
            (0..blocks / 2).flat_map(|it| [key_of(one, it), key_of(two, it)]).collect();
        assert!(old.iter().all(|&key| cache.fill(key)));
        scan(&mut cache, 0);
        assert!(old.iter().all(|&key| cache.read(key)));
        // The blocks of a new index, which are read, replace those of an old one, which are not.
        for turn in 0..20 {
            for block in 0..blocks / 2 {
                let key = key_of(two, 1000 + block);
                assert!(cache.read(key) || cache.fill(key));
                assert!(cache.read(key));
            }
            scan(&mut cache, 100_000 * (1 + turn));
        }
        assert!((0..blocks / 2).all(|block| cache.read(key_of(two, 1000 + block))));
        let held: u64 = [one, two].map(|table| cache.holding(table).held_sectors).iter().sum();
        assert!(held <= files.guarantee + SECTORS, "{held} of {}", files.guarantee);
    }

    #[test]
    fn a_guarantee_costs_its_table_no_hits() {
        const CHUNKS: f64 = 1500.0;
        let capacity = Capacity { segments: 100, extents_per_segment: 10 };
        let index = trial_extent(SECTORS as u32).unwrap().index;
        // Two tables are read equally; of each, the n-th chunk is read n times as rarely as the first.
        let hits = |guarantee| {
            let share = Share { guarantee, quota: u64::MAX, is_pinned: false };
            let shares = Shares::new([(TableTag(1), share)]);
            let index = index.clone();
            let mut cache = Cache::new(capacity, shares, move |_| index.clone());
            let mut random = StdRng::seed_from_u64(3);
            let mut hits = 0;
            for turn in 0..100_000 {
                let key = key_of(1 + turn % 2, CHUNKS.powf(random.random()) as u32);
                match cache.read(key) {
                    true => hits += 1 - turn % 2,
                    false => cache.request(key, false),
                }
            }
            hits
        };
        let tenth = SECTORS * capacity.extents() as u64 / 10;
        let (with, without) = (hits(tenth), hits(0));
        assert!(with + 200 > without, "{with} and {without} of 50,000 reads");
    }

    #[test]
    fn a_table_that_evicts_for_its_quota_takes_little_from_others() {
        let tenth = SECTORS * CAPACITY.extents() as u64 / 10;
        let share = Share { guarantee: 0, quota: 2 * tenth, is_pinned: false };
        let mut cache = cache(|_| SECTORS, Shares::new([(TableTag(3), share)]));
        for chunk in 0..60 {
            assert!(cache.fill(key_of(1, chunk)));
        }
        for chunk in 0..10_000 {
            assert!(cache.fill(key_of(3, chunk)));
        }
        let left = (0..60).filter(|&chunk| cache.books.contains(key_of(1, chunk))).count();
        assert!(left >= 50, "{left} of 60 are left");
    }
}
