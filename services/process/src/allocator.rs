//! Settings of the C library's allocator.

/// The maximum free memory at the top of a heap that glibc keeps instead of returning it to the system, in bytes. 256
/// MiB are enough for more than 100 replies of 1 to 2 MB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 256 << 20;

/// The largest allocation that glibc serves from a heap instead of with `mmap`, in bytes. This is the highest value
/// that glibc accepts.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAP_BYTES_MAX: i32 = 32 << 20;

/// Returns freed memory to the system. Meant for the time after a peak: it takes milliseconds, in which other threads
/// may wait for the allocator. Has no effect without glibc.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: malloc_trim takes a number, has no preconditions and may be called on any thread.
        #[allow(unsafe_code)]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Makes the allocator keep freed memory for later allocations.
///
/// Replies of a megabyte are allocated and freed a thousand times a second. By default glibc returns their pages to
/// the system each time, and the kernel zeroes them again, which takes much of a client's CPU
/// (`docs/performance.md`). The price is that resident memory stays near its peak until [`give_back_memory`] is called.
/// Has no effect without glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: mallopt takes two numbers and has no other preconditions. It may be called at any time and
        // ignores invalid numbers.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, HEAP_BYTES_MAX);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        }
    }
}
