//! Buffers that O_DIRECT accepts.
//!
//! The only place of the crate that allocates by hand. A buffer has one owner at a time; during an
//! operation the owner is the backend, so nothing can read, write or free it from this side.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use address::SECTOR_BYTES;

/// What a huge page of x86-64, and of aarch64 with pages of 4 KiB, has.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A heap buffer that begins at a multiple of 4,096 and is a multiple of 4,096 bytes long.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    /// How long it may become.
    capacity: usize,
    /// What it is a part of, if it wasn't allocated by itself.
    region: Option<Arc<Region>>,
}

/// What buffers are parts of; freed with the last of them, which alone point into it.
enum Region {
    /// Of the allocator.
    Allocated(NonNull<u8>, Layout),
    /// Of the kernel, and how long it is.
    Mapped(NonNull<u8>, usize),
}

impl Drop for Region {
    fn drop(&mut self) {
        match *self {
            // SAFETY: allocated in `AlignedBuf::parts_of_huge_pages` with this layout, and freed once.
            Self::Allocated(start, layout) => unsafe { dealloc(start.as_ptr(), layout) },
            // SAFETY: mapped in `AlignedBuf::reserved` with this length, and unmapped once. It fails only for what isn't a
            // mapping.
            Self::Mapped(start, len) => unsafe {
                libc::munmap(start.as_ptr().cast(), len);
            },
        }
    }
}

// SAFETY: a region is but an address to free; its bytes belong to the buffers.
unsafe impl Send for Region {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Region {}

#[repr(align(4096))]
struct Sector(#[expect(dead_code)] [u8; SECTOR_BYTES]);

impl AlignedBuf {
    /// `len` bytes, all zero.
    ///
    /// # Panics
    ///
    /// If `len` isn't a multiple of 4,096: see [`AlignedBuf::for_sectors`].
    pub fn zeroed(len: usize) -> Self {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes aren't whole sectors");
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

    /// `count` buffers of `len` bytes each, all zero, that lie in huge pages where the kernel has them: each is one piece
    /// of memory to a drive then, in place of one a page. They are of one allocation, freed with the last of them.
    ///
    /// # Panics
    ///
    /// If `len` isn't a multiple of 4,096, or they come to more bytes than there are addresses.
    pub fn parts_of_huge_pages(count: usize, len: usize) -> Vec<Self> {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes aren't whole sectors");
        let bytes =
            count.checked_mul(len).expect("buffers of fewer bytes than there are addresses");
        if bytes == 0 {
            return (0..count).map(|_| Self::empty()).collect();
        }
        let layout =
            Layout::from_size_align(bytes.next_multiple_of(HUGE_PAGE_BYTES), HUGE_PAGE_BYTES)
                .expect("buffers come to less than isize::MAX");
        // SAFETY: the layout's size isn't 0.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // A hint, without which all is the same but for the pages' size.
        // SAFETY: the range is this allocation's, which begins with a page, and the hint changes no byte.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        // SAFETY: the allocation has as many bytes, and nothing else knows of them.
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

    /// `len` bytes, all zero, of which each huge page is taken from the machine when it is first used, where the kernel has
    /// huge pages. None of them is for another's use, whatever the kernel's policy makes of pages that are next to each
    /// other.
    ///
    /// # Errors
    /// What the kernel says when there is no room for so many addresses.
    ///
    /// # Panics
    ///
    /// If `len` isn't a multiple of 4,096.
    pub fn reserved(len: usize) -> io::Result<Self> {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes aren't whole sectors");
        if len == 0 {
            return Ok(Self::empty());
        }
        // Room to begin with a huge page.
        let mapped = len
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .and_then(|len| len.checked_add(HUGE_PAGE_BYTES))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, of no file, at an address that is the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A hint, without which all is the same but for the pages' size.
        // SAFETY: the range is this mapping's, and the hint changes no byte.
        let _ = unsafe { libc::madvise(start, mapped, libc::MADV_HUGEPAGE) };
        let first = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Some(Arc::new(Region::Mapped(first, mapped)));
        // SAFETY: at most a huge page less one byte further on, so all of `len` lies within the mapping.
        let start = unsafe { first.add(first.align_offset(HUGE_PAGE_BYTES)) };
        Ok(Self { start, len, capacity: len, region })
    }

    /// `sectors` sectors of 4,096 bytes, all zero.
    pub fn for_sectors(sectors: usize) -> Self {
        Self::zeroed(sectors * SECTOR_BYTES)
    }

    /// No bytes, and no allocation.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::<Sector>::dangling().cast(), len: 0, capacity: 0, region: None }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes (dangling, aligned and not null for 0), which is at most `capacity`; they
        // were initialised when they were allocated, and the borrow of `self` keeps the owner from handing
        // the buffer to the kernel meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Makes it `len` bytes long, no longer than it was at first. What comes back after it was shorter is as it was.
    ///
    /// # Panics
    ///
    /// If `len` isn't a multiple of 4,096, or is more than that.
    pub fn resize(&mut self, len: usize) {
        assert!(len.is_multiple_of(SECTOR_BYTES), "{len} bytes aren't whole sectors");
        assert!(len <= self.capacity, "{len} bytes of a buffer of {}", self.capacity);
        self.len = len;
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
        if self.capacity > 0 && self.region.is_none() {
            // SAFETY: allocated in `zeroed` with the same layout, and freed once: `self` is the only owner. While the
            // kernel may touch the bytes the owner is a backend, which drops a buffer, or its share of a region, only
            // after its completion.
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
    fn parts_are_apart_and_outlive_each_other() {
        for (count, sectors) in [(0, 1), (3, 0), (5, 3), (9, 64)] {
            let mut bufs = AlignedBuf::parts_of_huge_pages(count, sectors * SECTOR_BYTES);
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
    fn what_is_reserved_is_taken_as_it_is_used() {
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
    fn a_shorter_one_keeps_what_it_does_not_show() {
        let mut buf = AlignedBuf::for_sectors(3);
        buf.fill(7);
        buf.resize(SECTOR_BYTES);
        assert_eq!(buf.as_slice(), [7; SECTOR_BYTES]);
        buf.fill(8);
        buf.resize(3 * SECTOR_BYTES);
        assert_eq!((buf[SECTOR_BYTES - 1], buf[SECTOR_BYTES]), (8, 7));
    }

    #[test]
    #[should_panic(expected = "8192 bytes of a buffer of 4096")]
    fn refuses_to_grow() {
        AlignedBuf::for_sectors(1).resize(2 * SECTOR_BYTES);
    }

    #[test]
    #[should_panic(expected = "whole sectors")]
    fn refuses_odd_lengths() {
        AlignedBuf::zeroed(100);
    }
}
