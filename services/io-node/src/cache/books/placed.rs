//! The extents that are in every core's directory or are being published to it, and the memory they take.

use std::sync::Arc;

use address::{DriveNo, ExtentKey};

use super::checked::less;
use crate::extent::{ByKey, Extent, REPLICA_ENTRY_BYTES};

/// The bytes that an extent takes in the maps and lists of the filler and its books.
const OWN_ENTRY_BYTES: usize = 96;

/// The additional bytes that each extent takes if any table has a share. If none has one, only the extents of index and
/// deletion files take them.
const SHARE_ENTRY_BYTES: usize = 256;

/// The extents that are served, by name.
pub struct Placed {
    by_key: ByKey<Arc<Extent>>,
    /// Bytes that each extent takes in the books' maps and the cores' replicas, in addition to the [`Extent`] and its
    /// index.
    entry_bytes: u64,
    has_shares: bool,
    bytes: u64,
}

impl Placed {
    /// Creates an empty set for a node of `cores` cores. `has_shares` says whether any table has a share.
    pub fn new(cores: usize, has_shares: bool) -> Self {
        let own = OWN_ENTRY_BYTES + if has_shares { SHARE_ENTRY_BYTES } else { 0 };
        let entry_bytes = (own + cores * REPLICA_ENTRY_BYTES) as u64;
        Self { by_key: ByKey::default(), entry_bytes, has_shares, bytes: 0 }
    }

    /// Reserves memory for `extents` extents.
    pub fn reserve(&mut self, extents: usize) {
        self.by_key.reserve(extents);
    }

    /// Adds an extent, and returns the one that had its name before.
    pub fn insert(&mut self, extent: Arc<Extent>) -> Option<Arc<Extent>> {
        self.bytes += self.bytes_of(&extent);
        let replaced = self.by_key.insert(extent.key, extent)?;
        self.bytes = less(self.bytes, self.bytes_of(&replaced), "bytes of RAM");
        Some(replaced)
    }

    /// Removes an extent.
    pub fn remove(&mut self, key: ExtentKey) -> Option<Arc<Extent>> {
        let extent = self.by_key.remove(&key)?;
        self.bytes = less(self.bytes, self.bytes_of(&extent), "bytes of RAM");
        Some(extent)
    }

    /// The names of a drive's extents.
    pub fn on_drive(&self, drive: DriveNo) -> Vec<ExtentKey> {
        let there = self.by_key.values().filter(|extent| extent.drive == drive);
        there.map(|extent| extent.key).collect()
    }

    /// The extent with this name, if there is one.
    pub fn get(&self, key: ExtentKey) -> Option<&Arc<Extent>> {
        self.by_key.get(&key)
    }

    /// Whether there is an extent with this name.
    pub fn contains(&self, key: ExtentKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Whether this very extent is served, and not another one with the same name.
    pub fn has(&self, extent: &Arc<Extent>) -> bool {
        self.by_key.get(&extent.key).is_some_and(|placed| Arc::ptr_eq(placed, extent))
    }

    /// The number of extents.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The RAM that the extents take, with the replicas of all cores, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The RAM that an extent takes, with the replicas of all cores, in bytes.
    pub fn bytes_of(&self, extent: &Extent) -> u64 {
        let share = match extent.key.pack.table().is_of_files() && !self.has_shares {
            true => SHARE_ENTRY_BYTES,
            false => 0,
        };
        self.entry_bytes + (size_of::<Extent>() + extent.index.ram_bytes() + share) as u64
    }
}
