//! A pool of large buffers that are reused without being cleared.
//!
//! A reply takes one or two megabytes, and a thousand replies a second are allocated and freed. The kernel would zero
//! new memory page by page, which costs as much as copying the rows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

/// The minimum size of a buffer in the pool, in bytes.
pub(crate) const POOLED_BYTES_MIN: usize = 64 << 10;

/// The maximum total size of the buffers in the pool, in bytes. There is room for 16 replies of 2 MB.
const BYTES_MAX: usize = 32 << 20;
/// The maximum number of buffers in the pool. A search for a fitting buffer may look at each of them.
const COUNT_MAX: usize = 64;

/// A pool of unused buffers. Each core or client has a pool of its own, so the pool's lock is rarely contended. Lent
/// buffers return to the pool on any thread on which they are dropped.
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<UnusedBuffers>);

#[derive(Debug, Default)]
struct UnusedBuffers {
    /// The unused buffers, in the order in which they returned.
    buffers: VecDeque<MutableBuffer>,
    /// The total capacity of the buffers, in bytes.
    bytes: usize,
}

impl BufferPool {
    /// Returns a buffer of `len` bytes. A reused buffer still has its previous contents.
    pub fn take(&self, len: usize) -> MutableBuffer {
        let unused = (len >= POOLED_BYTES_MIN).then(|| self.with(|it| it.take(len))).flatten();
        let mut buffer = unused.unwrap_or_else(|| MutableBuffer::with_capacity(len));
        buffer.resize(len, 0);
        buffer
    }

    /// Converts `buffer` to bytes. The buffer returns to the pool when the last reference to them is dropped.
    pub fn lend(self: &Arc<Self>, buffer: Buffer) -> Bytes {
        Bytes::from_owner(Lent { buffer, pool: Arc::clone(self) })
    }

    /// Returns the total size of the buffers in the pool, in bytes.
    pub fn bytes(&self) -> usize {
        self.with(|unused| unused.bytes)
    }

    fn with<T>(&self, act: impl FnOnce(&mut UnusedBuffers) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl UnusedBuffers {
    /// Takes the buffer that returned last among those with a capacity of one to two times `len`.
    fn take(&mut self, len: usize) -> Option<MutableBuffer> {
        let fits = |buffer: &MutableBuffer| (len..=len * 2).contains(&buffer.capacity());
        let at = self.buffers.iter().rposition(fits)?;
        let buffer = self.buffers.remove(at)?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn put(&mut self, buffer: MutableBuffer) {
        let bytes = buffer.capacity();
        if !(POOLED_BYTES_MIN..=BYTES_MAX).contains(&bytes) {
            return;
        }
        // Make room by dropping the buffers that have been unused for longest. Replies may have another size by now.
        while self.bytes + bytes > BYTES_MAX || self.buffers.len() == COUNT_MAX {
            let Some(oldest) = self.buffers.pop_front() else { break };
            self.bytes -= oldest.capacity();
        }
        self.bytes += bytes;
        self.buffers.push_back(buffer);
    }
}

/// A lent buffer, which returns to its pool when it is dropped.
struct Lent {
    buffer: Buffer,
    pool: Arc<BufferPool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // If other Arrow arrays still refer to the buffer, it is freed instead of reused.
        if let Ok(buffer) = std::mem::take(&mut self.buffer).into_mutable() {
            self.pool.with(|unused| unused.put(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_a_fitting_size_is_reused_with_its_contents() {
        let pool = Arc::new(BufferPool::default());
        let mut buffer = pool.take(100_000);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer.as_slice_mut().fill(7);
        let bytes = pool.lend(buffer.into());
        let clone = bytes.slice(5..);
        drop(bytes);
        assert_eq!((clone[0], pool.bytes()), (7, 0));
        drop(clone);
        assert!(pool.bytes() >= 100_000);
        assert!(pool.take(150_000).iter().all(|&byte| byte == 0), "too small");
        assert!(pool.take(POOLED_BYTES_MIN - 1).iter().all(|&byte| byte == 0), "below the minimum");
        let again = pool.take(90_000);
        assert!(again.len() == 90_000 && again.iter().all(|&byte| byte == 7));
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn the_pool_is_bounded() {
        let pool = Arc::new(BufferPool::default());
        for len in [BYTES_MAX / 10, POOLED_BYTES_MIN] {
            let lent: Vec<_> = (0..100).map(|_| pool.lend(pool.take(len).into())).collect();
            drop(lent);
            assert!(pool.bytes() <= BYTES_MAX);
            assert!(pool.with(|unused| unused.buffers.len()) <= COUNT_MAX);
            // The buffer that returned last is in the pool.
            assert!(pool.with(|unused| unused.take(len)).is_some());
        }
    }
}
