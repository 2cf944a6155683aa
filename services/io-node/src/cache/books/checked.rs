//! Arithmetic on counts that must not fall below zero. If a count would, the books are wrong and can't be relied on, so
//! [`less`] panics, in release builds too.

/// Returns `count - by`. `what` says in the panic's message what is counted.
pub fn less(count: u64, by: u64, what: &str) -> u64 {
    count.checked_sub(by).unwrap_or_else(|| panic!("{what}: {count} - {by} is below zero"))
}
