//! Memory of replies: those being gathered, and those that a slow reader has not taken yet.
//!
//! Credits bound the rows of a stream, not their bytes, nor the number of streams; this bounds what a
//! core holds for all of them.

use std::cell::Cell;
use std::sync::Arc;

use wire::Spares;

use super::CORE;

/// What a core's replies may hold, and do.
pub struct ReplyMemory {
    used: Cell<u64>,
    max: u64,
    /// Large buffers of replies that were sent.
    pub spares: Arc<Spares>,
}

/// Bytes that one reply holds until it is handed to its connection. Belongs to the core's thread.
pub struct HeldBytes(u64);

impl ReplyMemory {
    /// Of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { used: Cell::new(0), max, spares: Arc::default() }
    }

    /// Room for a reply of `bytes`; `None` if others hold too much. A reply that finds no other
    /// always has room.
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

impl Drop for HeldBytes {
    fn drop(&mut self) {
        // After the core's end nobody counts any more.
        let _ = CORE.try_with(|core| {
            if let Some(core) = core.get() {
                let memory = &core.reply_memory;
                memory.used.set(memory.used.get().saturating_sub(self.0));
            }
        });
    }
}
