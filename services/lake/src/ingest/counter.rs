//! A reader that counts its bytes.

use std::io::{Read, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes read so far. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// A reader that adds the number of bytes read from `inner` to a count.
pub(crate) struct Counter<R> {
    inner: R,
    bytes: BytesRead,
}

impl<R> Counter<R> {
    pub(crate) fn new(inner: R, bytes: BytesRead) -> Self {
        Self { inner, bytes }
    }
}

impl<R: Read> Read for Counter<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let read = self.inner.read(into)?;
        self.bytes.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: std::io::Seek> std::io::Seek for Counter<R> {
    fn seek(&mut self, to: std::io::SeekFrom) -> Result<u64> {
        self.inner.seek(to)
    }
}
