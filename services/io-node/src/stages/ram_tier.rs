//! RAM tier: sectors that were read lately, each core its own.
//!
//! Keyed by extent, not by place on the drive, so that a reused place can't bring back old bytes.
//! Sectors are admitted after their checksum was found right.
//!
//! A look-up waits for memory: where the sector is, what it is called, its bytes. A batch asks for all of its sectors
//! ahead (`prefetch_entry`, `prefetch_bytes`), so that it waits once for many. A library's cache, whose hash table and entries can only
//! be asked one after the other, made that 0.8 µs a sector, more than scoring it (`docs/performance.md`).
//! So a sector's place (`sector_index.rs`) is one line of the CPU's cache, its bytes (`frames.rs`) lie in huge pages, and
//! a hit changes two bits of the place alone. What goes when there is no room is S3-FIFO's choice (`queues.rs`).

mod frames;
mod queues;
mod sector_index;

use std::cell::RefCell;
use std::io;
use std::ops::Range;

use address::{ExtentKey, PackKey, SECTOR_BYTES};

use self::frames::Frames;
use self::queues::{QUEUED_BYTES, Queues};
use self::sector_index::{INDEX_BYTES, SectorIndex};

/// What a sector costs beside its bytes.
const ENTRY_BYTES: usize = size_of::<SectorName>() + INDEX_BYTES + QUEUED_BYTES;

/// A sector of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorName {
    pack: PackKey,
    chunk: u32,
    sector: u32,
}

/// Where a sector's bytes are in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameNo(u32);

/// What came of a sector that was to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It was here already, or there is no tier.
    No,
    /// There was room.
    Added,
    /// Another was let go for it.
    Replaced,
}

/// One core's sectors in RAM.
pub struct RamTier(Option<RefCell<Sectors>>);

struct Sectors {
    index: SectorIndex,
    frames: Frames,
    queues: Queues,
}

impl SectorName {
    /// Of nothing.
    const NONE: Self = Self { pack: PackKey(0), chunk: 0, sector: 0 };

    /// Of the extent's sector with this number, from 0.
    pub fn new(extent: ExtentKey, sector: u32) -> Self {
        Self { pack: extent.pack, chunk: extent.chunk, sector }
    }

    /// The name of the sector so many further on.
    pub fn plus(self, sectors: u32) -> Self {
        Self { sector: self.sector + sectors, ..self }
    }

    /// All of its bits are spread alike.
    fn hash(self) -> u64 {
        // Pack keys are hashes already, but for the table's tag.
        let pack = self.pack.0 as u64 ^ (self.pack.0 >> 64) as u64;
        let row = u64::from(self.chunk) << u32::BITS | u64::from(self.sector);
        fold(pack ^ fold(row))
    }
}

fn fold(word: u64) -> u64 {
    // The multiplier of PCG's generator, and an odd number, as 0 is often a word; both halves of the product count.
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0x5851_f42d_4c95_7f2d_u128;
    product as u64 ^ (product >> 64) as u64
}

/// One of `count` numbers from 0, by the upper bits of a hash.
fn bucket_of(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> u64::BITS) as usize
}

impl RamTier {
    /// A tier of `bytes`; none at all if not a sector fits.
    ///
    /// # Errors
    /// What the system says when it has no room for their addresses.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let room = bytes / (SECTOR_BYTES + ENTRY_BYTES) as u64;
        if room == 0 {
            return Ok(Self(None));
        }
        // At most 16 TiB of sectors a core.
        let sectors = Sectors::new(room.min(u32::MAX.into()) as usize)?;
        Ok(Self(Some(RefCell::new(sectors))))
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// How many sectors there are.
    pub fn sectors(&self) -> u64 {
        self.0.as_ref().map_or(0, |sectors| sectors.borrow().frames.len() as u64)
    }

    /// Has the CPU bring near where a sector would be.
    pub fn prefetch_entry(&self, name: SectorName) {
        if let Some(sectors) = &self.0 {
            sectors.borrow().index.prefetch(name.hash());
        }
    }

    /// Has the CPU bring near some bytes of a sector whose place is near, if it is here.
    pub fn prefetch_bytes(&self, name: SectorName, bytes: Range<usize>) {
        if let Some(sectors) = &self.0 {
            let Sectors { index, frames, .. } = &*sectors.borrow();
            index.candidates(name.hash()).for_each(|frame| frames.prefetch(frame, bytes.clone()));
        }
    }

    /// What `see` makes of a sector, if it is here.
    pub fn with_sector<T>(&self, name: SectorName, see: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let sectors = self.0.as_ref()?.borrow();
        let frame = sectors.find(name)?;
        Some(see(sectors.frames.bytes(frame)))
    }

    /// Admits a sector that was checked.
    pub fn admit(&self, name: SectorName, bytes: &[u8]) -> Admitted {
        let sectors = self.0.as_ref();
        sectors.map_or(Admitted::No, |sectors| sectors.borrow_mut().admit(name, bytes))
    }
}

impl Sectors {
    fn new(room: usize) -> io::Result<Self> {
        let (index, queues) = (SectorIndex::new(room), Queues::new(room));
        Ok(Self { index, frames: Frames::new(room)?, queues })
    }

    /// Where a sector is, which counts as a use of it.
    fn find(&self, name: SectorName) -> Option<FrameNo> {
        self.index.find(name.hash(), |frame| self.frames.name(frame) == name)
    }

    fn admit(&mut self, name: SectorName, bytes: &[u8]) -> Admitted {
        let hash = name.hash();
        // Another batch's read brought it meanwhile.
        if self.find(name).is_some() {
            return Admitted::No;
        }
        let (frame, admitted) = self.room_for(hash);
        self.frames.put(frame, name, bytes);
        self.index.put(hash, frame);
        admitted
    }

    /// A frame for a sector of this hash, in whose set there is a way then.
    fn room_for(&mut self, hash: u64) -> (FrameNo, Admitted) {
        if let Some(frame) = self.index.least_used_of_full(hash) {
            // It keeps its turn in the queue, under another name.
            self.index.remove(hash, frame);
            return (frame, Admitted::Replaced);
        }
        let (frame, admitted) = match self.frames.add() {
            Some(frame) => (frame, Admitted::Added),
            None => (self.free(), Admitted::Replaced),
        };
        self.queues.push(frame, hash);
        (frame, admitted)
    }

    /// Lets a sector go.
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

    /// Whether a sector is here, with its own bytes.
    fn has(tier: &RamTier, number: u32) -> bool {
        tier.prefetch_entry(name(number));
        tier.prefetch_bytes(name(number), 0..SECTOR_BYTES);
        tier.with_sector(name(number), |it| assert_eq!(it, bytes(number))).is_some()
    }

    /// Asks for sectors as batches do; the share that was here.
    fn hits(room: usize, asked: &[u32]) -> f64 {
        let tier = tier(room);
        let is_hit = |&&number: &&u32| {
            let is_here = tier.with_sector(name(number), |_| ()).is_some();
            if !is_here {
                tier.admit(name(number), &[0; SECTOR_BYTES]);
            }
            is_here
        };
        asked.iter().filter(is_hit).count() as f64 / asked.len() as f64
    }

    /// The same of a cache that lets go what was used longest ago.
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

    /// Numbers below `count`, of which the n-th comes as often as 1 of n.
    fn zipf(count: u32, length: usize) -> Vec<u32> {
        let mut random = StdRng::seed_from_u64(5);
        (0..length).map(|_| f64::from(count).powf(random.random::<f64>()) as u32 - 1).collect()
    }

    #[test]
    fn what_is_admitted_is_found_until_its_room_is_needed() {
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
    fn what_fits_stays() {
        let room = 20_000;
        let tier = tier(room);
        for it in 0..room as u32 {
            tier.admit(name(it), &bytes(it));
        }
        let kept = (0..room as u32).filter(|&it| has(&tier, it)).count();
        // A place may be full before the tier is.
        assert!(kept > room - room / 100, "{kept}");
    }

    #[test]
    fn what_is_used_outlives_a_scan() {
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
    fn it_keeps_more_of_what_comes_often_than_lru() {
        let asked = zipf(20_000, 200_000);
        for room in [200, 2000] {
            let (ours, lru) = (hits(room, &asked), hits_of_lru(room, &asked));
            assert!(ours > lru + 0.02, "{room} sectors: {ours} and {lru}");
        }
    }

    #[test]
    fn a_tier_full_of_what_is_used_makes_room_at_once() {
        let room = 2000;
        let tier = tier(room);
        let admitted = (0..).take_while(|&it| {
            tier.admit(name(it), &bytes(it));
            tier.sectors() < room as u64
        });
        let numbers: Vec<_> = admitted.collect();
        let here = || numbers.iter().filter(|&&it| has(&tier, it)).count();
        let before = [here(), here(), here()][2];
        assert_eq!(tier.admit(name(5000), &bytes(5000)), Admitted::Replaced);
        assert!(has(&tier, 5000));
        assert!(here() >= before - 1);
        assert_eq!(tier.admit(name(5000), &bytes(5000)), Admitted::No);
    }

    #[test]
    fn none_is_none() {
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
