//! How the C library's allocator treats memory that is given back.

/// Memory at the top of a heap that isn't returned to the system, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 256 << 20;

/// The largest allocation that comes from a heap, in bytes; the most that glibc allows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAP_BYTES_MAX: i32 = 32 << 20;

/// Has freed memory kept for what is allocated next.
///
/// Replies of a megabyte come and go a thousand times a second. glibc would return their pages each time,
/// and the kernel would zero them again: much of a client's CPU (`docs/performance.md`). A process's
/// resident memory stays near its peak for that. Does nothing where there is no glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: mallopt takes two numbers and has no other preconditions; it may be called at any
        // time. A number that it doesn't like is ignored.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, HEAP_BYTES_MAX);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        }
    }
}
