//! Keeps the allow-lists of all tables, and the filters that are evaluated for single rows, within a bound of memory.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use moka::sync::Cache;
use tables::CacheUse;
use tokio::sync::OnceCell;

use super::allow_list::AllowList;
use super::checked::CheckedFilter;
use super::narrowing::Narrowing;
use crate::error::Result;

/// A list that no search has used for this long is dropped. Soon after a newer version of a table is open, hardly any
/// search uses the lists of its older versions.
const IDLE: Duration = Duration::from_secs(600);

/// The approximate size of an entry without its filter and its list, in bytes.
const ENTRY_BYTES: usize = 256;

/// The number of an open table (`Table::open_id`), and the filter or narrowing whose rows are listed.
type Key = (u64, Listed);

/// The filter or narrowing whose rows an allow-list has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Listed {
    /// A filter, by its text.
    Filter(Arc<str>),
    /// A query of scalar indexes that answers a part of one or more filters.
    Narrowing(Arc<Narrowing>),
}

impl From<&str> for Listed {
    fn from(filter: &str) -> Self {
        Self::Filter(filter.into())
    }
}

impl From<&Arc<Narrowing>> for Listed {
    fn from(narrowing: &Arc<Narrowing>) -> Self {
        Self::Narrowing(Arc::clone(narrowing))
    }
}

impl Listed {
    fn bytes(&self) -> usize {
        match self {
            Self::Filter(text) => text.len(),
            Self::Narrowing(narrowing) => narrowing.bytes(),
        }
    }
}

/// The list of a filter or narrowing, and a filter's form for single rows. The first search that needs one of them
/// makes it, and concurrent searches wait for it.
#[derive(Default)]
struct Known {
    list: OnceCell<Arc<AllowList>>,
    /// The filter in the form in which it is evaluated for single rows; `None` if it has no such form.
    checked: OnceCell<Option<Arc<CheckedFilter>>>,
}

impl Known {
    /// Returns the same without the list. That a search has had the list made stays known, so that no other search has
    /// it made in the background again.
    fn without_list(&self) -> Slot {
        Arc::new(Self { list: OnceCell::new(), checked: self.checked.clone() })
    }
}

type Slot = Arc<Known>;

/// The allow-lists of all tables. The lists that were used least are dropped first.
pub(crate) struct AllowLists {
    lists: Cache<Key, Slot>,
    bytes_max: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl AllowLists {
    /// Creates a cache without lists. Uses neither disk nor network.
    pub fn new(bytes_max: u64) -> Self {
        let bytes = |(_, listed): &Key, slot: &Slot| {
            let list = slot.list.get().map_or(0, |list| list.bytes());
            let checked = slot.checked.get().and_then(Option::as_ref).map_or(0, |it| it.bytes());
            u32::try_from(ENTRY_BYTES + listed.bytes() + list + checked).unwrap_or(u32::MAX)
        };
        let lists =
            Cache::builder().max_capacity(bytes_max).weigher(bytes).time_to_idle(IDLE).build();
        Self { lists, bytes_max, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Returns the list of `filter` if it is kept.
    pub fn get(&self, table: u64, filter: &str) -> Option<Arc<AllowList>> {
        self.kept(&(table, filter.into()))
    }

    fn kept(&self, key: &Key) -> Option<Arc<AllowList>> {
        let list = self.lists.get(key)?.list.get().cloned();
        self.hits.fetch_add(u64::from(list.is_some()), Relaxed);
        list
    }

    /// Returns the list of the rows of `listed`. Makes it with `make` if it is not kept; concurrent calls make it once.
    /// Returns `None` if `make` does.
    ///
    /// Errors: those of `make`.
    pub async fn get_or_make(
        &self,
        table: u64,
        listed: impl Into<Listed>,
        make: impl Future<Output = Result<Option<AllowList>>>,
    ) -> Result<Option<Arc<AllowList>>> {
        let key = (table, listed.into());
        if let Some(list) = self.kept(&key) {
            return Ok(Some(list));
        }
        let slot = self.lists.get_with_by_ref(&key, Slot::default);
        let make = || async {
            self.misses.fetch_add(1, Relaxed);
            make.await.map_err(Some)?.map(Arc::new).ok_or(None)
        };
        match slot.list.get_or_try_init(make).await.cloned() {
            Ok(list) => {
                let is_kept = self.has_room_for(&list);
                let new = if is_kept { Arc::clone(&slot) } else { slot.without_list() };
                self.replace(&key, &slot, new);
                Ok(Some(list))
            }
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// Returns whether `list` is small enough to be kept. Once a search has set its `of_columns`, it takes about twice
    /// the memory: a list that exceeded the bound only then would displace all other lists.
    pub fn has_room_for(&self, list: &AllowList) -> bool {
        2 * list.bytes() as u64 <= self.bytes_max
    }

    /// Returns whether the list of `filter` is kept.
    pub fn knows(&self, table: u64, filter: &str) -> bool {
        let slot = self.lists.get(&(table, filter.into()));
        slot.is_some_and(|slot| slot.list.get().is_some())
    }

    /// Returns `filter` in the form in which it is evaluated for single rows. Makes it with `make` if it is not kept.
    /// Returns `None` if `make` does.
    ///
    /// Errors: those of `make`.
    pub async fn checked(
        &self,
        table: u64,
        filter: &str,
        make: impl Future<Output = Result<Option<CheckedFilter>>>,
    ) -> Result<Option<Arc<CheckedFilter>>> {
        let key = (table, filter.into());
        let slot = self.lists.get_with_by_ref(&key, Slot::default);
        let is_known = slot.checked.initialized();
        let make = || async { Ok(make.await?.map(Arc::new)) };
        let checked = slot.checked.get_or_try_init(make).await?.clone();
        if !is_known {
            self.replace(&key, &slot, Arc::clone(&slot));
        }
        Ok(checked)
    }

    /// Puts `new` in the place of `slot`, and counts the memory that `new` takes now. Does nothing if `slot` was
    /// dropped meanwhile: a newer slot in its place may have the list.
    fn replace(&self, key: &Key, slot: &Slot, new: Slot) {
        if self.lists.get(key).is_some_and(|kept| Arc::ptr_eq(&kept, slot)) {
            self.lists.insert(key.clone(), new);
        }
    }

    /// Counts the memory of a list anew. The memory grows when a search sets the list's `of_columns`. A list that then
    /// exceeds the bound is dropped: kept, it would displace all other lists first.
    pub fn weigh(&self, table: u64, listed: impl Into<Listed>) {
        let key = (table, listed.into());
        if let Some(slot) = self.lists.get(&key) {
            let bytes = slot.list.get().map_or(0, |list| list.bytes() as u64);
            self.lists
                .insert(key, if bytes <= self.bytes_max { slot } else { slot.without_list() });
        }
    }

    /// The use of this cache.
    pub fn cache_use(&self) -> CacheUse {
        CacheUse {
            name: "filter",
            bytes: self.lists.weighted_size(),
            bytes_max: self.bytes_max,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }
}
