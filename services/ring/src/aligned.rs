//! Buffers that O_DIRECT accepts.
//!
//! The only place of the crate that allocates by hand. A buffer has one owner at a time; during an
//! operation the owner is the backend, so nothing can read, write or free it from this side. Huge
//! pages would be a second constructor here.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use address::SECTOR_BYTES;

/// A heap buffer that begins at a multiple of 4,096 and is a multiple of 4,096 bytes long.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

#[repr(align(4096))]
struct Sector(#[expect(dead_code)] [u8; SECTOR_BYTES]);

impl AlignedBuf {
    /// `len` bytes, all zero.
    ///
    /// # Panics
    ///
    /// If `len` isn't a multiple of 4,096: see [`AlignedBuf::for_sectors`].
    pub fn zeroed(len: usize) -> Self {
        // SAFETY: the layout's size isn't 0.
        Self::own(len, |layout| unsafe { alloc_zeroed(layout) })
    }

    /// A copy of `bytes`.
    ///
    /// # Panics
    ///
    /// If their number isn't a multiple of 4,096.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::own(bytes.len(), |layout| {
            // SAFETY: the layout's size isn't 0.
            let start = unsafe { alloc(layout) };
            if !start.is_null() {
                // SAFETY: `start` is the beginning of as many bytes that nothing else knows of, so `bytes` are others.
                unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), layout.size()) };
            }
            start
        })
    }

    /// `len` bytes that `allocate` hands over, all of them written to.
    fn own(len: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Self {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes aren't whole sectors");
        if len == 0 {
            return Self::empty();
        }
        let layout = layout(len);
        match NonNull::new(allocate(layout)) {
            Some(start) => Self { start, len },
            None => handle_alloc_error(layout),
        }
    }

    /// `sectors` sectors of 4,096 bytes, all zero.
    pub fn for_sectors(sectors: usize) -> Self {
        Self::zeroed(sectors * SECTOR_BYTES)
    }

    /// No bytes, and no allocation.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::<Sector>::dangling().cast(), len: 0 }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes (dangling, aligned and not null for 0), they
        // were initialised when they were allocated, and the borrow of `self` keeps the owner from handing
        // the buffer to the kernel meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For the kernel.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, SECTOR_BYTES).expect("a buffer is shorter than isize::MAX")
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `own` with the same layout, and freed once: `self` is the only owner. While the
            // kernel may touch the bytes the owner is a backend, which drops a buffer only after its completion.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
        }
    }
}

// SAFETY: the buffer owns its bytes like a `Box<[u8]>`, and no thread keeps a pointer to them.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_at_a_sector_and_is_zero() {
        for sectors in [0, 1, 3, 64] {
            let mut buf = AlignedBuf::for_sectors(sectors);
            assert_eq!(buf.address() as usize % SECTOR_BYTES, 0);
            assert_eq!(buf.len(), sectors * SECTOR_BYTES);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(7);
            assert!(buf.as_slice().iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn a_copy_begins_at_a_sector_and_is_the_same() {
        for sectors in [0, 1, 3] {
            let bytes: Vec<u8> = (0..sectors * SECTOR_BYTES).map(|at| (at % 251) as u8).collect();
            let buf = AlignedBuf::copy_of(&bytes);
            assert_eq!(buf.address() as usize % SECTOR_BYTES, 0);
            assert_eq!(buf.as_slice(), bytes);
        }
    }

    #[test]
    #[should_panic(expected = "whole sectors")]
    fn refuses_odd_lengths() {
        AlignedBuf::zeroed(100);
    }

    #[test]
    #[should_panic(expected = "whole sectors")]
    fn refuses_copies_of_odd_lengths() {
        AlignedBuf::copy_of(&[0; 100]);
    }
}
