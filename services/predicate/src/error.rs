//! Reasons why a predicate is refused.

use arrow_schema::DataType;

use crate::{STEPS_MAX, VALUE_BYTES_MAX, VALUES_MAX};

/// The reason why steps are not a predicate on the given columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredicateError {
    /// There are too many steps.
    #[error("the predicate has {0} steps; at most {STEPS_MAX} are allowed")]
    TooManySteps(usize),
    /// There are too many values.
    #[error("the predicate has {0} values; at most {VALUES_MAX} are allowed")]
    TooManyValues(usize),
    /// The values are too long.
    #[error("the predicate's values have {0} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    TooManyBytes(usize),
    /// A step needs more results than the steps before it have left.
    #[error("step {0} of the predicate has too few results before it")]
    TooFewResults(usize),
    /// The steps do not leave exactly one result.
    #[error("the predicate's steps leave {0} results; they have to leave one")]
    NotOneResult(usize),
    /// A step names a column that does not exist.
    #[error(
        "step {step} of the predicate is about column {column}; the number of columns is {columns}"
    )]
    NoColumn {
        /// The step.
        step: usize,
        /// The column that it names.
        column: usize,
        /// The number of columns.
        columns: usize,
    },
    /// The values of a column have no order.
    #[error("step {step} of the predicate compares a column of {of}, which can't be compared")]
    NotComparable {
        /// The step.
        step: usize,
        /// The column's type.
        of: DataType,
    },
    /// A comparison has no value, or several where one is needed.
    #[error("step {step} of the predicate has {values} values to compare with")]
    WrongValues {
        /// The step.
        step: usize,
        /// The number of its values.
        values: usize,
    },
    /// A value is not valid for the column's type.
    #[error("a value of {bytes} bytes in step {step} of the predicate is not a valid {of}")]
    BadValue {
        /// The step.
        step: usize,
        /// The value's length.
        bytes: usize,
        /// The column's type.
        of: DataType,
    },
}
