//! The limits of a whole filter.

/// Maximum bytes of a filter: an `IN` list of 16,000 keys of 12 bytes fits.
pub(super) const BYTES_MAX: usize = 256 << 10;

/// Maximum number of tokens. An item of an `IN` list has two.
pub(super) const TOKENS_MAX: usize = 32_768;

/// Maximum height of the expression, counted as the head of `tokens.rs` says. Of all constructs
/// (`lake/tests/lake/deep_filters.rs`), a chain of `NOT` needs the most stack: 2.1 MiB in a development build, an
/// eighth of [`STACK_BYTES`](crate::STACK_BYTES).
pub(super) const HEIGHT_MAX: usize = 24;

/// Maximum number of `AND`s and `OR`s, which join terms. DataFusion's optimiser visits each term several times: 1,024
/// terms took a development build 0.6 to 2.2 s.
pub(super) const TERMS_MAX: usize = 1024;

/// Maximum number of operators and calls: each is a pass over every batch of rows.
pub(super) const PASSES_MAX: usize = 4096;

/// Maximum number of function calls and `LIKE`s: unlike most operators, they read, and may produce, whole strings.
pub(super) const CALLS_MAX: usize = 128;

/// Maximum nesting of comparisons, `BETWEEN`, `IN`, `IS DISTINCT FROM` and calls with several arguments. The optimiser
/// rewrites `x BETWEEN a AND b` as two comparisons of `x`, a short `IN` as up to three, and `coalesce` as a condition
/// and a value, so each level multiplies the size of the levels below it. Planning a chain of 16 `BETWEEN`s took 85 s.
pub(super) const COPIES_MAX: usize = 4;

/// Maximum number of `||`s and of arguments of `concat` together, which bounds how large a batch of rows grows.
pub(super) const JOINS_MAX: usize = 16;

/// Maximum bytes of all `LIKE` patterns, strings to search for, JSON paths and types of `arrow_cast` together: the cost
/// of a row is at most the product of this and the row's bytes, and patterns are compiled anew for each batch.
pub(super) const PATTERN_BYTES_MAX: usize = 4096;

/// Maximum number of values in the second argument of `array_has_any` and similar functions: each value is compared
/// with each item of the list in each row. Lists of `IN` may be longer.
pub(super) const LIST_ITEMS_MAX: usize = 64;

/// Maximum precision of Arrow's 128-bit decimals.
pub(super) const DECIMAL_DIGITS_MAX: u8 = 38;

/// The maximum `n` of the type `FixedSizeBinary(n)`, to which a filter may cast, in bytes: the length of a long hash
/// (SHA-512). Even a NULL of this type takes `n` bytes in each row.
pub(super) const BINARY_BYTES_MAX: u8 = 64;

/// Checks the height of an expression.
pub(super) fn check_height(height: usize) -> Result<(), String> {
    match height > HEIGHT_MAX {
        true => Err(format!(
            "it is nested or chained deeper than {HEIGHT_MAX} levels; write it flatter, with `AND`, `OR` and `IN`"
        )),
        false => Ok(()),
    }
}

/// Checks the nesting of operators whose operands the optimiser copies.
pub(super) fn check_copies(depth: usize) -> Result<(), String> {
    match depth > COPIES_MAX {
        true => Err(format!(
            "comparisons, lists and calls of several arguments are nested deeper than {COPIES_MAX} levels"
        )),
        false => Ok(()),
    }
}
