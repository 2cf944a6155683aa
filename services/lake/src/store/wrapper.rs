//! Where Lance hands its stores over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lance_io::object_store::WrappingObjectStore;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

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

/// Whether this is a folder.
fn is_local(store: &str) -> bool {
    store.starts_with("file")
}

impl WrappingObjectStore for Guard {
    fn wrap(&self, store: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        match is_local(store) {
            true => original,
            false => Arc::new(GuardedStore::new(original, self.gate(store))),
        }
    }

    fn wrap_paginated(
        &self,
        store: &str,
        original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        match is_local(store) {
            true => Some(original),
            false => Some(Arc::new(CountedListing::new(original, self.gate(store)))),
        }
    }
}
