//! Conditions on the values of columns. I/O nodes evaluate them for the rows that they have, and query nodes for rows
//! whose I/O nodes did not. Both use this code.
//!
//! A [`Predicate`] names its columns. Its steps are in postfix order: a condition on a column pushes a result for each
//! row, and `Not`, `And` and `Or` replace the topmost results. `price > 3 AND NOT name IN ('x', 'y')` is
//!
//! ```text
//! Greater(price, 3)  In(name, x, y)  Not  And
//! ```
//!
//! A result is true, false or null, by the rules of SQL: a comparison with null is null, and a row passes if the last
//! result is true. Values are compared by Arrow's kernels, which DataFusion uses too: texts by their bytes, and
//! floating point numbers in the total order of IEEE 754, in which `-0.0 < 0.0`, and a NaN is equal to itself,
//! greater than all numbers if its sign is positive, and less than all if it is negative. Before a predicate is made of
//! a filter (`lake`), Lance rewrites comparisons with zero so that `-0.0` and `0.0` count as equal.
//!
//! Invariants: the work for a row is bounded by [`STEPS_MAX`] and the logarithm of [`VALUES_MAX`], because values are
//! sorted once for each predicate; a step list that is not a condition on the given columns is refused before it is
//! evaluated. The crate is pure.

mod error;
mod evaluator;
mod step;
mod values;

pub use error::PredicateError;
pub use evaluator::Evaluator;
pub use step::{Predicate, Step};
pub use values::can_compare;

/// Maximum number of steps of a predicate.
pub const STEPS_MAX: usize = 128;

/// Maximum number of values in all steps of a predicate together.
pub const VALUES_MAX: usize = 1_024;

/// Maximum size in bytes of all values of a predicate together.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
