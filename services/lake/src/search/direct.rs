//! Indexes that are searched directly, without the scanner. The scanner plans each query anew, which for one row costs
//! more than the search itself.
//!
//! An index is opened once per version and column, and only if it can be searched without the scanner (`coverage.rs`,
//! `vector/open_partitions.rs` and `keys/sole_segment.rs` decide). Other searches go through the scanner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use super::keys::KeyBtree;
use super::plan_reason::PlanReason;
use super::text::TextIndex;
use super::vector::Partitions;

/// A column's indexes that are searched directly. The first search that may use an index fills its cell: with the open
/// index or, if the index can't be searched directly, with `None` or the reason.
#[derive(Default)]
pub(crate) struct DirectIndexes {
    pub partitions: OnceCell<Result<Partitions, PlanReason>>,
    pub text_index: OnceCell<Result<TextIndex, PlanReason>>,
    pub key_btree: OnceCell<Option<KeyBtree>>,
    /// Whether a failure to open `key_btree` was logged. Opening is retried, but its failure is logged only once.
    pub key_btree_failed: AtomicBool,
    /// Whether the column's indexes are in use. Shared with the versions before and after (`Table::newer`), since a
    /// version may be replaced before anybody searches it.
    is_used: Arc<AtomicBool>,
}

impl DirectIndexes {
    /// Returns the indexes of the same column in the next version, none of which is open yet.
    pub fn of_next_version(&self) -> Self {
        Self { is_used: Arc::clone(&self.is_used), ..Self::default() }
    }

    /// Notes that a search, a filter or a look-up uses an index of the column.
    pub fn note_use(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Returns whether a search, a filter or a look-up has used an index of the column, in this version or in one that
    /// it followed.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}
