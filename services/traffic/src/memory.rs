//! One core's memory for its callers.
//!
//! Credits bound the rows of a stream, not their bytes, nor the number of streams; this bounds what a core holds for
//! all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::holder::Holder;
use crate::waiting::{StreamRoom, WAITING_KEPT};

/// The state of one HTTP/2 connection: hyper's and h2's structures, read and write buffers.
const CONNECTION_BYTES: u64 = 32 << 10;

/// The smallest HTTP/2 window, its default, and the largest: 256 KiB carry 250 MB/s at a round trip of 1 ms, and a
/// request is seldom larger.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 256 << 10;

/// A window is at most this part of a core's memory, so that hundreds of connections fit even where it is small.
const WINDOW_PART: u64 = 2048;

/// Connections that hold less than this are never ended for others' sake: little would be won.
const STALLED_BYTES_MIN: u64 = 64 << 10;

/// A peak that leaves less than this behind is not worth the allocator's time.
const PEAK_BYTES_MIN: u64 = 64 << 20;

/// Between two looks for connections that have stalled. A flood of refusals must not cost a look each.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The HTTP/2 window of a connection, and of each of its streams, on a core whose callers may hold `max` bytes.
pub fn window_bytes(max: u64) -> u32 {
    (max / WINDOW_PART).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX) as u32
}

/// What a connection is charged on such a core: its state, and a full window of bytes that nobody has read.
pub fn connection_bytes(max: u64) -> u64 {
    CONNECTION_BYTES + u64::from(window_bytes(max))
}

/// What a core's callers may hold, and do. Taken from on the core's thread alone; given back from any.
#[derive(Debug)]
pub struct TrafficMemory {
    used: AtomicU64,
    /// The part of `used` that connections, requests and streams take by being there.
    standing: AtomicU64,
    /// The most that was used since somebody looked.
    peak: AtomicU64,
    refused: AtomicU64,
    max: u64,
    holders: Mutex<Holders>,
}

/// Locked when a connection begins, and when memory is short.
#[derive(Debug, Default)]
struct Holders {
    all: Vec<Weak<Holder>>,
    looked: Option<Instant>,
}

/// Bytes that something holds for as long as this lives.
#[derive(Debug, Default)]
pub struct HeldBytes {
    bytes: u64,
    standing: u64,
    memory: Option<Arc<TrafficMemory>>,
    holder: Option<Arc<Holder>>,
}

impl TrafficMemory {
    /// Of `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        let (used, standing, peak, refused, holders) = Default::default();
        Arc::new(Self { used, standing, peak, refused, max, holders })
    }

    /// Room for `bytes` of a request or reply that holds `own` already; `None` if others hold too much. One that finds
    /// no other always has room, so that none is refused for ever.
    pub fn hold(self: &Arc<Self>, bytes: u64, own: u64) -> Option<HeldBytes> {
        let (used, standing) = (self.used(), self.standing.load(Ordering::Relaxed));
        let is_alone = used <= standing.saturating_add(own);
        let has_room = is_alone || used.saturating_add(bytes) <= self.max;
        if !has_room {
            self.end_stalled(bytes);
        }
        has_room.then(|| self.take(bytes, 0))
    }

    /// Room for a connection, a request or a stream as such, of at most half of all.
    pub fn hold_standing(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let standing = self.standing.load(Ordering::Relaxed);
        let has_room = standing.saturating_add(bytes) <= self.max / 2
            && self.used().saturating_add(bytes) <= self.max;
        has_room.then(|| self.take(bytes, bytes))
    }

    /// Room for a stream that takes `bytes` by being there. Where streams hold all of it, it has the room of one that
    /// waits for its caller.
    pub fn open_stream(self: &Arc<Self>, bytes: u64) -> Option<Arc<StreamRoom>> {
        let held = self.hold_standing(bytes).or_else(|| {
            // Several, where connections have come meanwhile, which are charged whether there is room or not.
            let lacks =
                || self.standing.load(Ordering::Relaxed).saturating_add(bytes) > self.max / 2;
            while lacks() && self.end_waiting() {}
            if lacks() || self.used().saturating_add(bytes) > self.max {
                self.end_stalled(bytes);
            }
            self.hold_standing(bytes)
        });
        held.map(StreamRoom::new)
    }

    /// Ends the stream that has waited longest, of the connection with most that wait. Returns whether there was one.
    fn end_waiting(&self) -> bool {
        let holders = self.holders();
        let all = holders.all.iter().filter_map(Weak::upgrade);
        let most = all.map(|holder| {
            let count = holder.waiting().count();
            (count, holder)
        });
        let Some((count, holder)) = most.max_by_key(|(count, _)| *count) else { return false };
        drop(holders);
        if count <= WAITING_KEPT {
            return false;
        }
        let oldest = holder.waiting().take_oldest();
        oldest.map(|stream| stream.end()).is_some()
    }

    /// Ends the streams whose requests have not arrived in time.
    pub fn end_late(&self) {
        let holders: Vec<_> = self.holders().all.iter().filter_map(Weak::upgrade).collect();
        for holder in holders {
            let late = holder.waiting().take_late();
            late.into_iter().for_each(|stream| stream.end());
        }
    }

    /// Counts a connection, whether there is room or not: how many there are is bounded elsewhere.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> HeldBytes {
        self.take(bytes, bytes)
    }

    fn take(self: &Arc<Self>, bytes: u64, standing: u64) -> HeldBytes {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.store(used, Ordering::Relaxed);
        }
        self.standing.fetch_add(standing, Ordering::Relaxed);
        HeldBytes { bytes, standing, memory: Some(Arc::clone(self)), holder: None }
    }

    /// Has `holder` looked at when memory is short.
    pub fn watch(&self, holder: &Arc<Holder>) {
        let mut holders = self.holders();
        if holders.all.len() == holders.all.capacity() {
            holders.all.retain(|holder| holder.strong_count() > 0);
        }
        holders.all.push(Arc::downgrade(holder));
    }

    /// Ends connections that have stalled, the largest first, until `bytes` would be free. They are closed once their
    /// tasks run, so whoever asked is still refused, and finds room when it tries again.
    fn end_stalled(&self, bytes: u64) {
        let mut holders = self.holders();
        if holders.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        holders.looked = Some(Instant::now());
        holders.all.retain(|holder| holder.strong_count() > 0);
        let mut all: Vec<_> = holders.all.iter().filter_map(Weak::upgrade).collect();
        all.sort_unstable_by_key(|holder| std::cmp::Reverse(holder.bytes()));
        // As much again as is asked for, and at least an eighth of all: the next caller comes soon.
        let wanted = bytes.saturating_mul(2).max(self.max / 8);
        let mut freed = 0;
        for holder in all {
            let holds = holder.bytes();
            if freed >= wanted || holds < STALLED_BYTES_MIN {
                break;
            }
            if holder.end_if_stalled(STALLED_BYTES_MIN) {
                tracing::debug!(
                    bytes = holds,
                    "a connection that stalled is closed: others need its memory"
                );
                freed += holds;
            }
        }
    }

    fn holders(&self) -> std::sync::MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes held now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be held.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Whether most of what was held is not held any more, and what that was is worth giving back to the system. Asked
    /// again it is so only after another peak.
    pub fn has_passed_a_peak(&self) -> bool {
        let (used, peak) = (self.used(), self.peak.load(Ordering::Relaxed));
        let has_passed = peak >= PEAK_BYTES_MIN && used < peak / 4;
        if has_passed {
            self.peak.store(used, Ordering::Relaxed);
        }
        has_passed
    }

    /// Counts a request that was refused.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were refused at the edge, before anything counted them: for want of room for themselves, for what
    /// came with them, or for their replies.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl HeldBytes {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same, as a part of what `holder` holds.
    pub fn of(mut self, holder: &Arc<Holder>) -> Self {
        debug_assert!(self.holder.is_none(), "somebody holds it already");
        holder.add(self.bytes);
        self.holder = Some(Arc::clone(holder));
        self
    }

    /// The same, as a part of what no holder holds.
    pub fn let_go(mut self) -> Self {
        if let Some(holder) = self.holder.take() {
            holder.remove(self.bytes);
        }
        self
    }

    /// As much as both, which are of one core and one holder, or of none.
    pub fn and(mut self, mut other: Self) -> Self {
        self.bytes += std::mem::take(&mut other.bytes);
        self.standing += std::mem::take(&mut other.standing);
        self.memory = self.memory.take().or(other.memory.take());
        self.holder = self.holder.take().or(other.holder.take());
        self
    }

    /// Takes `bytes` of it, at most all.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { bytes, standing: 0, memory: self.memory.clone(), holder: self.holder.clone() }
    }

    /// Gives some back before the rest.
    pub fn shrink(&mut self, bytes: u64) {
        drop(self.split(bytes));
    }

    /// Bytes whose memory is held until the last of them is gone.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldPiece { bytes, _held: self })
    }
}

struct HeldPiece {
    bytes: Bytes,
    _held: HeldBytes,
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if let Some(holder) = &self.holder {
            holder.remove(self.bytes);
        }
        if let Some(memory) = &self.memory {
            let used = memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
            let standing = memory.standing.fetch_sub(self.standing, Ordering::Relaxed);
            debug_assert!(used >= self.bytes && standing >= self.standing, "given back twice");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped() {
        let memory = TrafficMemory::new(100);
        let connection = memory.hold_standing(30).unwrap();
        assert!(memory.hold_standing(21).is_none(), "more than half of all");
        let mut request = memory.hold(60, 0).unwrap();
        assert!(memory.hold(11, 60).is_some(), "alone beside what stands");
        let other = memory.hold(10, 0).unwrap();
        assert!(memory.hold(1, 0).is_none());
        assert_eq!(memory.used(), 100);
        request.shrink(20);
        let part = request.split(15);
        assert_eq!((request.bytes(), part.bytes(), memory.used()), (25, 15, 80));
        let both = part.and(other);
        assert_eq!(both.bytes(), 25);
        let bytes = both.with(Bytes::from_static(b"rows"));
        let clone = bytes.clone();
        drop((bytes, request, connection));
        assert_eq!(memory.used(), 25);
        drop(clone);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stalls_while_others_need_room_is_ended_and_who_moves_is_not() {
        let memory = TrafficMemory::new(1 << 20);
        let holders = [(); 3].map(|()| Arc::new(Holder::default()));
        holders.iter().for_each(|holder| memory.watch(holder));
        let half = 1 << 19;
        let stalled = memory.hold(half, 0).unwrap().of(&holders[0]);
        let mut moving = memory.hold(half - 1, 0).unwrap().of(&holders[1]);
        let is_ended = |holder: &Arc<Holder>| {
            let holder = Arc::clone(holder);
            async move { tokio::time::timeout(Duration::from_millis(1), holder.ended()).await.is_ok() }
        };
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(!is_ended(&holders[0]).await, "not stalled for long enough");
        tokio::time::advance(Duration::from_secs(1)).await;
        moving.shrink(1);
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(is_ended(&holders[0]).await);
        assert!(!is_ended(&holders[1]).await && !is_ended(&holders[2]).await);
        drop(stalled);
        assert!(memory.hold(1 << 16, 0).is_some());
    }

    #[test]
    fn a_peak_has_passed_once_most_of_it_is_given_back() {
        let memory = TrafficMemory::new(1 << 30);
        let small = memory.hold(PEAK_BYTES_MIN - 1, 0);
        drop(small);
        assert!(!memory.has_passed_a_peak());
        let (most, rest) = (memory.hold(PEAK_BYTES_MIN, 0), memory.hold(PEAK_BYTES_MIN / 4, 0));
        assert!(!memory.has_passed_a_peak());
        drop(most);
        assert!(memory.has_passed_a_peak() && !memory.has_passed_a_peak());
        drop(rest);
    }

    #[test]
    fn hundreds_of_connections_fit_into_the_smallest_default() {
        assert_eq!((window_bytes(4 << 20), window_bytes(512 << 20)), (64 << 10, 256 << 10));
        assert!((32 << 20) / 4 / connection_bytes(32 << 20) >= 80);
        assert!((512 << 20) / 4 / connection_bytes(512 << 20) >= 400);
    }
}
