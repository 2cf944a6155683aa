//! Memory of traffic: connections, streams, batches as they arrive and while they are under way, rows from
//! tables, and replies until a slow reader has taken them.
//!
//! Credits bound the rows of a stream, not their bytes, nor the number of streams; this bounds what a
//! core holds for all of them. What it has no room for is refused.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use wire::Spares;

use super::CORE;

/// What a core's traffic may hold, and does.
pub struct TrafficMemory {
    used: Cell<u64>,
    max: u64,
    /// Large buffers of replies that were sent.
    pub spares: Arc<Spares>,
}

/// Bytes that something holds for as long as this lives. Belongs to the core's thread.
#[derive(Debug, Default)]
pub struct HeldBytes(u64);

impl TrafficMemory {
    /// Of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { used: Cell::new(0), max, spares: Arc::default() }
    }

    /// Room for `bytes`; `None` if others hold too much. What finds no other always has room.
    pub fn hold(&self, bytes: u64) -> Option<HeldBytes> {
        let used = self.used.get();
        if used > 0 && used + bytes > self.max {
            return None;
        }
        self.used.set(used + bytes);
        Some(HeldBytes(bytes))
    }

    /// Bytes held now.
    pub fn used(&self) -> u64 {
        self.used.get()
    }
}

impl HeldBytes {
    /// As much as both.
    pub fn and(mut self, mut other: Self) -> Self {
        Self(std::mem::take(&mut self.0) + std::mem::take(&mut other.0))
    }

    /// Gives some back before the rest.
    pub fn shrink(&mut self, bytes: u64) {
        drop(Self(bytes.min(self.0)));
        self.0 -= bytes.min(self.0);
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
        // After the core's end nobody counts any more.
        let _ = CORE.try_with(|core| {
            if let Some(core) = core.get() {
                let memory = &core.traffic_memory;
                memory.used.set(memory.used.get().saturating_sub(self.0));
            }
        });
    }
}
