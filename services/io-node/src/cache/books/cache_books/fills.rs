//! Fills from their request to their end: which requests start a fill, when its chunk is scanned, and when a failed
//! fill may be tried again.

use std::time::Duration;

use address::{ExtentKey, SECTOR_BYTES};
use tokio::time::Instant;

use super::{CacheBooks, FULL, NO_DRIVE};
use crate::cache::books::events::{Action, EXTENT_BYTES_END, FillOutcome, RequestOutcome};

/// After a chunk's first failed fill, misses do not request the chunk again for this long. The delay doubles with each
/// further failure.
const HOLD_OFF_MIN: Duration = Duration::from_secs(1);

/// The maximum time for which misses do not request a chunk again after its last failed fill. Once the delay has grown
/// to this, misses of a chunk that can never be filled cost at most one scan in 5 minutes.
const HOLD_OFF_MAX: Duration = Duration::from_secs(300);

/// The maximum number of entries of `CacheBooks::failed`, and of `CacheBooks::too_long`. A full map is cleared before
/// the next entry is added, so the chunks in it may be tried again. A full map takes less than 10 MB.
const FAILED_MAX: usize = 1 << 16;

impl CacheBooks {
    /// Handles a request to fill a chunk. `scan_bytes` is the approximate number of bytes of the chunk's scan; `None`
    /// if it can't be scanned together with its neighbours. `is_awaited` distinguishes a warm, whose caller waits for
    /// the outcome, from a miss. A later [`apply`](Self::apply) returns the action to scan the chunk.
    pub fn request(
        &mut self,
        key: ExtentKey,
        scan_bytes: Option<u64>,
        is_awaited: bool,
        now: Instant,
    ) -> RequestOutcome {
        let failed = |why: &str| RequestOutcome::Ended(FillOutcome::Failed(why.into()));
        if self.segments.is_closed() {
            return failed(NO_DRIVE);
        }
        if self.placed.contains(key) {
            return RequestOutcome::Ended(FillOutcome::Found);
        }
        if self.under_way.contains(&key) {
            return RequestOutcome::Joined;
        }
        if self.shares.is_full(key) {
            return failed(FULL);
        }
        if let Some(&bytes) = self.too_long.get(&key) {
            return failed(&self.why_too_long(key, bytes));
        }
        // Soon after a failed fill, a miss does not request the chunk again. A warm, whose caller waits, does.
        if !is_awaited && self.failed.get(&key).is_some_and(|(until, _)| *until > now) {
            return RequestOutcome::Ignored;
        }
        // Without this limit, misses of one table would fill the queue. The next miss of the chunk requests the fill
        // again.
        if !is_awaited && !self.waiting.has_room(key, self.limits.queue_max) {
            return RequestOutcome::Ignored;
        }
        self.under_way.insert(key);
        self.waiting.push(key, scan_bytes);
        RequestOutcome::Queued
    }

    /// Starts to scan waiting chunks, up to the maximum number of fills.
    pub(super) fn start_scans(&mut self, now: Instant) {
        // A scan counts once towards `fills_max`, however many chunks it has. Afterwards each extent counts until it is
        // written, because it is in memory that long.
        while self.scanning + self.awaiting_space.len() as u64 + self.writing.iter().sum::<u64>()
            < self.limits.fills_max as u64
        {
            let Some(run) = self.waiting.pop() else { break };
            if self.segments.is_closed() {
                for key in run {
                    self.end(key, FillOutcome::Failed(NO_DRIVE.into()), now);
                }
                continue;
            }
            self.scanning += 1;
            self.counts.scans += 1;
            self.actions.push(Action::Scan(run));
        }
    }

    /// Fails a fill whose extent is longer than a segment or than its table's quota, and records the chunk so that
    /// later requests fail at once.
    pub(super) fn end_too_long(&mut self, key: ExtentKey, bytes: u64, now: Instant) {
        if self.too_long.len() >= FAILED_MAX {
            self.too_long.clear();
        }
        self.too_long.insert(key, bytes);
        self.end(key, FillOutcome::Failed(self.why_too_long(key, bytes).into()), now);
    }

    /// Returns the error text for a chunk that is longer than its table's quota, or longer than a segment.
    fn why_too_long(&self, key: ExtentKey, bytes: u64) -> String {
        if bytes >= EXTENT_BYTES_END {
            return "a chunk doesn't fit an extent of 4 GiB, or has a list of 2^30 items: its rows come from the \
                    table; write it with fewer rows in a fragment"
                .to_owned();
        }
        let quota_bytes =
            self.shares.quota(key).map(|quota| quota.saturating_mul(SECTOR_BYTES as u64));
        match quota_bytes.filter(|&quota| bytes > quota) {
            Some(quota) => format!(
                "a chunk of at least {bytes} bytes is longer than its table's `maximum` of {quota} bytes: its \
                 rows come from the table; raise `maximum` in `shares`"
            ),
            None => format!(
                "a chunk of at least {bytes} bytes doesn't fit a segment of {}: its rows come from the table; \
                 raise `segment`, which empties the drives",
                self.segment_bytes()
            ),
        }
    }

    /// Delays the next attempt to fill a chunk that could not be filled, so that misses do not scan it again at once.
    fn hold_off(&mut self, key: ExtentKey, now: Instant) {
        if self.failed.len() >= FAILED_MAX {
            self.failed.clear();
        }
        let last = self.failed.get(&key).map_or(HOLD_OFF_MIN / 2, |(_, last)| *last);
        let next = (last * 2).min(HOLD_OFF_MAX);
        self.failed.insert(key, (now + next, next));
    }

    /// Ends a fill: counts it, and reports its outcome.
    pub(super) fn end(&mut self, key: ExtentKey, outcome: FillOutcome, now: Instant) {
        match &outcome {
            FillOutcome::Failed(why) => {
                tracing::warn!(extent = ?key, why = %why, "a chunk can't be filled");
                self.hold_off(key, now);
                self.counts.failed += 1;
            }
            FillOutcome::Found | FillOutcome::Filled(_) => {
                self.failed.remove(&key);
                self.counts.done += 1;
            }
        }
        assert!(self.under_way.remove(&key), "the fill of {key:?} ended that was not under way");
        self.actions.push(Action::End(key, outcome));
    }
}
