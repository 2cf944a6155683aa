//! Index segments that a newer version of a table has dropped, until the I/O nodes evict the blocks of their files.
//!
//! A segment waits for [`RELEASE_AFTER`], and longer while a version that this node has open names it. If an I/O node
//! does not answer, the segment waits anew, and is given up after [`TRIES_MAX`] tries. Segments are forgotten when the
//! node stops. Blocks that are not released are evicted like other extents that are not read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lake::{DroppedSegment, Lake, Table};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::open::OpenTable;

/// The time from a version that lacks a segment until the segment's files are released. Other query nodes follow the
/// table within seconds, and requests under way still use the version before.
pub const RELEASE_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of files of all segments that wait. They take about 4 MB. The oldest segments make room.
const FILES_MAX: usize = 16_384;

/// The maximum number of times that the files of a segment are released if not every I/O node answers.
const TRIES_MAX: u32 = 3;

/// The segments that wait, in the order in which they began to wait.
#[derive(Default)]
pub struct DroppedSegments {
    waiting: Mutex<VecDeque<Waiting>>,
}

/// A segment that waits.
struct Waiting {
    since: Instant,
    segment: DroppedSegment,
    /// The number of earlier releases of its files that not every I/O node answered.
    tries: u32,
}

impl DroppedSegments {
    /// Notes the segments of the table `name` that its version `before` has, and its version `after` has not. Never
    /// fails: an error is logged.
    pub async fn compare(&self, name: &str, before: &Table, after: &Table) {
        match after.segments_dropped_since(before).await {
            Ok(segments) => segments.into_iter().for_each(|segment| self.wait(segment, 0)),
            Err(error) => warn!(table = name, "files of dropped indexes are not known: {error}"),
        }
    }

    /// Releases the segments that were dropped `after` ago, except those that an open version names: they wait anew.
    pub async fn release(
        &self,
        lake: &Lake,
        after: Duration,
        open_versions: impl Fn() -> Vec<Arc<OpenTable>>,
    ) {
        let due = self.take_due(after);
        if due.is_empty() {
            return;
        }
        let open = open_versions();
        for Waiting { segment, tries, .. } in due {
            if is_named(&segment, &open).await {
                self.wait(segment, tries);
            } else if !lake.release(&segment).await {
                match tries + 1 < TRIES_MAX {
                    true => self.wait(segment, tries + 1),
                    false => debug!(?segment, "not released by all I/O nodes: given up"),
                }
            }
        }
    }

    /// Has a segment wait from now on.
    fn wait(&self, segment: DroppedSegment, tries: u32) {
        // A segment that has no file has nothing to release.
        if segment.file_count() == 0 {
            return;
        }
        let mut waiting = self.waiting();
        // Branches that have a segment in common drop it one after the other.
        waiting.retain(|other| other.segment != segment);
        waiting.push_back(Waiting { since: Instant::now(), segment, tries });
        let mut files: usize = waiting.iter().map(|it| it.segment.file_count()).sum();
        while files > FILES_MAX
            && let Some(Waiting { segment, .. }) = waiting.pop_front()
        {
            files -= segment.file_count();
            warn!(
                table = %segment.table(),
                files = segment.file_count(),
                "more than {FILES_MAX} files of dropped indexes wait to be released: the oldest ones are forgotten, \
                 and evicted when other extents need their space"
            );
        }
    }

    fn take_due(&self, after: Duration) -> Vec<Waiting> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let due = waiting.partition_point(|it| it.since + after <= now);
        waiting.drain(..due).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
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

#[cfg(test)]
mod tests {
    use lake::{FilePath, TableUri};

    use super::*;

    fn segment(id: usize, files: usize) -> DroppedSegment {
        let path = |at| FilePath::parse(&format!("_indices/{id}/{at}")).unwrap();
        let files = (0..files).map(|at| (path(at), 7)).collect();
        DroppedSegment::new(TableUri::parse("s3://b/t").unwrap(), id.to_string(), files)
    }

    fn taken(dropped: &DroppedSegments, after: Duration) -> Vec<(DroppedSegment, u32)> {
        dropped.take_due(after).into_iter().map(|it| (it.segment, it.tries)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn segments_wait_from_when_they_were_dropped_last_and_the_oldest_make_room() {
        let (dropped, after) = (DroppedSegments::default(), Duration::from_secs(10));
        let drop = |id, files, tries| dropped.wait(segment(id, files), tries);
        drop(1, FILES_MAX - 3, 0);
        drop(2, 3, 0);
        drop(9, 0, 0);
        tokio::time::advance(after).await;
        // It is dropped again, by a branch.
        drop(1, FILES_MAX - 3, 1);
        assert_eq!(taken(&dropped, after), [(segment(2, 3), 0)]);
        tokio::time::advance(after).await;
        drop(3, 3, 0);
        drop(4, 1, 0);
        assert_eq!(taken(&dropped, after), [], "4 files more make the first segment's too many");
        tokio::time::advance(after).await;
        assert_eq!(taken(&dropped, after), [(segment(3, 3), 0), (segment(4, 1), 0)]);
    }
}
