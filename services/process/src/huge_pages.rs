//! Huge pages for large tables.

/// Asks the system to back `values` with huge pages (2 MiB on x86-64) as they are first written. Random reads of a
/// table of a few hundred megabytes then rarely wait for address translation. Pages that `values` covers only in part
/// stay as they are. Has no effect if the system refuses or has no such call. Best called before the memory is written,
/// with the spare capacity of a vector.
#[cfg(target_os = "linux")]
pub fn prefer_huge_pages<T>(values: &mut [T]) {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let Some(page) = page.and_then(|page| usize::try_from(page).ok()) else { return };
    let start = values.as_mut_ptr().addr();
    let skipped = start.next_multiple_of(page) - start;
    let Some(bytes) = size_of_val(values).checked_sub(skipped) else { return };
    let from = values.as_mut_ptr().wrapping_byte_add(skipped);
    // SAFETY: the range lies within `values`, which are borrowed, and the advice changes neither contents nor access.
    #[allow(unsafe_code)]
    unsafe {
        libc::madvise(from.cast(), bytes / page * page, libc::MADV_HUGEPAGE);
    }
}

/// Does nothing: only Linux takes this advice.
#[cfg(not(target_os = "linux"))]
pub fn prefer_huge_pages<T>(_: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_keeps_the_contents() {
        for len in [0, 1, 5_000, 6 << 20] {
            let mut bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            prefer_huge_pages(&mut bytes);
            assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == i as u8));
        }
    }
}
