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
    /// Of that by connections and streams, which stay though nothing is asked.
    standing: Cell<u64>,
    max: u64,
    /// Large buffers of replies that were sent.
    pub spares: Arc<Spares>,
}

/// Bytes that something holds for as long as this lives. To be dropped on the core's thread: it may go elsewhere
/// only to come back.
#[derive(Debug, Default)]
pub struct HeldBytes {
    bytes: u64,
    standing: u64,
}

impl TrafficMemory {
    /// Of `max` bytes.
    pub fn new(max: u64) -> Self {
        let (used, standing, spares) = Default::default();
        Self { used, standing, max, spares }
    }

    /// Room for `bytes` of a batch that holds `own` already; `None` if others' batches hold too much. One that
    /// finds no other always has room, so that none is refused for ever.
    pub fn hold(&self, bytes: u64, own: u64) -> Option<HeldBytes> {
        let is_alone = self.used.get() <= self.standing.get() + own;
        let has_room = is_alone || self.used.get() + bytes <= self.max;
        has_room.then(|| self.take(bytes, 0))
    }

    /// Room for a connection or a stream, of at most half of all.
    pub fn hold_standing(&self, bytes: u64) -> Option<HeldBytes> {
        let has_room =
            self.standing.get() + bytes <= self.max / 2 && self.used.get() + bytes <= self.max;
        has_room.then(|| self.take(bytes, bytes))
    }

    fn take(&self, bytes: u64, standing: u64) -> HeldBytes {
        self.used.set(self.used.get() + bytes);
        self.standing.set(self.standing.get() + standing);
        HeldBytes { bytes, standing }
    }

    /// Bytes held now.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Bytes that may be held.
    pub fn max(&self) -> u64 {
        self.max
    }
}

impl HeldBytes {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As much as both.
    pub fn and(mut self, mut other: Self) -> Self {
        let (one, two) = (std::mem::take(&mut self), std::mem::take(&mut other));
        let both = Self { bytes: one.bytes + two.bytes, standing: one.standing + two.standing };
        std::mem::forget((one, two));
        both
    }

    /// Gives some back before the rest.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        drop(Self { bytes, standing: 0 });
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
            if let Some(core) = &*core.borrow() {
                let memory = &core.traffic_memory;
                debug_assert!(memory.used.get() >= self.bytes, "given back twice, or elsewhere");
                memory.used.set(memory.used.get().saturating_sub(self.bytes));
                memory.standing.set(memory.standing.get().saturating_sub(self.standing));
            }
        });
    }
}
