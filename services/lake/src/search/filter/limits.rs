//! What a filter may have, in all.

/// Bytes of a filter: 16,000 keys of 12 bytes each in an `IN` list.
pub(super) const BYTES_MAX: usize = 256 << 10;

/// Tokens of a filter. An item of an `IN` list has two.
pub(super) const TOKENS_MAX: usize = 32_768;

/// Height of the expression, counted as the module's head says. Of all constructs (`lake/tests/lake/deep_filters.rs`) a
/// chain of `NOT` needs most stack: 2.1 MiB in a development build, an eighth of [`STACK_BYTES`](crate::STACK_BYTES).
pub(super) const HEIGHT_MAX: usize = 24;

/// Terms that `AND` and `OR` join, in the whole filter. DataFusion's optimiser looks at each several times: 1,024 terms
/// took a development build 0.6 to 2.2 s.
pub(super) const TERMS_MAX: usize = 1024;

/// Operators and calls of the whole filter: each is a pass over every batch of rows.
pub(super) const PASSES_MAX: usize = 4096;

/// Calls of functions and `LIKE`s in the whole filter: unlike most operators they read, and may make, whole texts.
pub(super) const CALLS_MAX: usize = 128;

/// How deep comparisons, `BETWEEN`, `IN` and calls of several arguments may stand in each other. The optimiser writes
/// `x BETWEEN a AND b` as two comparisons of `x`, a short `IN` as up to three, `coalesce` as a condition and a value:
/// each level multiplies what is below. 16 `BETWEEN`s in a chain were planned for 85 s.
pub(super) const COPIES_MAX: usize = 4;

/// Texts that are joined by `||` and `concat` in the whole filter, which bounds what a batch of rows grows to.
pub(super) const JOINS_MAX: usize = 16;

/// Bytes of all `LIKE` patterns, texts that are looked for in columns, and JSON paths: the cost of a row is the product of
/// this and the row's bytes, and patterns are compiled anew for each batch.
pub(super) const PATTERN_BYTES_MAX: usize = 4096;

/// Values of a list that a column's lists are compared with: each is compared with each item of a row.
pub(super) const LIST_ITEMS_MAX: usize = 64;

/// Whether an expression is not too high.
pub(super) fn check_height(height: usize) -> Result<(), String> {
    match height > HEIGHT_MAX {
        true => Err(format!(
            "it is nested or chained deeper than {HEIGHT_MAX} levels; write it flatter, with `AND`, `OR` and `IN`"
        )),
        false => Ok(()),
    }
}

/// Whether what the optimiser copies doesn't stand in itself too deep.
pub(super) fn check_copies(depth: usize) -> Result<(), String> {
    match depth > COPIES_MAX {
        true => Err(format!(
            "comparisons, lists and calls of several arguments stand in each other deeper than {COPIES_MAX} levels"
        )),
        false => Ok(()),
    }
}
