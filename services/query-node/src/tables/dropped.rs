//! Index segments that a newer version of a table has dropped, until the I/O nodes evict the blocks of their files.
//!
//! A segment waits for [`RELEASE_AFTER`], and longer while a version that this node has open names it. Segments are
//! forgotten when the node stops: their blocks are then evicted like other extents that are not read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lake::{DroppedSegment, Lake};
use tokio::time::Instant;

use super::open::OpenTable;

/// The time from a version that lacks a segment until the segment's files are released. Other query nodes follow the
/// table within seconds, and requests under way still use the version before.
pub const RELEASE_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of segments that wait. They take about 1 MB. The oldest ones make room.
const WAITING_MAX: usize = 1024;

/// The segments that wait, in the order in which they were dropped.
#[derive(Default)]
pub struct DroppedSegments {
    waiting: Mutex<VecDeque<(Instant, DroppedSegment)>>,
}

impl DroppedSegments {
    /// Notes segments that were dropped at `now`.
    pub fn note(&self, segments: Vec<DroppedSegment>, now: Instant) {
        let mut waiting = self.waiting();
        for segment in segments {
            // Branches that have a segment in common drop it one after the other.
            waiting.retain(|(_, other)| *other != segment);
            waiting.push_back((now, segment));
            if waiting.len() > WAITING_MAX {
                waiting.pop_front();
            }
        }
    }

    /// Releases the segments that were dropped `after` ago, except those that an open version names: they wait anew.
    pub async fn release(
        &self,
        lake: &Lake,
        after: Duration,
        open_versions: impl Fn() -> Vec<Arc<OpenTable>>,
    ) {
        let due = self.take_due(Instant::now(), after);
        if due.is_empty() {
            return;
        }
        let (open, mut in_use) = (open_versions(), Vec::new());
        for segment in due {
            match is_named(&segment, &open).await {
                true => in_use.push(segment),
                false => lake.release(&segment).await,
            }
        }
        self.note(in_use, Instant::now());
    }

    fn take_due(&self, now: Instant, after: Duration) -> Vec<DroppedSegment> {
        let mut waiting = self.waiting();
        let due = waiting.partition_point(|(dropped, _)| *dropped + after <= now);
        waiting.drain(..due).map(|(_, segment)| segment).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Instant, DroppedSegment)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether one of these versions has the segment, or may have it.
async fn is_named(segment: &DroppedSegment, open: &[Arc<OpenTable>]) -> bool {
    for version in open {
        if version.stored.has_segment(segment).await.unwrap_or(true) {
            return true;
        }
    }
    false
}
