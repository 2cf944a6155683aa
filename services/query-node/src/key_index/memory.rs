//! The memory of all key indexes of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of pages that look-ups read at the same time: half of the requests that a node sends to one store
/// by default (`requests_max`), so that page reads leave the other half to everything else when the I/O nodes are away.
pub const PAGES_READING_MAX: usize = 64;

/// The memory of all key indexes of a node.
#[derive(Debug)]
pub struct KeyIndexMemory {
    /// The maximum, in bytes.
    pub max: u64,
    used: AtomicU64,
    /// Has a permit for each page that may be read at the same time.
    page_reads: Semaphore,
    /// Has one permit: runs are loaded, built and merged one at a time, so that the scratch memory of only one must
    /// fit.
    builder: Semaphore,
}

impl KeyIndexMemory {
    pub fn new(max: u64) -> Self {
        Self {
            max,
            used: AtomicU64::new(0),
            page_reads: Semaphore::new(PAGES_READING_MAX),
            builder: Semaphore::new(1),
        }
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits until no other run is being loaded, built or merged. The next caller waits until the permit is dropped.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.builder.acquire().await.expect("the semaphore is never closed")
    }

    /// Waits until another page may be read. The permit is for one page.
    pub async fn page_read(&self) -> SemaphorePermit<'_> {
        self.page_reads.acquire().await.expect("the semaphore is never closed")
    }

    /// Reserves `bytes`; `None` if they are not free.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reserved> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Reserved { memory: Arc::clone(self), bytes })
    }
}

/// Reserved bytes; returned when dropped.
#[derive(Debug)]
pub struct Reserved {
    memory: Arc<KeyIndexMemory>,
    bytes: u64,
}

impl Reserved {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the number of bytes. Returns false, and changes nothing, if they are not free.
    pub fn resize(&mut self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) => match self.memory.reserve(more) {
                Some(mut reserved) => self.bytes += std::mem::take(&mut reserved.bytes),
                None => return false,
            },
            None => {
                self.memory.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
                self.bytes = bytes;
            }
        }
        true
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let before = self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        assert!(before >= self.bytes, "more was returned than reserved");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_there_is() {
        let memory = Arc::new(KeyIndexMemory::new(100));
        let most = memory.reserve(70).unwrap();
        assert!(memory.reserve(31).is_none() && memory.reserve(u64::MAX).is_none());
        let rest = memory.reserve(30).unwrap();
        assert_eq!((memory.used(), most.bytes(), rest.bytes()), (100, 70, 30));
        drop(most);
        let mut rest = rest;
        assert!(!rest.resize(101) && rest.resize(90) && memory.used() == 90);
        assert!(rest.resize(10) && memory.used() == 10);
        drop(rest);
        assert_eq!(memory.used(), 0);
    }
}
