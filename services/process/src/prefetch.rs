//! Prefetch hints for the CPU's cache.

/// The size of a cache line on x86-64 and on nearly all aarch64 CPUs, in bytes.
const LINE_BYTES: usize = 64;

/// Asks the CPU to load `values` into its cache, without waiting for them. Prefetching several values before they are
/// used overlaps their memory latencies. Has no effect on CPUs other than x86-64 and aarch64.
pub fn prefetch<T>(values: &[T]) {
    let bytes = size_of_val(values);
    let start = values.as_ptr().cast::<u8>();
    for offset in (0..bytes).step_by(LINE_BYTES) {
        hint(start.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn hint(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch changes no memory and does not fault, whatever the address.
    #[allow(unsafe_code)]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn hint(line: *const u8) {
    // SAFETY: a prefetch changes no memory and does not fault, whatever the address.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn hint(_: *const u8) {}
