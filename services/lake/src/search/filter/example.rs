//! An example of a filter, for error messages.

/// Advice at the end of error messages.
pub(super) const EXAMPLE: &str = "write it like `price > 3 AND name = 'x'`";
