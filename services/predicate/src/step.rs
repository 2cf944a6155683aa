//! Predicates in the form in which they are sent.

use bytes::Bytes;

/// A condition on the values of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// The columns that the steps are about.
    pub columns: Vec<String>,
    /// The condition, in postfix order.
    pub steps: Vec<Step>,
}

/// A step of a predicate. A `column` is an index among the predicate's columns. A value has the bytes that the column's
/// type has in Arrow: little-endian numbers, one byte (0 or 1) for a Boolean, and the bytes of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Pushes whether the column's value is one of `values`.
    In {
        /// The column.
        column: usize,
        /// The values; at least one.
        values: Vec<Bytes>,
    },
    /// Pushes whether the column's value is less than `value`.
    Less {
        /// The column.
        column: usize,
        /// The value.
        value: Bytes,
    },
    /// Pushes whether the column's value is greater than `value`.
    Greater {
        /// The column.
        column: usize,
        /// The value.
        value: Bytes,
    },
    /// Pushes whether the column's value is null.
    IsNull {
        /// The column.
        column: usize,
    },
    /// Negates the topmost result.
    Not,
    /// Replaces the two topmost results by their conjunction.
    And,
    /// Replaces the two topmost results by their disjunction.
    Or,
}

impl Step {
    /// Returns the values that the step compares with.
    pub(crate) fn values(&self) -> &[Bytes] {
        match self {
            Self::In { values, .. } => values,
            Self::Less { value, .. } | Self::Greater { value, .. } => std::slice::from_ref(value),
            Self::IsNull { .. } | Self::Not | Self::And | Self::Or => &[],
        }
    }
}
