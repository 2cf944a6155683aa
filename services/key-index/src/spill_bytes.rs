//! Pages of spilled entries: 341 entries of 12 bytes, then 4 bytes 0. Free entries of the last page are 0.
//!
//! ```text
//!  0  u32  bucket
//!  4  u32  tag
//!  8  u32  rank
//! ```

use crate::line::PAGE_BYTES;
use crate::spill::Spilled;

/// The bytes of a spilled entry.
const SPILLED_BYTES: usize = 12;

/// The number of spilled entries that a page holds.
pub const SPILLED_A_PAGE: usize = PAGE_BYTES / SPILLED_BYTES;

/// Returns the bytes of the page with these entries.
pub fn to_page(entries: &[Spilled]) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    for (entry, bytes) in entries.iter().zip(page.as_chunks_mut::<SPILLED_BYTES>().0) {
        let words = [entry.bucket, entry.tag, entry.rank].map(u32::to_le_bytes);
        bytes.copy_from_slice(words.as_flattened());
    }
    page
}

/// Appends the first `count` entries of a page to `entries`. All bytes after these entries must be 0.
pub fn from_page(
    page: &[u8],
    count: usize,
    entries: &mut Vec<Spilled>,
) -> Result<(), &'static str> {
    let (used, free) = page.split_at(count * SPILLED_BYTES);
    if free.iter().any(|&byte| byte != 0) {
        return Err("bytes behind the spilled entries are not empty");
    }
    entries.extend(used.as_chunks::<SPILLED_BYTES>().0.iter().map(|bytes| {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        Spilled { bucket: word(0), tag: word(4), rank: word(8) }
    }));
    Ok(())
}
