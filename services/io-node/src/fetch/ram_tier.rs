//! RAM tier: each core's cache of recently read sectors.
//!
//! Sectors are keyed by extent, not by place on the drive, so a reused place cannot return old bytes. A sector is
//! admitted after its checksum was verified and a row in it was decoded. It is removed if another row in it can't be
//! decoded.
//!
//! A look-up waits for memory three times: for the index entry, the sector's name, and its bytes. So that these waits
//! overlap, a batch first prefetches the index entries of all its pieces (`prefetch_entry`), and then names and bytes
//! some pieces ahead of their use (`prefetch_bytes`). A sector's index entry (`sector_index.rs`) is within one cache
//! line of the CPU, its bytes (`frames.rs`) are in huge pages, and a hit changes only two bits of the entry. A
//! library's cache was rejected: its hash table and entries can only be read one after the other, so a look-up of a
//! sector took 0.8 µs, more than scoring it (`docs/performance.md`). S3-FIFO selects the sector to evict (`queues.rs`),
//! unless the set of the index to which the new sector belongs is full: then that set's least used sector is evicted.

mod frames;
mod queues;
mod sector_index;

use std::cell::{Ref, RefCell};
use std::io;
use std::ops::Range;

use address::{ExtentKey, PackKey, SECTOR_BYTES};

use self::frames::Frames;
use self::queues::{QUEUED_BYTES, Queues};
use self::sector_index::{INDEX_BYTES, SectorIndex};

/// The overhead of a sector, in bytes.
const ENTRY_BYTES: usize = size_of::<SectorName>() + INDEX_BYTES + QUEUED_BYTES;

/// The name of a sector of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorName {
    pack: PackKey,
    chunk: u32,
    sector: u32,
}

/// The number of the frame that holds a sector's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameNo(u32);

/// The outcome of admitting a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The sector was present already, or the tier is off.
    No,
    /// The sector took a free frame.
    Added,
    /// Another sector was evicted for it.
    Replaced,
}

/// One core's sectors in RAM.
pub struct RamTier(Option<RefCell<Sectors>>);

struct Sectors {
    index: SectorIndex,
    frames: Frames,
    queues: Queues,
}

/// Looks up sectors one after another. No sector can be admitted or removed meanwhile.
pub struct Lookup<'a> {
    sectors: Ref<'a, Sectors>,
    /// The sector that was looked up last, and its frame if it is present.
    last: Option<(SectorName, Option<FrameNo>)>,
}

impl SectorName {
    /// The name of an empty frame.
    const NONE: Self = Self { pack: PackKey(0), chunk: 0, sector: 0 };

    /// Names sector `sector` of an extent. Sectors are numbered from 0.
    pub fn new(extent: ExtentKey, sector: u32) -> Self {
        Self { pack: extent.pack, chunk: extent.chunk, sector }
    }

    /// Names the sector `sectors` further on.
    pub fn plus(self, sectors: u32) -> Self {
        Self { sector: self.sector + sectors, ..self }
    }

    /// Returns a hash whose bits are all equally distributed.
    fn hash(self) -> u64 {
        // Pack keys are hashes already, except for the table's tag.
        let pack = self.pack.0 as u64 ^ (self.pack.0 >> 64) as u64;
        let row = u64::from(self.chunk) << u32::BITS | u64::from(self.sector);
        fold(pack ^ fold(row))
    }
}

fn fold(word: u64) -> u64 {
    // The multiplier is PCG's. The XOR with an odd number is for words that are 0, which are frequent. The result
    // combines both halves of the product.
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0x5851_f42d_4c95_7f2d_u128;
    product as u64 ^ (product >> 64) as u64
}

/// Maps a hash to one of `count` buckets by its upper bits.
fn bucket_of(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> u64::BITS) as usize
}

impl RamTier {
    /// Creates a tier of `bytes`. It is off if not even one sector fits.
    ///
    /// # Errors
    /// The error of the system if it cannot reserve the address space.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let room = bytes / (SECTOR_BYTES + ENTRY_BYTES) as u64;
        if room == 0 {
            return Ok(Self(None));
        }
        // Frame numbers are u32: at most 16 TiB of sectors per core.
        let sectors = Sectors::new(room.min(u32::MAX.into()) as usize)?;
        Ok(Self(Some(RefCell::new(sectors))))
    }

    /// Returns whether the tier has room for any sector.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the number of sectors in the tier.
    pub fn sectors(&self) -> u64 {
        self.0.as_ref().map_or(0, |sectors| sectors.borrow().frames.len() as u64)
    }

    /// Prefetches the index entry of a sector.
    pub fn prefetch_entry(&self, name: SectorName) {
        if let Some(sectors) = &self.0 {
            sectors.borrow().index.prefetch(name.hash());
        }
    }

    /// Prefetches bytes of a sector, if it is present. Its index entry should be prefetched already.
    pub fn prefetch_bytes(&self, name: SectorName, bytes: Range<usize>) {
        if let Some(sectors) = &self.0 {
            let Sectors { index, frames, .. } = &*sectors.borrow();
            index.candidates(name.hash()).for_each(|frame| frames.prefetch(frame, bytes.clone()));
        }
    }

    /// Begins to look up sectors, unless the tier is off.
    pub fn lookup(&self) -> Option<Lookup<'_>> {
        Some(Lookup { sectors: self.0.as_ref()?.borrow(), last: None })
    }

    /// Removes a sector, if it is present. Its frame is used again once it has reached the end of its queue.
    pub fn remove(&self, name: SectorName) {
        if let Some(sectors) = &self.0 {
            sectors.borrow_mut().remove(name);
        }
    }

    /// Admits a sector whose checksum was verified.
    // Called for every sector that is read from a drive, even if the tier is off.
    #[inline]
    pub fn admit(&self, name: SectorName, bytes: &[u8]) -> Admission {
        let sectors = self.0.as_ref();
        sectors.map_or(Admission::No, |sectors| sectors.borrow_mut().admit(name, bytes))
    }
}

impl Lookup<'_> {
    /// Returns the bytes of a sector, if it is present. If it is the one that was looked up last, as for rows that follow
    /// each other, it is neither looked up nor counted as used again.
    pub fn sector(&mut self, name: SectorName) -> Option<&[u8]> {
        let frame = match self.last {
            Some((last, frame)) if last == name => frame,
            _ => self.sectors.find(name),
        };
        self.last = Some((name, frame));
        Some(self.sectors.frames.bytes(frame?))
    }
}

impl Sectors {
    fn new(room: usize) -> io::Result<Self> {
        let (index, queues) = (SectorIndex::new(room), Queues::new(room));
        Ok(Self { index, frames: Frames::new(room)?, queues })
    }

    /// Returns the frame of a sector, and counts a use of it.
    fn find(&self, name: SectorName) -> Option<FrameNo> {
        self.index.find(name.hash(), |frame| self.frames.name(frame) == name)
    }

    fn remove(&mut self, name: SectorName) {
        if let Some(frame) = self.find(name) {
            self.index.remove(name.hash(), frame);
        }
    }

    fn admit(&mut self, name: SectorName, bytes: &[u8]) -> Admission {
        let hash = name.hash();
        // Another read may have brought the sector in the meantime.
        if self.find(name).is_some() {
            return Admission::No;
        }
        let (frame, admitted) = self.room_for(hash);
        self.frames.put(frame, name, bytes);
        self.index.put(hash, frame);
        admitted
    }

    /// Provides a frame for a sector with this hash, and makes sure that its set has a free way.
    fn room_for(&mut self, hash: u64) -> (FrameNo, Admission) {
        if let Some(frame) = self.index.least_used_of_full(hash) {
            // The frame keeps its position in the queue.
            self.index.remove(hash, frame);
            return (frame, Admission::Replaced);
        }
        let (frame, admitted) = match self.frames.add() {
            Some(frame) => (frame, Admission::Added),
            None => (self.free(), Admission::Replaced),
        };
        self.queues.push(frame, hash);
        (frame, admitted)
    }

    /// Evicts a sector. Returns the frame that held it.
    fn free(&mut self) -> FrameNo {
        let Self { index, frames, queues } = self;
        let hash = |frame| frames.name(frame).hash();
        let frame = queues.pop(|frame| index.take_use(hash(frame), frame), hash);
        index.remove(hash(frame), frame);
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn name(number: u32) -> SectorName {
        let extent = ExtentKey { pack: PackKey(7 << 96 | 9), chunk: number / 10 };
        SectorName::new(extent, number % 10)
    }

    fn bytes(number: u32) -> Vec<u8> {
        number.to_le_bytes().repeat(SECTOR_BYTES / 4)
    }

    fn tier(room: usize) -> RamTier {
        RamTier::new((room * (SECTOR_BYTES + ENTRY_BYTES)) as u64).unwrap()
    }

    /// Returns whether a sector is present, and checks its bytes.
    fn has(tier: &RamTier, number: u32) -> bool {
        tier.prefetch_entry(name(number));
        tier.prefetch_bytes(name(number), 0..SECTOR_BYTES);
        sector(tier, number).inspect(|it| assert_eq!(*it, bytes(number))).is_some()
    }

    fn sector(tier: &RamTier, number: u32) -> Option<Vec<u8>> {
        Some(tier.lookup()?.sector(name(number))?.to_vec())
    }

    /// Reads sectors as batches do. Returns the hit ratio.
    fn hits(room: usize, asked: &[u32]) -> f64 {
        let tier = tier(room);
        let is_hit = |&&number: &&u32| {
            let is_here = sector(&tier, number).is_some();
            if !is_here {
                tier.admit(name(number), &[0; SECTOR_BYTES]);
            }
            is_here
        };
        asked.iter().filter(is_hit).count() as f64 / asked.len() as f64
    }

    /// Returns the hit ratio of an LRU cache.
    fn hits_of_lru(room: usize, asked: &[u32]) -> f64 {
        let (mut last, mut turns) = (HashMap::new(), VecDeque::new());
        let mut hits = 0;
        for (turn, &number) in asked.iter().enumerate() {
            hits += usize::from(last.insert(number, turn).is_some());
            turns.push_back((number, turn));
            while last.len() > room {
                let Some((oldest, turn)) = turns.pop_front() else { break };
                if last.get(&oldest) == Some(&turn) {
                    last.remove(&oldest);
                }
            }
        }
        hits as f64 / asked.len() as f64
    }

    /// Returns numbers below `count` with Zipf's distribution: the n-th is n times rarer than the first.
    fn zipf(count: u32, length: usize) -> Vec<u32> {
        let mut random = StdRng::seed_from_u64(5);
        (0..length).map(|_| f64::from(count).powf(random.random::<f64>()) as u32 - 1).collect()
    }

    #[test]
    fn an_admitted_sector_is_found_until_its_frame_is_needed() {
        let room = 100;
        let tier = tier(room);
        for number in 0..1000 {
            assert!(!has(&tier, number));
            tier.admit(name(number), &bytes(number));
            assert!(has(&tier, number), "{number}");
        }
        assert_eq!((0..1000).filter(|&it| has(&tier, it)).count(), room);
        assert_eq!(tier.sectors(), room as u64);
    }

    #[test]
    fn a_removed_sector_is_not_found_and_its_frame_is_used_again() {
        let room = 100;
        let tier = tier(room);
        for number in 0..1000 {
            tier.admit(name(number), &[0; SECTOR_BYTES]);
            tier.remove(name(number));
            assert!(!has(&tier, number));
            tier.admit(name(number), &bytes(number));
            assert!(has(&tier, number), "{number}");
        }
        assert_eq!(tier.sectors(), room as u64);
        (0..2000).for_each(|number| tier.remove(name(number)));
        assert!((0..1000).all(|number| !has(&tier, number)));
    }

    #[test]
    fn sectors_that_fit_stay() {
        let room = 20_000;
        let tier = tier(room);
        for it in 0..room as u32 {
            tier.admit(name(it), &bytes(it));
        }
        let kept = (0..room as u32).filter(|&it| has(&tier, it)).count();
        // A set may be full before the tier is.
        assert!(kept > room - room / 100, "{kept}");
    }

    #[test]
    fn used_sectors_outlive_a_scan() {
        let tier = tier(1000);
        for _ in 0..3 {
            for number in 0..300 {
                if !has(&tier, number) {
                    tier.admit(name(number), &bytes(number));
                }
            }
        }
        for it in 1000..6000 {
            tier.admit(name(it), &bytes(it));
        }
        let kept = (0..300).filter(|&it| has(&tier, it)).count();
        assert!(kept > 290, "{kept}");
    }

    #[test]
    fn a_sector_that_is_looked_up_several_times_in_a_row_counts_as_used_once() {
        let tier = tier(100);
        for number in 0..2 {
            tier.admit(name(number), &bytes(number));
        }
        let mut lookup = tier.lookup().unwrap();
        for number in [0, 0, 0, 1, 2, 2, 1] {
            let found = (number < 2).then(|| bytes(number));
            assert_eq!(lookup.sector(name(number)), found.as_deref());
        }
        drop(lookup);
        let Sectors { index, .. } = &*tier.0.as_ref().unwrap().borrow();
        let uses = |number: u32| {
            let take = || index.take_use(name(number).hash(), FrameNo(number));
            (0..9).filter(|_| take()).count()
        };
        assert_eq!([0, 1].map(uses), [1, 2]);
    }

    #[test]
    fn the_hit_ratio_is_higher_than_that_of_lru() {
        let asked = zipf(20_000, 200_000);
        for room in [200, 2000] {
            let (ours, lru) = (hits(room, &asked), hits_of_lru(room, &asked));
            assert!(ours > lru + 0.02, "{room} sectors: {ours} and {lru}");
        }
    }

    #[test]
    fn a_tier_full_of_used_sectors_evicts_one_at_once() {
        let room = 2000;
        let tier = tier(room);
        let admitted = (0..).take_while(|&it| {
            tier.admit(name(it), &bytes(it));
            tier.sectors() < room as u64
        });
        let numbers: Vec<_> = admitted.collect();
        let here = || numbers.iter().filter(|&&it| has(&tier, it)).count();
        let before = [here(), here(), here()][2];
        assert_eq!(tier.admit(name(5000), &bytes(5000)), Admission::Replaced);
        assert!(has(&tier, 5000));
        assert!(here() >= before - 1);
        assert_eq!(tier.admit(name(5000), &bytes(5000)), Admission::No);
    }

    #[test]
    fn a_tier_of_no_bytes_is_off() {
        let tier = RamTier::new(0).unwrap();
        tier.admit(name(0), &bytes(0));
        assert!(!tier.is_on() && !has(&tier, 0));
    }

    proptest! {
        #[test]
        fn no_sector_has_anothers_bytes(
            room in 1..60usize,
            steps in prop::collection::vec((any::<bool>(), 0..100u32), 0..600),
        ) {
            let tier = tier(room);
            let mut admitted = [false; 100];
            for (is_admitted, number) in steps {
                if is_admitted {
                    tier.admit(name(number), &bytes(number));
                    prop_assert!(has(&tier, number));
                    admitted[number as usize] = true;
                }
                prop_assert!(!has(&tier, number) || admitted[number as usize]);
            }
            let here = (0..100).filter(|&it| has(&tier, it)).count();
            prop_assert_eq!(here as u64, tier.sectors());
            prop_assert!(here <= room);
        }
    }
}
