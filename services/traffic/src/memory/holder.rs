//! The memory that one connection holds, and whether the connection makes progress.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::waiting::{StreamRoom, WaitingStreams};

/// A connection whose requests and replies have made no progress for this long is ended when others need its memory.
/// Progress is a message of a request that becomes complete, or a part of a reply that was sent; bytes of a message
/// that arrive without completing it are no progress. The time is shorter than the time for which a refused client
/// retries, and longer than the pauses of a slow reader.
pub const STALLED_AFTER: Duration = Duration::from_secs(2);

/// The account of one connection's part of a core's memory.
#[derive(Debug)]
pub struct Holder {
    began: Instant,
    /// The bytes of requests in arrival and of replies being sent. Complete requests are not included, because they
    /// wait for the node and not for the caller.
    bytes: AtomicU64,
    /// The number of parts of replies that were handed to HTTP and have not been sent.
    parts: AtomicUsize,
    /// The bytes of the rows of complete answers that were not handed to HTTP yet, and all that an answer in pieces
    /// holds, also of the piece that is being made.
    ready: AtomicU64,
    /// The time at which `bytes` last shrank, or `bytes`, `parts` or `ready` last grew from 0, in milliseconds since
    /// `began`.
    moved_ms: AtomicU64,
    ended: Notify,
    waiting: Mutex<WaitingStreams>,
}

/// A stream that waits for its caller. It stops waiting when this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingStream {
    /// The memory of the stream.
    pub room: Arc<StreamRoom>,
    holder: Arc<Holder>,
    number: u64,
}

impl Default for Holder {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            parts: AtomicUsize::new(0),
            ready: AtomicU64::new(0),
            moved_ms: AtomicU64::new(0),
            ended: Notify::new(),
            waiting: Mutex::default(),
        }
    }
}

impl Holder {
    /// Returns the bytes of requests in arrival and of replies being sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the rows of complete answers that were not handed to HTTP yet. An answer in pieces counts
    /// with all that it holds, including the piece that is being made.
    pub fn ready(&self) -> u64 {
        self.ready.load(Ordering::Relaxed)
    }

    /// Adds `bytes` of the rows of a complete answer.
    pub fn add_ready(&self, bytes: u64) {
        if bytes > 0 && self.ready.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.moved();
        }
    }

    /// Removes `bytes` of the rows of complete answers.
    pub fn remove_ready(&self, bytes: u64) {
        let ready = self.ready.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(ready >= bytes, "removed twice");
    }

    /// Returns the bytes that wait for the caller. Complete answers do so only while a part of a reply can't be sent.
    /// Otherwise they wait for the node, such as on a stream that answers in order while an earlier answer is made.
    pub(crate) fn awaiting_caller(&self) -> u64 {
        let ready = if self.parts.load(Ordering::Relaxed) > 0 { self.ready() } else { 0 };
        self.bytes() + ready
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, WaitingStreams> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection must be closed because it stalled while others needed its memory.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    pub(crate) fn add(&self, bytes: u64) {
        // A connection that holds nothing cannot stall, so the time of its last progress is now.
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.moved();
        }
    }

    pub(crate) fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.moved();
    }

    /// Counts a part of a reply that is handed to HTTP.
    pub(crate) fn add_part(&self) {
        if self.parts.fetch_add(1, Ordering::Relaxed) == 0 {
            self.moved();
        }
    }

    /// Stops counting a part of a reply, which was sent or dropped.
    pub(crate) fn remove_part(&self) {
        self.parts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends the connection if at least `bytes_min` wait for its caller and it has stalled. Returns whether it did.
    pub(crate) fn end_if_stalled(&self, bytes_min: u64) -> bool {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        let is_stalled = self.began.elapsed().saturating_sub(moved) >= STALLED_AFTER;
        let ends = self.awaiting_caller() >= bytes_min && is_stalled;
        if ends {
            self.ended.notify_one();
        }
        ends
    }

    fn moved(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Ordering::Relaxed);
    }
}

impl WaitingStream {
    /// Adds a waiting stream. `is_talk` says whether its caller may send messages for as long as it likes.
    pub fn new(room: &Arc<StreamRoom>, holder: &Arc<Holder>, is_talk: bool) -> Self {
        let number = holder.waiting().add(room, is_talk);
        Self { room: Arc::clone(room), holder: Arc::clone(holder), number }
    }
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        self.holder.waiting().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_rows_is_no_progress() {
        let holder = Holder::default();
        holder.add(1);
        tokio::time::advance(STALLED_AFTER).await;
        holder.add_ready(0);
        assert!(holder.end_if_stalled(1));
        holder.add_ready(1);
        assert!(!holder.end_if_stalled(1), "an answer with rows begins to wait");
    }
}
