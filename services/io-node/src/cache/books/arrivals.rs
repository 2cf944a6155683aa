//! Names of extents in the order of their arrival. A list does not learn when an extent is removed, so an entry may be
//! stale.

use std::collections::VecDeque;

use address::ExtentKey;

/// Names of extents, oldest first, each with the serial number of its entry. The owner keeps the serial number that
/// [`add`](Self::add) returned for a name. Entries with other numbers are stale, so a name that is removed and added
/// again counts from its last arrival.
#[derive(Debug, Default)]
pub struct Arrivals {
    entries: VecDeque<(u64, ExtentKey)>,
    added: u64,
}

impl Arrivals {
    /// Adds a name, and returns the serial number of its entry.
    pub fn add(&mut self, key: ExtentKey) -> u64 {
        self.added += 1;
        self.entries.push_back((self.added, key));
        self.added
    }

    /// Returns the oldest name whose entry is live. `is_live` gets a name and the serial number of its entry. The stale
    /// entries before it are removed, so that none is looked at twice.
    pub fn first(&mut self, is_live: impl Fn(&ExtentKey, u64) -> bool) -> Option<ExtentKey> {
        while let Some(&(serial, key)) = self.entries.front() {
            if is_live(&key, serial) {
                return Some(key);
            }
            self.entries.pop_front();
        }
        None
    }

    /// Compacts the list once the stale entries outnumber the `live` ones by `stale_max`.
    pub fn compact(
        &mut self,
        live: usize,
        stale_max: usize,
        is_live: impl Fn(&ExtentKey, u64) -> bool,
    ) {
        if self.entries.len() > 2 * live + stale_max {
            self.entries.retain(|(serial, key)| is_live(key, *serial));
        }
    }

    /// Returns the names with their entries' serial numbers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentKey, u64)> {
        self.entries.iter().map(|&(serial, key)| (key, serial))
    }

    /// The number of entries, with the stale ones.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
