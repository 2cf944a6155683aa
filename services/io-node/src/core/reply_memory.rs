//! Memory of replies: those being gathered, and those that a slow reader has not taken yet.
//!
//! Credits bound the rows of a stream, not their bytes, nor the number of streams; this bounds what a
//! core holds for all of them. Large buffers of replies that were sent are used again as they are: new
//! ones would have to be zeroed, which costs almost what copying the rows costs.

use std::cell::{Cell, RefCell};

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

use super::CORE;

/// Smaller buffers are not kept.
const SPARE_BYTES_MIN: usize = 64 << 10;

/// What is kept at most: bytes, and buffers.
const SPARES_BYTES_MAX: usize = 32 << 20;
const SPARES_MAX: usize = 64;

/// What a core's replies may hold, and do.
pub struct ReplyMemory {
    used: Cell<u64>,
    max: u64,
    spares: RefCell<Spares>,
}

/// Buffers of replies that were sent.
#[derive(Default)]
struct Spares {
    buffers: Vec<MutableBuffer>,
    bytes: usize,
}

/// Bytes that one reply holds until it is handed to its connection. Belongs to the core's thread.
pub struct HeldBytes(u64);

impl ReplyMemory {
    /// Of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { used: Cell::new(0), max, spares: RefCell::default() }
    }

    /// A buffer of `len` bytes for rows that are put whole: it holds what it held before.
    pub fn used_buffer(&self, len: usize) -> MutableBuffer {
        let spare = (len >= SPARE_BYTES_MIN).then(|| self.spares.borrow_mut().take(len)).flatten();
        let Some(mut buffer) = spare else { return pack::zeroed(len) };
        buffer.resize(len, 0);
        buffer
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

impl Spares {
    /// The last one that fits, and isn't far too large.
    fn take(&mut self, len: usize) -> Option<MutableBuffer> {
        let fits = |buffer: &MutableBuffer| (len..=len * 2).contains(&buffer.capacity());
        let at = self.buffers.iter().rposition(fits)?;
        let buffer = self.buffers.swap_remove(at);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn put(&mut self, buffer: MutableBuffer) {
        let bytes = self.bytes + buffer.capacity();
        if bytes <= SPARES_BYTES_MAX && self.buffers.len() < SPARES_MAX {
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
    }
}

/// The bytes of a reply's buffer, which is kept for another reply once they are sent.
pub fn lend(buffer: Buffer) -> Bytes {
    Bytes::from_owner(Lent(buffer))
}

struct Lent(Buffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        if buffer.len() < SPARE_BYTES_MIN {
            return;
        }
        let Ok(buffer) = buffer.into_mutable() else { return };
        with_memory(|memory| memory.spares.borrow_mut().put(buffer));
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        with_memory(|memory| memory.used.set(memory.used.get().saturating_sub(self.0)));
    }
}

/// Tells this core's memory; after the core's end nobody counts any more.
fn with_memory(tell: impl FnOnce(&ReplyMemory)) {
    let _ = CORE.try_with(|core| core.get().map(|core| tell(&core.reply_memory)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(len: usize) -> MutableBuffer {
        MutableBuffer::from_len_zeroed(len)
    }

    #[test]
    fn a_buffer_is_used_again_where_it_fits() {
        let mut spares = Spares::default();
        [100_000, 400_000].into_iter().for_each(|len| spares.put(spare(len)));
        let took =
            |spares: &mut Spares, len| spares.take(len).map(|buffer| buffer.capacity() / 1000);
        assert_eq!(took(&mut spares, 150_000), None);
        assert_eq!(took(&mut spares, 90_000), Some(100));
        assert_eq!(took(&mut spares, 90_000), None);
        assert_eq!(took(&mut spares, 400_000), Some(400));
        assert_eq!(spares.bytes, 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spares = Spares::default();
        (0..100).for_each(|_| spares.put(spare(SPARES_BYTES_MAX / 10)));
        assert!(spares.buffers.len() <= 10 && spares.bytes <= SPARES_BYTES_MAX);
        (0..100).for_each(|_| spares.put(spare(64)));
        assert!(spares.buffers.len() <= SPARES_MAX);
    }

    #[test]
    fn memory_holds_what_it_may_and_is_zero_where_it_is_new() {
        let memory = ReplyMemory::new(10);
        assert!(memory.hold(20).is_some());
        assert!(memory.hold(1).is_none());
        assert_eq!(memory.used(), 20);
        assert!(memory.used_buffer(SPARE_BYTES_MIN).iter().all(|&byte| byte == 0));
        memory.spares.borrow_mut().put(MutableBuffer::from(vec![7u8; SPARE_BYTES_MIN]));
        let again = memory.used_buffer(SPARE_BYTES_MIN);
        assert!(again.len() == SPARE_BYTES_MIN && again.iter().all(|&byte| byte == 7));
    }
}
