//! The directory: which extent is where. One replica a core, so that no look-up takes a lock.
//!
//! The heavy part of an entry (row starts, checksums) is shared by the replicas through an `Arc`
//! and never changes. Requests name extents by their place in the replica ([`ExtentNo`]) instead
//! of counting references a row; a place is reused only after every request that was under way
//! when its extent was forgotten has ended (see `shard/grace.rs`), so a place never names another
//! extent than the one it was taken for.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;

use address::{DriveNo, ExtentKey, SectorNo};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use pack::ExtentIndex;

use crate::fill::{HEAT_MAX, SegmentNo};

/// A chunk of a pack, on a drive.
#[derive(Debug)]
pub struct Extent {
    /// Its name.
    pub key: ExtentKey,
    /// Where each of its rows starts, and each sector's checksum.
    pub index: ExtentIndex,
    /// The drive it is on.
    pub drive: DriveNo,
    /// Its first sector there.
    pub first: SectorNo,
    /// The segment it goes with.
    pub segment: SegmentNo,
}

/// An extent's place in one core's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentNo(u32);

/// How hot an extent can be: read by 0 to [`HEAT_MAX`] batches.
pub const HEATS: usize = HEAT_MAX as usize + 1;

/// Something for each extent.
pub type ByKey<T> = HashMap<ExtentKey, T, BuildHasherDefault<KeyHasher>>;

/// What an extent takes in one replica at most, in bytes: its place, and its entry in the table, either of which
/// may have just doubled.
pub const REPLICA_ENTRY_BYTES: usize = 2 * (size_of::<Place>() + 2 * size_of::<ExtentNo>());

/// One core's replica.
#[derive(Default)]
pub struct Directory {
    /// Places of extents by their names, which only the extents hold: 5 bytes an entry in place of 48.
    by_key: HashTable<ExtentNo>,
    places: Vec<Place>,
    free: Vec<ExtentNo>,
    /// Of the extents in all places.
    shared_bytes: usize,
    /// How many of them are how hot, kept up as they are read: nobody goes through all of them for it.
    heats: [Cell<u64>; HEATS],
}

/// RAM of an extent, which replicas share, in bytes.
fn shared_bytes_of(extent: &Extent) -> usize {
    size_of::<Extent>() + extent.index.ram_bytes()
}

#[derive(Default)]
struct Place {
    extent: Option<Arc<Extent>>,
    /// Batches that read it, up to [`HEAT_MAX`].
    heat: Cell<u8>,
    /// The last of them: the end of its serial number.
    reader: Cell<u32>,
}

impl Directory {
    /// Where the extent is, if it is filled.
    pub fn find(&self, key: ExtentKey) -> Option<ExtentNo> {
        self.by_key.find(hash(key), |&no| self.is_named(no, key)).copied()
    }

    fn is_named(&self, no: ExtentNo, key: ExtentKey) -> bool {
        self.extent(no).is_some_and(|extent| extent.key == key)
    }

    /// The extent at a place that a request under way holds.
    pub fn extent(&self, no: ExtentNo) -> Option<&Arc<Extent>> {
        self.places.get(no.0 as usize)?.extent.as_ref()
    }

    /// The same for a batch that reads it, which counts once however many of its rows it reads.
    pub fn read_by(&self, no: ExtentNo, serial: u64) -> Option<&Arc<Extent>> {
        let place = self.places.get(no.0 as usize)?;
        // A place that is vacated has no heat to move.
        let extent = place.extent.as_ref()?;
        if place.reader.replace(serial as u32) != serial as u32 {
            let was = place.heat.get();
            if was < HEAT_MAX {
                place.heat.set(was + 1);
                self.moved(was, was + 1);
            }
        }
        Some(extent)
    }

    fn moved(&self, from: u8, to: u8) {
        let [from, to] = [from, to].map(|heat| &self.heats[usize::from(heat)]);
        from.set(from.get() - 1);
        to.set(to.get() + 1);
    }

    /// How many extents have been read by no batch, by one, and so on; the last by [`HEAT_MAX`] or more. One that is
    /// forgotten counts until its place is free.
    pub fn heats(&self) -> [u64; HEATS] {
        std::array::from_fn(|heat| self.heats[heat].get())
    }

    /// How many batches have read an extent, up to [`HEAT_MAX`].
    pub fn heat(&self, key: ExtentKey) -> u8 {
        self.find(key).map_or(0, |no| self.places[no.0 as usize].heat.get())
    }

    /// Adds an extent; one that is there already under the key stays where requests hold it, and
    /// its place is returned to be vacated after a grace.
    pub fn insert(&mut self, extent: Arc<Extent>) -> Option<ExtentNo> {
        let key = extent.key;
        self.shared_bytes += shared_bytes_of(&extent);
        self.heats[0].set(self.heats[0].get() + 1);
        // No request has this number.
        let place = Place { extent: Some(extent), heat: Cell::new(0), reader: Cell::new(u32::MAX) };
        let no = match self.free.pop() {
            Some(no) => {
                self.places[no.0 as usize] = place;
                no
            }
            None => {
                self.places.push(place);
                ExtentNo(self.places.len() as u32 - 1)
            }
        };
        let Self { by_key, places, .. } = self;
        let name = |no: ExtentNo| places[no.0 as usize].extent.as_ref().map(|extent| extent.key);
        let entry = by_key.entry(
            hash(key),
            |&other| name(other) == Some(key),
            |&other| name(other).map_or(0, hash),
        );
        match entry {
            Entry::Occupied(mut there) => Some(std::mem::replace(there.get_mut(), no)),
            Entry::Vacant(room) => {
                room.insert(no);
                None
            }
        }
    }

    /// Adds what was on the drives before, to a replica without any of it; of two of one name the later.
    pub fn restore(&mut self, extents: &[Arc<Extent>]) {
        self.by_key.reserve(extents.len(), |_| unreachable!("it is empty"));
        self.places.reserve(extents.len());
        for extent in extents {
            let replaced = self.insert(Arc::clone(extent));
            // No request has begun yet.
            self.vacate(replaced.as_slice());
        }
    }

    /// How many extents are found.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The extents that are found.
    pub fn extents(&self) -> impl Iterator<Item = &Arc<Extent>> {
        self.by_key.iter().filter_map(|&no| self.extent(no))
    }

    /// Makes an extent unfindable. Its place stays until [`Directory::vacate`].
    pub fn forget(&mut self, key: ExtentKey) -> Option<ExtentNo> {
        let named = self.by_key.find(hash(key), |&no| self.is_named(no, key)).copied()?;
        let entry = self.by_key.find_entry(hash(key), |&no| no == named);
        entry.ok().map(|entry| entry.remove().0)
    }

    /// Frees places that no request holds any more.
    pub fn vacate(&mut self, places: &[ExtentNo]) {
        for &no in places {
            let place = std::mem::take(&mut self.places[no.0 as usize]);
            if let Some(extent) = &place.extent {
                self.shared_bytes -= shared_bytes_of(extent);
                let of_heat = &self.heats[usize::from(place.heat.get())];
                of_heat.set(of_heat.get() - 1);
            }
            self.free.push(no);
        }
    }

    /// RAM of this replica without what replicas share, in bytes.
    pub fn replica_bytes(&self) -> usize {
        self.by_key.allocation_size() + self.places.capacity() * size_of::<Place>()
    }

    /// RAM of what replicas share, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }
}

fn hash(key: ExtentKey) -> u64 {
    BuildHasherDefault::<KeyHasher>::default().hash_one(key)
}

/// Pack keys are hashes already: folding one with the chunk's number spreads well enough.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, chunk: u32) {
        self.write_u64(u64::from(chunk));
    }

    fn write_u64(&mut self, word: u64) {
        // An odd constant with well mixed bits (2^64 over the golden ratio).
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, pack: u128) {
        self.write_u64(pack as u64);
    }
}

#[cfg(test)]
pub mod tests {
    use address::PackKey;
    use arrow_array::{ArrayRef, BinaryArray};
    use arrow_schema::{DataType, Field};
    use pack::PackLayout;

    use super::*;

    /// With rows of one byte: two bytes of index each.
    pub fn extent(chunk: u32, segment: u32, rows: usize) -> Arc<Extent> {
        let column: ArrayRef = Arc::new(BinaryArray::from_iter_values(vec![b"x"; rows]));
        let field = Arc::new(Field::new("a", DataType::Binary, false));
        let index = PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap().index;
        Arc::new(Extent {
            key: ExtentKey { pack: PackKey(0), chunk },
            index,
            drive: DriveNo(0),
            first: SectorNo(0),
            segment: SegmentNo { drive: DriveNo(0), index: segment },
        })
    }

    #[test]
    fn extents_are_counted_by_how_many_batches_have_read_them() {
        let mut directory = Directory::default();
        for chunk in 0..3 {
            directory.insert(extent(chunk, 1, 1));
        }
        assert_eq!(directory.heats(), [3, 0, 0, 0]);
        let [once, often] = [0, 1].map(|chunk| directory.find(extent(chunk, 1, 1).key).unwrap());
        // A batch counts once however many rows it reads, and from the fourth on no more.
        for _ in 0..5 {
            directory.read_by(once, 7);
        }
        for batch in 0..5 {
            directory.read_by(often, batch);
        }
        assert_eq!(directory.heats(), [1, 1, 0, 1]);
        // One that is written once more begins anew; the old one counts until nobody holds it.
        let replaced = directory.insert(extent(1, 2, 1)).unwrap();
        assert_eq!(directory.heats(), [2, 1, 0, 1]);
        directory.vacate(&[replaced]);
        let forgotten = directory.forget(extent(0, 1, 1).key).unwrap();
        assert_eq!(directory.heats(), [2, 1, 0, 0]);
        directory.vacate(&[forgotten]);
        assert_eq!((directory.heats(), directory.len()), ([2, 0, 0, 0], 2));
    }
}
