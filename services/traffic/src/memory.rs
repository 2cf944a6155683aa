//! One core's memory for its callers.
//!
//! Credits bound the rows of a stream, but neither their bytes nor the number of streams. This module bounds the memory
//! that a core holds for all its callers.
//!
//! A [`Holder`] is the account of one connection's part of that memory. A stream that waits for its caller may lose its
//! memory ([`StreamRoom`]).

pub(crate) mod holder;
pub(crate) mod waiting;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use scheduler::has_room;
use tokio::time::Instant;
use wire::{Fault, Reason};

use self::holder::Holder;
use self::waiting::{StreamRoom, WAITING_KEPT};

/// The bytes of memory for the state of one HTTP/2 connection: hyper's and h2's structures, and their buffers for
/// reading and writing.
const CONNECTION_BYTES: u64 = 32 << 10;

/// The minimum of an HTTP/2 window, in bytes: one more than the protocol's default.
const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// The maximum of an HTTP/2 window, in bytes. A window of 256 KiB carries 250 MB/s at a round trip of 1 ms, and a
/// request is seldom larger.
const WINDOW_BYTES_MAX: u64 = 256 << 10;

/// The length below which h2 counts a DATA frame as small.
const SMALL_FRAME_BYTES: u32 = 256;

/// A core's memory divided by this is the length of a window, within the minimum and the maximum. The divisor is so
/// high that a memory of 128 MiB suffices for hundreds of connections.
const WINDOW_PART: u64 = 2048;

/// The minimum number of bytes that must wait for the caller of a stalled connection to end it. Ending one with fewer
/// would not help others.
const STALLED_BYTES_MIN: u64 = 64 << 10;

/// The minimum peak, in bytes, after which returning memory to the system is worth the allocator's time.
const PEAK_BYTES_MIN: u64 = 64 << 20;

/// The minimum time between two searches for stalled connections, so that a flood of refused requests does not start a
/// search for each.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the HTTP/2 window of a connection, and of each of its streams, on a core whose callers may hold `max` bytes.
pub fn window_bytes(max: u64) -> u32 {
    (max / WINDOW_PART).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX) as u32
}

/// Returns how many small requests may be outstanding on a connection on a core whose callers may hold `max` bytes.
///
/// For each unread DATA frame of less than 256 bytes, h2 counts the bytes by which the frame is shorter than that. It
/// ends a connection when these bytes add up to more than half a window (`DataFrameBudget` of h2 0.4.20). A burst of
/// requests, each in one such frame, must not reach that sum while the core is busy.
pub fn small_requests_max(max: u64) -> u32 {
    window_bytes(max) / 2 / SMALL_FRAME_BYTES
}

/// Returns the bytes that a connection is charged on a core whose callers may hold `max` bytes: its state, and a full
/// window of unread data.
pub fn connection_bytes(max: u64) -> u64 {
    CONNECTION_BYTES + u64::from(window_bytes(max))
}

/// Returns the fault for a request or a reply for which the memory of a core's callers has no room.
pub fn memory_full() -> Fault {
    let what = "other callers use all memory for requests and replies; try again later";
    Fault::new(Reason::Overloaded, what)
}

/// The memory of a core's callers. Only the core's thread takes memory; any thread may give it back.
#[derive(Debug)]
pub struct TrafficMemory {
    used: AtomicU64,
    /// The part of `used` that open connections, requests, streams and projections take, without messages.
    overhead: AtomicU64,
    /// The peak of `used` since the last peak that [`has_passed_a_peak`](Self::has_passed_a_peak) reported.
    peak: AtomicU64,
    refused: AtomicU64,
    max: u64,
    holders: Mutex<Holders>,
}

/// The accounts of the core's connections. Locked when a connection begins, when memory is short, and when late
/// requests are sought.
#[derive(Debug, Default)]
struct Holders {
    all: Vec<Weak<Holder>>,
    /// The time of the last search for stalled connections.
    searched: Option<Instant>,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug, Default)]
pub struct HeldBytes {
    bytes: u64,
    overhead: u64,
    memory: Option<Arc<TrafficMemory>>,
    holder: Option<Arc<Holder>>,
}

/// The reason why a message of a flow gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Other messages of the flow hold too much.
    OfFlow,
    /// All callers of the core together hold too much.
    OfAll,
}

impl TrafficMemory {
    /// Creates a memory of `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        let (used, overhead, peak, refused, holders) = Default::default();
        Arc::new(Self { used, overhead, peak, refused, max, holders })
    }

    /// Takes `bytes` for a message of a request or reply that holds `own` bytes already. Returns `None` if there is not
    /// enough left. If no other message holds memory, the bytes are always granted, so that no request is refused
    /// forever.
    pub fn hold(self: &Arc<Self>, bytes: u64, own: u64) -> Option<HeldBytes> {
        let (used, overhead) = (self.used(), self.overhead.load(Ordering::Relaxed));
        let is_alone = used <= overhead.saturating_add(own);
        let has_room = is_alone || used.saturating_add(bytes) <= self.max;
        if !has_room {
            self.end_stalled(bytes);
        }
        has_room.then(|| self.take(bytes, 0))
    }

    /// Takes `bytes` as [`hold`](Self::hold) does, for a message of a flow whose other messages hold `of_flow` bytes.
    /// If `of_flow` is not 0, the flow must leave a part of the free memory to other flows ([`has_room`]).
    ///
    /// # Errors
    /// [`NoRoom`] says whether the flow or all callers together hold too much.
    pub fn hold_for_flow(
        self: &Arc<Self>,
        bytes: u64,
        own: u64,
        of_flow: u64,
    ) -> Result<HeldBytes, NoRoom> {
        let [others, more, used, max] =
            [of_flow, bytes, self.used(), self.max].map(|bytes| bytes as usize);
        if others > 0 && !has_room(others, more, used, max) {
            self.end_stalled(bytes);
            return Err(NoRoom::OfFlow);
        }
        self.hold(bytes, own).ok_or(NoRoom::OfAll)
    }

    /// Takes `bytes` of overhead, which is the memory of a stream or a projection without its messages. Returns `None`
    /// if all overhead would exceed half of the memory, or if the memory is full.
    pub fn hold_overhead(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let overhead = self.overhead.load(Ordering::Relaxed);
        let has_room = overhead.saturating_add(bytes) <= self.max / 2
            && self.used().saturating_add(bytes) <= self.max;
        has_room.then(|| self.take(bytes, bytes))
    }

    /// Takes `bytes` for a new stream. If there is no room for more overhead, streams that wait for their callers are
    /// ended to make room. Returns `None` if that does not make enough.
    pub fn open_stream(self: &Arc<Self>, bytes: u64) -> Option<Arc<StreamRoom>> {
        let held = self.hold_overhead(bytes).or_else(|| {
            // More than one stream may have to end, because connections are charged whether there is room or not.
            let lacks =
                || self.overhead.load(Ordering::Relaxed).saturating_add(bytes) > self.max / 2;
            while lacks() && self.end_waiting() {}
            if lacks() || self.used().saturating_add(bytes) > self.max {
                self.end_stalled(bytes);
            }
            self.hold_overhead(bytes)
        });
        held.map(StreamRoom::new)
    }

    /// Ends the oldest waiting stream of the connection that has the most waiting streams, unless that connection has
    /// at most [`WAITING_KEPT`]. Returns whether a stream was ended.
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

    /// Takes `bytes` of overhead, whether there is room or not. Callers bound the sum of what they charge: by the
    /// number of connections, or the memory for projections.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> HeldBytes {
        self.take(bytes, bytes)
    }

    fn take(self: &Arc<Self>, bytes: u64, overhead: u64) -> HeldBytes {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.store(used, Ordering::Relaxed);
        }
        self.overhead.fetch_add(overhead, Ordering::Relaxed);
        HeldBytes { bytes, overhead, memory: Some(Arc::clone(self)), holder: None }
    }

    /// Adds the connection of `holder` to those that may be ended when memory is short.
    pub fn watch(&self, holder: &Arc<Holder>) {
        let mut holders = self.holders();
        if holders.all.len() == holders.all.capacity() {
            holders.all.retain(|holder| holder.strong_count() > 0);
        }
        holders.all.push(Arc::downgrade(holder));
    }

    /// Ends stalled connections, those for whose callers the most bytes wait first, until enough memory will become
    /// free for a request of `bytes` and for the next ones. A connection is closed only when its task runs, so the
    /// caller that asked for `bytes` is still refused. It finds room when it tries again.
    fn end_stalled(&self, bytes: u64) {
        let mut holders = self.holders();
        if holders.searched.is_some_and(|searched| searched.elapsed() < SEARCH_INTERVAL) {
            return;
        }
        holders.searched = Some(Instant::now());
        holders.all.retain(|holder| holder.strong_count() > 0);
        let all = holders.all.iter().filter_map(Weak::upgrade);
        // Other threads may give memory back, so the bytes are read once.
        let mut all: Vec<_> = all.map(|holder| (holder.awaiting_caller(), holder)).collect();
        all.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        // Free twice as much as was asked for, and at least an eighth of the memory, because the next caller comes
        // soon.
        let wanted = bytes.saturating_mul(2).max(self.max / 8);
        let mut freed = 0;
        for (holds, holder) in all {
            if freed >= wanted || holds < STALLED_BYTES_MIN {
                break;
            }
            if holder.end_if_stalled(STALLED_BYTES_MIN) {
                tracing::debug!(
                    bytes = holds,
                    "a stalled connection is closed because others need its memory"
                );
                freed += holds;
            }
        }
    }

    fn holders(&self) -> std::sync::MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes held now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes that may be held.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns whether more than three quarters of a large peak have been given back since that peak, so that returning
    /// memory to the system is worthwhile. Returns true once for each peak.
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

    /// Returns the number of requests that were refused for lack of memory for the stream, its messages or its replies.
    /// The services' own counters do not include them.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl HeldBytes {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the bytes to those of `holder`.
    pub fn held_by(mut self, holder: &Arc<Holder>) -> Self {
        debug_assert!(self.holder.is_none(), "they have a holder already");
        holder.add(self.bytes);
        self.holder = Some(Arc::clone(holder));
        self
    }

    /// Removes the bytes from their holder. They stay counted in the memory.
    pub fn without_holder(mut self) -> Self {
        if let Some(holder) = self.holder.take() {
            holder.remove(self.bytes);
        }
        self
    }

    /// Adds the bytes of `other`. Both must be of the same core, and have the same holder or no holder.
    pub fn and(mut self, mut other: Self) -> Self {
        self.bytes += std::mem::take(&mut other.bytes);
        self.overhead += std::mem::take(&mut other.overhead);
        self.memory = self.memory.take().or(other.memory.take());
        self.holder = self.holder.take().or(other.holder.take());
        self
    }

    /// Splits off `bytes`, or all if there are fewer.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { bytes, overhead: 0, memory: self.memory.clone(), holder: self.holder.clone() }
    }

    /// Gives back `bytes` now. The rest stays held.
    pub fn shrink(&mut self, bytes: u64) {
        drop(self.split(bytes));
    }

    /// Attaches these counted bytes to `bytes`, a part of a reply that is handed to HTTP. They are given back when the
    /// last reference to `bytes` is dropped.
    pub fn with(self, bytes: Bytes) -> Bytes {
        if let Some(holder) = &self.holder {
            holder.add_part();
        }
        Bytes::from_owner(ReplyPart { bytes, held: self })
    }
}

/// A part of a reply that was handed to HTTP, which keeps it until it has been sent.
struct ReplyPart {
    bytes: Bytes,
    held: HeldBytes,
}

impl AsRef<[u8]> for ReplyPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ReplyPart {
    fn drop(&mut self) {
        if let Some(holder) = &self.held.holder {
            holder.remove_part();
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if let Some(holder) = &self.holder {
            holder.remove(self.bytes);
        }
        if let Some(memory) = &self.memory {
            let used = memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
            let overhead = memory.overhead.fetch_sub(self.overhead, Ordering::Relaxed);
            debug_assert!(used >= self.bytes && overhead >= self.overhead, "given back twice");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_count_until_they_are_dropped() {
        let memory = TrafficMemory::new(100);
        let connection = memory.hold_overhead(30).unwrap();
        assert!(memory.hold_overhead(21).is_none(), "more than half of the memory");
        let mut request = memory.hold(60, 0).unwrap();
        assert!(memory.hold(11, 60).is_some(), "there is no other request");
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
    async fn a_stalled_connection_is_ended_when_others_need_memory() {
        let memory = TrafficMemory::new(1 << 20);
        let holders = [(); 3].map(|()| Arc::new(Holder::default()));
        holders.iter().for_each(|holder| memory.watch(holder));
        let half = 1 << 19;
        let stalled = memory.hold(half, 0).unwrap().held_by(&holders[0]);
        let mut moving = memory.hold(half - 1, 0).unwrap().held_by(&holders[1]);
        let is_ended = |holder: &Arc<Holder>| {
            let holder = Arc::clone(holder);
            async move { tokio::time::timeout(Duration::from_millis(1), holder.ended()).await.is_ok() }
        };
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(!is_ended(&holders[0]).await, "it has not stalled for long enough");
        tokio::time::advance(Duration::from_secs(1)).await;
        moving.shrink(1);
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(is_ended(&holders[0]).await);
        assert!(!is_ended(&holders[1]).await && !is_ended(&holders[2]).await);
        drop(stalled);
        assert!(memory.hold(1 << 16, 0).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn complete_answers_behind_a_part_that_nobody_reads_are_freed() {
        let memory = TrafficMemory::new(1 << 20);
        let holders = [(); 2].map(|()| Arc::new(Holder::default()));
        holders.iter().for_each(|holder| memory.watch(holder));
        let rows = [1 << 19, (1 << 19) - 40].map(|bytes| memory.hold(bytes, 0).unwrap());
        holders.iter().zip(&rows).for_each(|(holder, rows)| holder.add_ready(rows.bytes()));
        // One connection has a part of a reply that can't be sent. The other one's answers wait for an earlier one, and
        // a request has begun to arrive.
        let welcome = memory.hold(20, 0).unwrap().held_by(&holders[0]);
        let welcome = welcome.with(Bytes::from_static(&[7; 20]));
        let arriving = memory.hold(20, 0).unwrap().held_by(&holders[1]);
        let is_ended = |holder: &Arc<Holder>| {
            let holder = Arc::clone(holder);
            async move { tokio::time::timeout(Duration::from_millis(1), holder.ended()).await.is_ok() }
        };
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(!is_ended(&holders[0]).await, "it has not stalled for long enough");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.hold(1 << 16, 0).is_none());
        assert!(is_ended(&holders[0]).await && !is_ended(&holders[1]).await);
        drop((welcome, arriving));
        holders.iter().zip(&rows).for_each(|(holder, rows)| holder.remove_ready(rows.bytes()));
        assert_eq!(holders.map(|holder| (holder.awaiting_caller(), holder.ready())), [(0, 0); 2]);
    }

    #[test]
    fn a_peak_has_passed_once_most_memory_is_given_back() {
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
    fn hundreds_of_connections_fit_into_small_memories() {
        assert_eq!((window_bytes(4 << 20), window_bytes(512 << 20)), (64 << 10, 256 << 10));
        assert!((32 << 20) / 4 / connection_bytes(32 << 20) >= 80);
        assert!((512 << 20) / 4 / connection_bytes(512 << 20) >= 400);
    }
}
