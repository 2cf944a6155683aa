//! The branches of tables that are open.
//!
//! A branch is opened by the first request for it, and closed when nobody has asked for it for a while, like a table of
//! a folder. A name that is no branch's never takes the place of an open branch. It is remembered for a short time, so
//! that requests that repeat it do not cost a request to the store each.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lake::BranchName;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use wire::{Fault, Reason};

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

/// The maximum number of remembered names that are no branches. Each takes about 1 KiB.
const ABSENT_MAX: u64 = 1024;

/// The number of a table's entry ([`Entry::id`]), and the name of a branch of the table.
pub type BranchKey = (u64, BranchName);

/// The branches that are open.
pub struct Branches {
    open: Cache<BranchKey, Arc<Entry>>,
    /// Names that were no branch's a moment ago, with the error for requests that use them.
    absent: Cache<BranchKey, Fault>,
}

impl Branches {
    /// Creates an empty list. A branch that is created after a request for it is found after `absent_for` at most.
    pub fn new(absent_for: Duration) -> Self {
        let open = Cache::builder()
            .max_capacity(FRAGMENTS_MAX.into())
            .weigher(|_: &BranchKey, entry: &Arc<Entry>| weight(entry))
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(IDLE);
        let absent = Cache::builder().max_capacity(ABSENT_MAX).time_to_live(absent_for);
        Self { open: open.build(), absent: absent.build() }
    }

    /// Returns a branch. If it is not open, `open` opens it, once for all requests that wait for it. If `open` has just
    /// found that there is no such branch, this fails with the same error.
    ///
    /// # Errors
    /// The error of `open`.
    pub async fn get_or_open(
        &self,
        key: BranchKey,
        open: impl Future<Output = Result<Arc<Entry>, Fault>>,
    ) -> Result<Arc<Entry>, Fault> {
        let opening = async {
            if let Some(fault) = self.absent.get(&key).await {
                return Err(fault);
            }
            let opened = open.await;
            if let Err(fault) = &opened
                && is_absent(fault)
            {
                self.absent.insert(key.clone(), fault.clone()).await;
            }
            opened
        };
        let opened = self.open.try_get_with(key.clone(), opening).await;
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

    /// Closes a branch that was deleted. Requests that run keep what they use.
    pub async fn close(&self, key: &BranchKey) {
        self.open.invalidate(key).await;
    }
}

/// Returns whether a fault says that the table exists and has no such branch.
fn is_absent(fault: &Fault) -> bool {
    fault.reason == Reason::VersionNotFound && fault.metadata.contains_key("branch")
}

/// Returns the number of fragments that a branch counts as.
pub fn weight(entry: &Entry) -> u32 {
    let current = entry.state().current.clone();
    let fragments = current.map_or(0, |open| open.table.fragments().len());
    let fragments = u32::try_from(fragments).unwrap_or(u32::MAX);
    fragments.clamp(FRAGMENTS_MAX / OPEN_MAX, FRAGMENTS_MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent() -> Fault {
        Fault::new(Reason::VersionNotFound, "<t> has no branch `b`").with("branch", "b")
    }

    /// Asks for a branch that can't be opened, and returns whether the store was asked.
    async fn asks_store(branches: &Branches, key: &BranchKey, fault: Fault) -> bool {
        let mut is_asked = false;
        let open = async {
            is_asked = true;
            Err(fault.clone())
        };
        assert_eq!(branches.get_or_open(key.clone(), open).await.err(), Some(fault.clone()));
        is_asked
    }

    #[tokio::test]
    async fn an_absent_branch_is_looked_for_once_in_a_while() {
        let branches = Branches::new(Duration::from_secs(1));
        let key = |table| (table, BranchName::of_request("b").unwrap().unwrap());
        assert!(asks_store(&branches, &key(1), absent()).await);
        for _ in 0..100 {
            assert!(!asks_store(&branches, &key(1), absent()).await);
        }
        assert!(asks_store(&branches, &key(2), absent()).await, "another table may have it");
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(asks_store(&branches, &key(1), absent()).await);
    }

    #[tokio::test]
    async fn only_absence_is_remembered() {
        let branches = Branches::new(Duration::from_secs(60));
        let key = (1, BranchName::of_request("b").unwrap().unwrap());
        for fault in [
            Fault::new(Reason::StoreUnreachable, "away"),
            Fault::new(Reason::TableNotFound, "no table `t`"),
            Fault::new(Reason::VersionNotFound, "no version 7").with("version", 7),
        ] {
            assert!(asks_store(&branches, &key, fault.clone()).await, "{fault}");
            assert!(asks_store(&branches, &key, fault.clone()).await, "{fault}");
        }
    }
}
