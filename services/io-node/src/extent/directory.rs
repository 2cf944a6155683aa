//! The directory: where each extent is. Each core has a replica, so that no look-up takes a lock.
//!
//! The large parts of an extent (row starts, checksums) never change and are shared by the replicas through an `Arc`.
//! Requests refer to an extent by the index of its entry in the replica ([`ExtentNo`]) instead of counting references
//! per row. An entry is reused only after every request that was under way when its extent was forgotten has ended (see
//! `shard/grace.rs`), so an index refers to the same extent for as long as the request that found it runs.

use std::cell::Cell;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use address::ExtentKey;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Extent, KeyHasher};

/// The index of an extent's entry in one core's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentNo(u32);

/// The maximum number of batches that one core counts as readers of an extent: 3, as S3-FIFO counts uses in two bits.
pub const HEAT_MAX: u8 = 3;

/// The number of possible heats: 0 to [`HEAT_MAX`].
pub const HEATS: usize = HEAT_MAX as usize + 1;

/// The maximum number of bytes that an extent takes in one replica: for its entry in the list, and for its index in the
/// hash table. The capacity of the list and of the table may have just doubled.
pub const REPLICA_ENTRY_BYTES: usize = 2 * (size_of::<ReplicaEntry>() + 2 * size_of::<ExtentNo>());

/// One core's replica.
#[derive(Default)]
pub struct Directory {
    /// Indexes of entries by extents' names. The hash table does not repeat the names, which are in the extents, so it
    /// takes 5 bytes per extent instead of 48.
    by_key: HashTable<ExtentNo>,
    entries: Vec<ReplicaEntry>,
    free: Vec<ExtentNo>,
    /// The bytes of all entries' extents.
    shared_bytes: usize,
    /// The number of entries with each heat. Reads keep it current, so that nothing has to count all entries.
    heats: [Cell<u64>; HEATS],
}

/// Returns the bytes of RAM that the replicas share for an extent.
fn shared_bytes_of(extent: &Extent) -> usize {
    size_of::<Extent>() + extent.index.ram_bytes()
}

#[derive(Default)]
struct ReplicaEntry {
    extent: Option<Arc<Extent>>,
    /// Batches that have read the extent, up to [`HEAT_MAX`].
    heat: Cell<u8>,
    /// The low 32 bits of the serial number of the last batch that read the extent; `u32::MAX` before the first.
    reader: Cell<u32>,
}

impl Directory {
    /// Returns the index of an extent's entry; `None` if the extent is not cached.
    pub fn find(&self, key: ExtentKey) -> Option<ExtentNo> {
        self.by_key.find(hash(key), |&no| self.is_named(no, key)).copied()
    }

    fn is_named(&self, no: ExtentNo, key: ExtentKey) -> bool {
        self.extent(no).is_some_and(|extent| extent.key == key)
    }

    /// The extent of an entry that a request under way refers to.
    pub fn extent(&self, no: ExtentNo) -> Option<&Arc<Extent>> {
        self.entries.get(no.0 as usize)?.extent.as_ref()
    }

    /// Returns the extent of an entry, and counts the batch with this serial number as a reader of it. A batch counts
    /// once, however many rows it reads; it may count again if a drive failed and the batch is located again.
    pub fn extent_counting_reader(&self, no: ExtentNo, serial: u64) -> Option<&Arc<Extent>> {
        let entry = self.entries.get(no.0 as usize)?;
        // A vacant entry has no heat to count.
        let extent = entry.extent.as_ref()?;
        if entry.reader.replace(serial as u32) != serial as u32 {
            let was = entry.heat.get();
            if was < HEAT_MAX {
                entry.heat.set(was + 1);
                self.move_heat(was, was + 1);
            }
        }
        Some(extent)
    }

    fn move_heat(&self, from: u8, to: u8) {
        let [from, to] = [from, to].map(|heat| &self.heats[usize::from(heat)]);
        from.set(from.get() - 1);
        to.set(to.get() + 1);
    }

    /// The numbers of extents that have been read by no batch, by one batch, and so on; the last figure is for
    /// [`HEAT_MAX`] or more. A forgotten extent counts until its entry is vacated.
    pub fn heats(&self) -> [u64; HEATS] {
        std::array::from_fn(|heat| self.heats[heat].get())
    }

    /// The number of batches that have read an extent, up to [`HEAT_MAX`].
    pub fn heat(&self, key: ExtentKey) -> u8 {
        self.find(key).map_or(0, |no| self.entries[no.0 as usize].heat.get())
    }

    /// Adds an extent. If it replaces one with the same name, returns the index of the old entry, which must be vacated
    /// once the requests that use it have ended.
    pub fn insert(&mut self, extent: Arc<Extent>) -> Option<ExtentNo> {
        let key = extent.key;
        self.shared_bytes += shared_bytes_of(&extent);
        self.heats[0].set(self.heats[0].get() + 1);
        // One batch in 2^32 has a serial number whose low 32 bits are `u32::MAX`. If that batch is the first to read
        // the extent, it is not counted.
        let new =
            ReplicaEntry { extent: Some(extent), heat: Cell::new(0), reader: Cell::new(u32::MAX) };
        let no = match self.free.pop() {
            Some(no) => {
                self.entries[no.0 as usize] = new;
                no
            }
            None => {
                self.entries.push(new);
                ExtentNo(self.entries.len() as u32 - 1)
            }
        };
        let Self { by_key, entries, .. } = self;
        let name = |no: ExtentNo| entries[no.0 as usize].extent.as_ref().map(|extent| extent.key);
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

    /// Adds the extents found on the drives at the start to an empty replica. If two have the same name, the later one
    /// counts.
    pub fn restore(&mut self, extents: &[Arc<Extent>]) {
        self.by_key.reserve(extents.len(), |_| unreachable!("it is empty"));
        self.entries.reserve(extents.len());
        for extent in extents {
            let replaced = self.insert(Arc::clone(extent));
            // No request has begun yet.
            self.vacate(replaced.as_slice());
        }
    }

    /// The number of extents that can be found.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The extents that can be found.
    pub fn extents(&self) -> impl Iterator<Item = &Arc<Extent>> {
        self.by_key.iter().filter_map(|&no| self.extent(no))
    }

    /// Makes an extent impossible to find. Its entry, whose index is returned, stays until [`Directory::vacate`].
    pub fn forget(&mut self, key: ExtentKey) -> Option<ExtentNo> {
        let named = self.by_key.find(hash(key), |&no| self.is_named(no, key)).copied()?;
        let entry = self.by_key.find_entry(hash(key), |&no| no == named);
        entry.ok().map(|entry| entry.remove().0)
    }

    /// Vacates entries that no request uses any more.
    pub fn vacate(&mut self, numbers: &[ExtentNo]) {
        for &no in numbers {
            let entry = std::mem::take(&mut self.entries[no.0 as usize]);
            if let Some(extent) = &entry.extent {
                self.shared_bytes -= shared_bytes_of(extent);
                let count = &self.heats[usize::from(entry.heat.get())];
                count.set(count.get() - 1);
            }
            self.free.push(no);
        }
    }

    /// RAM of this replica without the parts that replicas share, in bytes.
    pub fn replica_bytes(&self) -> usize {
        self.by_key.allocation_size() + self.entries.capacity() * size_of::<ReplicaEntry>()
    }

    /// RAM of the parts that replicas share, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }
}

fn hash(key: ExtentKey) -> u64 {
    BuildHasherDefault::<KeyHasher>::default().hash_one(key)
}

#[cfg(test)]
pub mod tests {
    use address::{DriveNo, PackKey, SectorNo};
    use arrow_array::{ArrayRef, BinaryArray};
    use arrow_schema::{DataType, Field};
    use pack::PackLayout;

    use super::*;
    use crate::extent::SegmentNo;

    /// Returns an extent with rows of one byte, each of which takes two bytes in the index.
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
        // A batch counts once however many rows it reads, and only the first three batches count.
        for _ in 0..5 {
            directory.extent_counting_reader(once, 7);
        }
        for batch in 0..5 {
            directory.extent_counting_reader(often, batch);
        }
        assert_eq!(directory.heats(), [1, 1, 0, 1]);
        // A rewritten extent begins at heat 0; the old one counts until its entry is vacated.
        let replaced = directory.insert(extent(1, 2, 1)).unwrap();
        assert_eq!(directory.heats(), [2, 1, 0, 1]);
        directory.vacate(&[replaced]);
        let forgotten = directory.forget(extent(0, 1, 1).key).unwrap();
        assert_eq!(directory.heats(), [2, 1, 0, 0]);
        directory.vacate(&[forgotten]);
        assert_eq!((directory.heats(), directory.len()), ([2, 0, 0, 0], 2));
    }
}
