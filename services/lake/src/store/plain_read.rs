//! Plain reads, which a cache may answer: those that ask for bytes only.

use std::ops::Range;

use object_store::{GetOptions, GetRange};

/// Returns whether a read asks for bytes only, without conditions.
pub fn is_plain(options: &GetOptions) -> bool {
    let GetOptions { if_match, if_none_match, version, head, .. } = options;
    let has_no_tag = if_match.is_none() && if_none_match.is_none() && version.is_none();
    let has_no_date = options.if_modified_since.is_none() && options.if_unmodified_since.is_none();
    !head && has_no_tag && has_no_date
}

/// Returns the requested bytes of a file of `size` bytes. `None` if there are none: the store then says what is wrong.
pub fn range_within(range: Option<&GetRange>, size: u64) -> Option<Range<u64>> {
    let range = match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(&GetRange::Offset(start)) => start..size,
        Some(&GetRange::Suffix(bytes)) => size.saturating_sub(bytes)..size,
    };
    (range.start < range.end).then_some(range)
}
