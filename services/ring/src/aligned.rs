//! Buffers that O_DIRECT accepts.
//!
//! This is the only module of the crate that allocates memory by hand. A buffer has one owner at a time.
//! During an operation the owner is the backend, so no other code in the process can read, write or free it.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use address::SECTOR_BYTES;

/// Size of a huge page on x86-64, and on aarch64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A buffer whose address and length are multiples of 4,096.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    /// The length of the allocation, up to which the buffer can be resized.
    capacity: usize,
    /// The region that the buffer is a part of, or `None` if it has an allocation of its own.
    region: Option<Arc<Region>>,
}

/// Memory of one or several buffers, which is freed when the last of these buffers is dropped. Nothing else points into
/// it.
enum Region {
    /// Memory from the allocator.
    Allocated(NonNull<u8>, Layout),
    /// Memory mapped from the kernel, with its length.
    Mapped(NonNull<u8>, usize),
}

impl Drop for Region {
    fn drop(&mut self) {
        match *self {
            // SAFETY: allocated in `AlignedBuf::in_huge_pages` with this layout, and freed once.
            Self::Allocated(start, layout) => unsafe { dealloc(start.as_ptr(), layout) },
            // SAFETY: mapped in `AlignedBuf::reserved` with this length, and unmapped once. If the call fails
            // (ENOMEM: the kernel can't split a mapping that it merged with a neighbour), the memory only stays
            // mapped.
            Self::Mapped(start, len) => unsafe {
                libc::munmap(start.as_ptr().cast(), len);
            },
        }
    }
}

// SAFETY: a region is only an address to free; its bytes belong to the buffers.
unsafe impl Send for Region {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Region {}

#[repr(align(4096))]
struct Sector(#[expect(dead_code)] [u8; SECTOR_BYTES]);

impl AlignedBuf {
    /// Allocates `len` bytes of zeros.
    ///
    /// # Panics
    ///
    /// If `len` is not a multiple of 4,096: see [`AlignedBuf::for_sectors`].
    pub fn zeroed(len: usize) -> Self {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes are not whole sectors");
        if len == 0 {
            return Self::empty();
        }
        let layout = layout(len);
        // SAFETY: the layout's size isn't 0.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(start) => Self { start, len, capacity: len, region: None },
            None => handle_alloc_error(layout),
        }
    }

    /// Allocates `count` buffers of `len` zero bytes each, in huge pages if the kernel has any. For the drive, a buffer
    /// of up to 2 MiB then consists of one or two contiguous pieces of memory instead of one piece per 4 KiB page. The
    /// buffers share one allocation, which is freed when the last buffer is dropped.
    ///
    /// # Panics
    ///
    /// If `len` is not a multiple of 4,096, or the buffers together exceed the address space.
    pub fn in_huge_pages(count: usize, len: usize) -> Vec<Self> {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes are not whole sectors");
        let bytes = count.checked_mul(len).expect("the buffers fit in the address space");
        if bytes == 0 {
            return (0..count).map(|_| Self::empty()).collect();
        }
        let layout =
            Layout::from_size_align(bytes.next_multiple_of(HUGE_PAGE_BYTES), HUGE_PAGE_BYTES)
                .expect("the buffers together are shorter than isize::MAX");
        // SAFETY: the layout's size isn't 0.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // This is only a hint. If it fails, the pages are merely smaller.
        // SAFETY: the range is this allocation, which begins at a page boundary, and the hint changes no
        // bytes.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        // SAFETY: the allocation has this many bytes, and nothing else refers to it yet.
        unsafe { start.write_bytes(0, layout.size()) };
        let region = Arc::new(Region::Allocated(start, layout));
        let part = |number: usize| Self {
            // SAFETY: `number` is less than `count`, so the part begins within the allocation.
            start: unsafe { start.add(number * len) },
            len,
            capacity: len,
            region: Some(Arc::clone(&region)),
        };
        (0..count).map(part).collect()
    }

    /// Reserves `len` bytes of zeros in the address space. A page takes physical memory only once it is accessed. The
    /// pages are huge if the kernel has any huge pages. The buffer begins at a huge page boundary, and shares none of
    /// its huge pages with other data.
    ///
    /// # Errors
    /// The error of mmap if there is not enough address space.
    ///
    /// # Panics
    ///
    /// If `len` is not a multiple of 4,096.
    pub fn reserved(len: usize) -> io::Result<Self> {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes are not whole sectors");
        if len == 0 {
            return Ok(Self::empty());
        }
        // Map one huge page more than needed, so that the buffer can begin at a huge page boundary.
        let mapped = len
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .and_then(|len| len.checked_add(HUGE_PAGE_BYTES))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: this makes a new anonymous mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // This is only a hint. If it fails, the pages are merely smaller.
        // SAFETY: the range is this mapping, and the hint changes no bytes.
        let _ = unsafe { libc::madvise(start, mapped, libc::MADV_HUGEPAGE) };
        let first = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Some(Arc::new(Region::Mapped(first, mapped)));
        // SAFETY: this moves the start by less than a huge page, so all of `len` lies within the mapping.
        let start = unsafe { first.add(first.align_offset(HUGE_PAGE_BYTES)) };
        Ok(Self { start, len, capacity: len, region })
    }

    /// Allocates `sectors` sectors of 4,096 zero bytes.
    pub fn for_sectors(sectors: usize) -> Self {
        Self::zeroed(sectors * SECTOR_BYTES)
    }

    /// Returns a buffer of no bytes, without an allocation.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::<Sector>::dangling().cast(), len: 0, capacity: 0, region: None }
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `capacity` bytes (dangling, aligned and not null for 0), and `len`
        // does not exceed that. The bytes were initialised when they were allocated. While `self` is
        // borrowed, its owner cannot hand the buffer to the kernel.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes for modification.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Changes the length, up to the length with which the buffer was allocated. Bytes beyond a shorter length are
    /// kept, and are visible again after the buffer has grown.
    ///
    /// # Panics
    ///
    /// If `len` is not a multiple of 4,096, or exceeds the allocated length.
    pub fn resize(&mut self, len: usize) {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes are not whole sectors");
        assert!(
            len <= self.capacity,
            "cannot resize a buffer to {len} bytes: it has {}",
            self.capacity
        );
        self.len = len;
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address, for the kernel.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, SECTOR_BYTES).expect("a buffer is shorter than isize::MAX")
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity > 0 && self.region.is_none() {
            // SAFETY: allocated in `zeroed` with this layout, and freed once, because `self` is the only
            // owner. While the kernel may access the bytes, the owner is a backend, and it drops a buffer, or
            // its part of a region, only after the operation has completed.
            unsafe { dealloc(self.start.as_ptr(), layout(self.capacity)) }
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
    fn a_buffer_is_aligned_and_zeroed() {
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
    fn buffers_of_one_region_are_disjoint_and_independent() {
        for (count, sectors) in [(0, 1), (3, 0), (5, 3), (9, 64)] {
            let mut bufs = AlignedBuf::in_huge_pages(count, sectors * SECTOR_BYTES);
            assert_eq!(bufs.len(), count);
            for (number, buf) in bufs.iter_mut().enumerate() {
                assert_eq!(buf.address() as usize % SECTOR_BYTES, 0);
                assert_eq!(buf.as_slice(), vec![0; sectors * SECTOR_BYTES]);
                buf.fill(number as u8 + 1);
            }
            let last = bufs.pop();
            assert!(bufs.iter().zip(1..).all(|(buf, byte)| buf.iter().all(|&it| it == byte)));
            drop(bufs);
            assert!(last.is_none_or(|buf| buf.iter().all(|&it| usize::from(it) == count)));
        }
    }

    #[test]
    fn reserved_memory_is_used_only_when_accessed() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * SECTOR_BYTES
        };
        let before = resident();
        let mut buf = AlignedBuf::reserved(1 << 30).unwrap();
        assert_eq!(buf.address() as usize % HUGE_PAGE_BYTES, 0);
        for at in [0, 1 << 29, (1 << 30) - 1] {
            assert_eq!(buf[at], 0);
            buf[at] = 7;
            assert_eq!(buf[at], 7);
        }
        assert!(resident() < before + (512 << 20));
        assert!(AlignedBuf::reserved(1 << 62).is_err());
        assert!(AlignedBuf::reserved(0).unwrap().is_empty());
    }

    #[test]
    fn shrinking_a_buffer_keeps_the_hidden_bytes() {
        let mut buf = AlignedBuf::for_sectors(3);
        buf.fill(7);
        buf.resize(SECTOR_BYTES);
        assert_eq!(buf.as_slice(), [7; SECTOR_BYTES]);
        buf.fill(8);
        buf.resize(3 * SECTOR_BYTES);
        assert_eq!((buf[SECTOR_BYTES - 1], buf[SECTOR_BYTES]), (8, 7));
    }

    #[test]
    #[should_panic(expected = "cannot resize a buffer to 8192 bytes: it has 4096")]
    fn growing_beyond_the_allocated_length_panics() {
        AlignedBuf::for_sectors(1).resize(2 * SECTOR_BYTES);
    }

    #[test]
    #[should_panic(expected = "whole sectors")]
    fn a_length_of_partial_sectors_panics() {
        AlignedBuf::zeroed(100);
    }
}
