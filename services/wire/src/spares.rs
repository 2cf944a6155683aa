//! Large buffers that are used again as they are.
//!
//! A reply is a megabyte or two, and comes and goes a thousand times a second: new memory for each would
//! have to be zeroed by the kernel, page by page, and costs as much as copying the rows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

/// Smaller buffers are not kept.
pub(crate) const SPARE_BYTES_MIN: usize = 64 << 10;

/// What is kept at most: bytes, and buffers.
const BYTES_MAX: usize = 32 << 20;
const COUNT_MAX: usize = 64;

/// Buffers that nobody uses. Belongs to one core or connection, so that its lock is never waited for;
/// what is lent comes back from wherever it is dropped.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    buffers: VecDeque<MutableBuffer>,
    bytes: usize,
}

impl Spares {
    /// A buffer of `len` bytes. It holds what it held before.
    pub fn take(&self, len: usize) -> MutableBuffer {
        let spare = (len >= SPARE_BYTES_MIN).then(|| self.with(|kept| kept.take(len))).flatten();
        let mut buffer = spare.unwrap_or_else(|| MutableBuffer::with_capacity(len));
        buffer.resize(len, 0);
        buffer
    }

    /// The bytes of `buffer`, which comes back here once they are no longer used.
    pub fn lend(self: &Arc<Self>, buffer: Buffer) -> Bytes {
        Bytes::from_owner(Lent { buffer, to: Arc::clone(self) })
    }

    /// Bytes kept for the next one.
    pub fn bytes(&self) -> usize {
        self.with(|kept| kept.bytes)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// The last one that fits, and isn't far too large.
    fn take(&mut self, len: usize) -> Option<MutableBuffer> {
        let fits = |buffer: &MutableBuffer| (len..=len * 2).contains(&buffer.capacity());
        let at = self.buffers.iter().rposition(fits)?;
        let buffer = self.buffers.remove(at)?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn put(&mut self, buffer: MutableBuffer) {
        let bytes = buffer.capacity();
        if !(SPARE_BYTES_MIN..=BYTES_MAX).contains(&bytes) {
            return;
        }
        // Those that nobody took for longest go: replies may be of another size now.
        while self.bytes + bytes > BYTES_MAX || self.buffers.len() == COUNT_MAX {
            let Some(oldest) = self.buffers.pop_front() else { break };
            self.bytes -= oldest.capacity();
        }
        self.bytes += bytes;
        self.buffers.push_back(buffer);
    }
}

struct Lent {
    buffer: Buffer,
    to: Arc<Spares>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Others may still look at it.
        if let Ok(buffer) = std::mem::take(&mut self.buffer).into_mutable() {
            self.to.with(|kept| kept.put(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_as_it_is_where_it_fits() {
        let spares = Arc::new(Spares::default());
        let mut buffer = spares.take(100_000);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer.as_slice_mut().fill(7);
        let bytes = spares.lend(buffer.into());
        let clone = bytes.slice(5..);
        drop(bytes);
        assert_eq!((clone[0], spares.bytes()), (7, 0));
        drop(clone);
        assert!(spares.bytes() >= 100_000);
        assert!(spares.take(150_000).iter().all(|&byte| byte == 0), "too small");
        assert!(spares.take(SPARE_BYTES_MIN - 1).iter().all(|&byte| byte == 0), "not worth it");
        let again = spares.take(90_000);
        assert!(again.len() == 90_000 && again.iter().all(|&byte| byte == 7));
        assert_eq!(spares.bytes(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let spares = Arc::new(Spares::default());
        for len in [BYTES_MAX / 10, SPARE_BYTES_MIN] {
            let lent: Vec<_> = (0..100).map(|_| spares.lend(spares.take(len).into())).collect();
            drop(lent);
            assert!(spares.bytes() <= BYTES_MAX);
            assert!(spares.with(|kept| kept.buffers.len()) <= COUNT_MAX);
            // What came last is there, whatever came before.
            assert!(spares.with(|kept| kept.take(len)).is_some());
        }
    }
}
