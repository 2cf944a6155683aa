//! The branches of tables that are open.
//!
//! A branch is opened by the first request for it, and closed when nobody has asked for it for a while, like a table of
//! a folder. A name that is no branch's is not kept, so callers can't fill the list with names.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lake::BranchName;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use wire::Fault;

use super::entry::Entry;

/// The maximum number of branches that are open. Each costs two requests to its store every `refresh_interval`.
const OPEN_MAX: u32 = 128;

/// The maximum number of fragments of all open branches. Each takes one or two KiB. A branch counts as at least
/// `FRAGMENTS_MAX / OPEN_MAX` fragments, which bounds the number of branches, and as at most half of the maximum, so
/// that even the largest can be open.
const FRAGMENTS_MAX: u32 = 100_000;

/// A branch that nobody has asked for in this time is closed. The tables of folders have the same time by default
/// (`idle.rs`).
const IDLE: Duration = Duration::from_secs(600);

/// The number of a table's entry ([`Entry::id`]), and the name of a branch of the table.
pub type BranchKey = (u64, BranchName);

/// The branches that are open.
pub struct Branches {
    open: Cache<BranchKey, Arc<Entry>>,
}

impl Branches {
    /// Creates an empty list.
    pub fn new() -> Self {
        let open = Cache::builder()
            .max_capacity(FRAGMENTS_MAX.into())
            .weigher(|_: &BranchKey, entry: &Arc<Entry>| weight(entry))
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(IDLE);
        Self { open: open.build() }
    }

    /// Returns a branch. If it is not open, `open` opens it, once for all requests that wait for it.
    ///
    /// # Errors
    /// The error of `open`.
    pub async fn get_or_open(
        &self,
        key: BranchKey,
        open: impl Future<Output = Result<Arc<Entry>, Fault>>,
    ) -> Result<Arc<Entry>, Fault> {
        let opened = self.open.try_get_with(key, open).await;
        opened.map_err(|fault: Arc<Fault>| Fault::clone(&fault))
    }

    /// Returns a branch that is open.
    pub async fn get(&self, key: &BranchKey) -> Option<Arc<Entry>> {
        self.open.get(key).await
    }

    /// Returns all open branches. This does not count as a use that keeps them open.
    pub fn all(&self) -> Vec<(BranchKey, Arc<Entry>)> {
        self.open.iter().map(|(key, entry)| (BranchKey::clone(&key), entry)).collect()
    }

    /// Weighs an open branch again, after its latest version has changed. The cache itself weighs a branch only when it
    /// is inserted. If the weight is still `before`, this does nothing, since an insertion counts as a use.
    pub async fn weigh_again(&self, key: &BranchKey, entry: &Arc<Entry>, before: u32) {
        if weight(entry) != before && self.open.contains_key(key) {
            self.open.insert(key.clone(), Arc::clone(entry)).await;
        }
    }

    /// Closes a branch, which was deleted. Requests that run keep what they use.
    pub async fn close(&self, key: &BranchKey) {
        self.open.invalidate(key).await;
    }
}

/// Returns the number of fragments that a branch counts as.
pub fn weight(entry: &Entry) -> u32 {
    let current = entry.state().current.clone();
    let fragments = current.map_or(0, |open| open.table.fragments().len());
    let fragments = u32::try_from(fragments).unwrap_or(u32::MAX);
    fragments.clamp(FRAGMENTS_MAX / OPEN_MAX, FRAGMENTS_MAX / 2)
}
