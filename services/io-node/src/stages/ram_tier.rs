//! RAM tier: sectors that were read lately, each core its own.
//!
//! Keyed by extent, not by place on the drive, so that a reused place can't bring back old bytes.
//! Sectors are admitted after their checksum was found right.
//!
//! A hit marks its entry and no more: no lock, no list to reorder, no log of accesses. moka, which keeps
//! such a log to admit by frequency, cost 1.3 µs more for each hit of a million sectors, mostly in cache
//! misses, and made RAM slower than a drive of memory.

use std::cell::RefCell;
use std::hash::{BuildHasherDefault, Hasher};

use address::{ExtentKey, SECTOR_BYTES};
use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

/// What a cached sector costs beside its bytes: key, entry, its place in the hash table, and what the
/// cache remembers of sectors that it has let go.
const ENTRY_BYTES: usize = 160;

/// A sector of an extent.
type Key = (ExtentKey, u32);

type Sectors = Cache<Key, Box<[u8]>, UnitWeighter, BuildHasherDefault<KeyHasher>>;

/// One core's sectors in RAM.
pub struct RamTier(Option<RefCell<Sectors>>);

impl RamTier {
    /// A tier of `bytes`; none at all if not a sector fits.
    pub fn new(bytes: u64) -> Self {
        let sectors = bytes / (SECTOR_BYTES + ENTRY_BYTES) as u64;
        let cache = || {
            let (hash, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
            let cache = Sectors::with(sectors as usize, sectors, UnitWeighter, hash, lifecycle);
            RefCell::new(cache)
        };
        Self((sectors > 0).then(cache))
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What `see` makes of a sector, if it is here.
    pub fn look<T>(
        &self,
        extent: ExtentKey,
        sector: u32,
        see: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        self.0.as_ref()?.borrow().get(&(extent, sector)).map(|bytes| see(bytes))
    }

    /// How many there are.
    pub fn sectors(&self) -> u64 {
        self.0.as_ref().map_or(0, |cache| cache.borrow().len() as u64)
    }

    /// Admits a sector that was checked.
    pub fn admit(&self, extent: ExtentKey, sector: u32, bytes: &[u8]) {
        if let Some(cache) = &self.0 {
            cache.borrow_mut().insert((extent, sector), Box::from(bytes));
        }
    }
}

/// For keys that hold a hash already: their words are folded together.
#[derive(Default)]
struct KeyHasher(u64);

impl KeyHasher {
    fn fold(&mut self, word: u64) {
        // The multiplier of PCG's generator; both halves of the product count.
        let product = u128::from(self.0 ^ word) * 0x5851_f42d_4c95_7f2d_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(size_of::<u64>()) {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_u128(&mut self, words: u128) {
        self.fold(words as u64);
        self.fold((words >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use address::PackKey;

    use super::*;

    fn extent(chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey(7), chunk }
    }

    #[test]
    fn what_is_admitted_is_found_until_its_room_is_needed() {
        let room = 100;
        let tier = RamTier::new(room * (SECTOR_BYTES + ENTRY_BYTES) as u64);
        let sector = |n: u32| vec![n as u8; SECTOR_BYTES];
        for n in 0..1000 {
            tier.admit(extent(n / 10), n % 10, &sector(n));
            assert_eq!(tier.look(extent(n / 10), n % 10, <[u8]>::to_vec), Some(sector(n)), "{n}");
        }
        let here = |n: &u32| match tier.look(extent(n / 10), n % 10, <[u8]>::to_vec) {
            Some(bytes) => bytes == sector(*n) || panic!("{n}: another's bytes"),
            None => false,
        };
        let kept = (0..1000).filter(here).count() as u64;
        assert!((1..=room).contains(&kept), "{kept}");
        assert_eq!(tier.look(extent(1000), 0, |_| ()), None);
    }

    #[test]
    fn none_is_none() {
        let tier = RamTier::new(0);
        tier.admit(extent(0), 0, &[1; SECTOR_BYTES]);
        assert!(!tier.is_on() && tier.look(extent(0), 0, |_| ()).is_none());
    }
}
