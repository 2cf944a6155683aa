//! Where Lance hands its stores over, those of each table to a guard of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lance_io::object_store::WrappingObjectStore;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::path::Path;

use super::checked::CheckedStore;
use super::fence::Fence;
use super::folder::FolderStore;
use super::gate::Gate;
use super::guarded::GuardedStore;
use super::listing::CountedListing;
use super::usage::StoreUsage;
use tables::StoreLimits;

/// Guards all stores of a [`Lake`](crate::Lake).
#[derive(Debug)]
pub struct Guard {
    limits: StoreLimits,
    usage: Arc<StoreUsage>,
    /// By Lance's name for the store: it wraps one again whenever it has forgotten it.
    gates: Mutex<HashMap<String, Arc<Gate>>>,
}

impl Guard {
    /// Counts into `usage`.
    pub fn new(limits: StoreLimits, usage: Arc<StoreUsage>) -> Self {
        Self { limits, usage, gates: Mutex::default() }
    }

    fn gate(&self, store: &str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Gate::new(store, &self.limits, Arc::clone(&self.usage)));
        Arc::clone(gates.entry(store.to_owned()).or_insert_with(new))
    }
}

/// Guards the stores of one table.
#[derive(Debug)]
pub struct TableGuard {
    guard: Arc<Guard>,
    fence: Fence,
}

impl TableGuard {
    /// With the limits of `guard`, within `fence`.
    pub fn new(guard: Arc<Guard>, fence: Fence) -> Self {
        Self { guard, fence }
    }
}

/// Whether this is a folder.
fn is_local(store: &str) -> bool {
    store.starts_with("file")
}

/// How the URIs of a store begin that Lance has this name for: `s3$bucket`, `az$container@account`.
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
                let within = Within { fence, root: root(store).into() };
                Arc::new(GuardedStore::new(original, self.guard.gate(store), within))
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
            // Would be read past the wrapped store.
            return None;
        }
        let within = Within { fence: self.fence.clone(), root: root(store).into() };
        Some(Arc::new(CountedListing::new(original, self.guard.gate(store), within)))
    }
}

/// What a table may ask a bucket for.
#[derive(Clone, Debug)]
pub struct Within {
    fence: Fence,
    /// `scheme://bucket`.
    root: Arc<str>,
}

impl Within {
    /// Lets a request for an object, or for what is below a path, pass.
    pub fn check(&self, location: &Path) -> object_store::Result<()> {
        self.check_prefix(location.as_ref())
    }

    /// The same for the bare text of a listing's prefix.
    pub fn check_prefix(&self, prefix: &str) -> object_store::Result<()> {
        let place = format!("{}/{prefix}", self.root);
        Ok(self.fence.check(place.trim_end_matches('/'))?)
    }

    /// Lets everything pass.
    #[cfg(test)]
    pub fn everything() -> Self {
        Self { fence: Fence::of_option("x:"), root: "x:".into() }
    }
}
