//! Wraps the stores that Lance makes for a table in the layers of this folder. Each table has a fence of its own: the
//! paths that may be read (`fence.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lance_io::object_store::WrappingObjectStore;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

use super::bucket_fence::BucketFence;
use super::cached::{CachedStore, FileCache, FileCacheSlot};
use super::checked::CheckedStore;
use super::fence::Fence;
use super::folder::FolderStore;
use super::guarded::GuardedStore;
use super::limiter::StoreLimiter;
use super::listing::CountedListing;
use super::manifest_reads::ManifestReads;
use super::usage::StoreUsage;
use stores::StoreLimits;
use tables::TableUri;

/// Guards all stores of a [`Lake`](crate::Lake).
#[derive(Debug)]
pub struct Guard {
    limits: StoreLimits,
    usage: Arc<StoreUsage>,
    /// The limiters by Lance's names for the stores. Lance may wrap a store several times, and all wrappers of a store
    /// share one limiter.
    limiters: Mutex<HashMap<String, Arc<StoreLimiter>>>,
    /// The cache of index and deletion files, once there is one.
    cache: FileCacheSlot,
    /// Manifests of tables in buckets that were just read.
    manifests: ManifestReads,
}

impl Guard {
    /// A guard that counts requests in `usage`.
    pub fn new(limits: StoreLimits, usage: Arc<StoreUsage>) -> Self {
        let (limiters, cache) = Default::default();
        Self { limits, usage, limiters, cache, manifests: ManifestReads::new() }
    }

    /// Reads index and deletion files of tables in buckets through `cache` from now on. Only the first call has an
    /// effect.
    pub fn read_files_through(&self, cache: Arc<dyn FileCache>) {
        let _ = self.cache.set(cache);
    }

    /// The cache of index and deletion files; `None` if there is none.
    pub fn file_cache(&self) -> Option<&dyn FileCache> {
        self.cache.get().map(Arc::as_ref)
    }

    fn limiter(&self, store: &str) -> Arc<StoreLimiter> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(StoreLimiter::new(store, &self.limits, Arc::clone(&self.usage)));
        Arc::clone(limiters.entry(store.to_owned()).or_insert_with(new))
    }
}

/// Guards the stores of one table, or the store in which a folder of tables is listed.
#[derive(Debug)]
pub struct TableGuard {
    guard: Arc<Guard>,
    /// The table whose files may be read from the cache; `None` for a folder of tables.
    table: Option<TableUri>,
    fence: Fence,
}

impl TableGuard {
    /// A guard with the limiters of `guard`, for a table or a folder with `fence`.
    pub fn new(guard: Arc<Guard>, table: Option<TableUri>, fence: Fence) -> Self {
        Self { guard, table, fence }
    }
}

/// Returns whether Lance's name of a store is that of the folders.
fn is_local(store: &str) -> bool {
    store.starts_with("file")
}

/// Returns the beginning of a store's URIs. `store` is Lance's name of the store: `s3$bucket`, `az$container@account`.
fn root(store: &str) -> String {
    let (scheme, bucket) = store.split_once('$').unwrap_or((store, ""));
    let (bucket, _) = bucket.split_once('@').unwrap_or((bucket, ""));
    format!("{scheme}://{bucket}")
}

impl WrappingObjectStore for TableGuard {
    fn wrap(&self, store: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let fence = self.fence.clone();
        let fenced: Arc<dyn ObjectStore> = match is_local(store) {
            true => Arc::new(FolderStore::new(original, fence)),
            false => {
                let root = root(store);
                let fence = BucketFence::new(fence, &root);
                let guarded = GuardedStore::new(original, self.guard.limiter(store), fence);
                let guarded = Arc::new(guarded);
                match &self.table {
                    None => guarded,
                    Some(table) => {
                        let Guard { cache, usage, manifests, .. } = &*self.guard;
                        let (cache, usage) = (Arc::clone(cache), Arc::clone(usage));
                        let manifests = manifests.clone();
                        Arc::new(CachedStore::new(guarded, &root, table, cache, usage, manifests))
                    }
                }
            }
        };
        Arc::new(CheckedStore::new(fenced))
    }

    fn wrap_paginated(
        &self,
        store: &str,
        original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        if is_local(store) {
            // Paged listings would bypass the wrapped store.
            return None;
        }
        let fence = BucketFence::new(self.fence.clone(), &root(store));
        Some(Arc::new(CountedListing::new(original, self.guard.limiter(store), fence)))
    }
}
