//! Arithmetic on counts that must not fall below zero. If a count would, the books are wrong, and nothing that they say
//! can be relied on. So [`less`] panics then, in release builds too.

/// Subtracts from a count of `what`.
pub fn less(count: u64, by: u64, what: &str) -> u64 {
    count.checked_sub(by).unwrap_or_else(|| panic!("{what}: {count} - {by} is below zero"))
}
