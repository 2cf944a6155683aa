//! Evaluates a predicate for rows.

use std::cmp::Ordering;

use arrow_arith::boolean::{and_kleene, is_null, not, or_kleene};
use arrow_array::{Array, ArrayRef, BooleanArray, Scalar};
use arrow_ord::cmp;
use arrow_ord::ord::make_comparator;
use arrow_schema::{ArrowError, DataType, SortOptions};

use crate::values::{array_of, can_compare};
use crate::{PredicateError, STEPS_MAX, Step, VALUE_BYTES_MAX, VALUES_MAX};

/// A predicate that was checked against the types of its columns.
#[derive(Debug)]
pub struct Evaluator {
    steps: Vec<Checked>,
}

#[derive(Debug)]
enum Checked {
    Equal(usize, Scalar<ArrayRef>),
    /// Has several values, and their positions in ascending order of the values.
    In(usize, ArrayRef, Vec<usize>),
    Less(usize, Scalar<ArrayRef>),
    Greater(usize, Scalar<ArrayRef>),
    IsNull(usize),
    Not,
    And,
    Or,
}

impl Evaluator {
    /// Checks `steps` against the types of the columns that they are about.
    ///
    /// # Errors
    /// The steps are not a condition on these columns, or a bound is exceeded.
    pub fn new(steps: &[Step], columns: &[&DataType]) -> Result<Self, PredicateError> {
        if steps.len() > STEPS_MAX {
            return Err(PredicateError::TooManySteps(steps.len()));
        }
        let values = || steps.iter().flat_map(Step::values);
        if values().count() > VALUES_MAX {
            return Err(PredicateError::TooManyValues(values().count()));
        }
        let bytes = values().map(bytes::Bytes::len).sum();
        if bytes > VALUE_BYTES_MAX {
            return Err(PredicateError::TooManyBytes(bytes));
        }
        let (mut checked, mut results) = (Vec::with_capacity(steps.len()), 0_usize);
        for (at, step) in steps.iter().enumerate() {
            let (taken, step) = check(at, step, columns)?;
            results = results.checked_sub(taken).ok_or(PredicateError::TooFewResults(at))? + 1;
            checked.push(step);
        }
        match results {
            1 => Ok(Self { steps: checked }),
            _ => Err(PredicateError::NotOneResult(results)),
        }
    }

    /// Returns the positions of the rows that pass, ascending. `columns` have the types that the predicate was checked
    /// against, and equal lengths.
    ///
    /// # Errors
    /// A column has another type.
    pub fn passing(&self, columns: &[ArrayRef]) -> Result<Vec<u32>, ArrowError> {
        let column = |at: usize| columns.get(at).ok_or_else(|| missing("column"));
        let mut results: Vec<BooleanArray> = Vec::new();
        for step in &self.steps {
            let result = match step {
                Checked::Equal(at, value) => cmp::eq(column(*at)?, value)?,
                Checked::In(at, values, sorted) => is_in(column(*at)?, values, sorted)?,
                Checked::Less(at, value) => cmp::lt(column(*at)?, value)?,
                Checked::Greater(at, value) => cmp::gt(column(*at)?, value)?,
                Checked::IsNull(at) => is_null(column(*at)?)?,
                Checked::Not => not(&pop(&mut results)?)?,
                Checked::And => and_kleene(&pop(&mut results)?, &pop(&mut results)?)?,
                Checked::Or => or_kleene(&pop(&mut results)?, &pop(&mut results)?)?,
            };
            results.push(result);
        }
        let last = pop(&mut results)?;
        Ok((0_u32..).zip(&last).filter(|(_, is)| *is == Some(true)).map(|(row, _)| row).collect())
    }
}

/// Checks one step. Returns the number of earlier results that the step replaces, and the checked step.
fn check(
    at: usize,
    step: &Step,
    columns: &[&DataType],
) -> Result<(usize, Checked), PredicateError> {
    let type_of = |column: usize| match columns.get(column) {
        Some(of) => Ok(*of),
        None => Err(PredicateError::NoColumn { step: at, column, columns: columns.len() }),
    };
    let values = |column: usize| {
        let (of, values) = (type_of(column)?, step.values());
        if !can_compare(of) {
            return Err(PredicateError::NotComparable { step: at, of: of.clone() });
        }
        let bad = |bytes| PredicateError::BadValue { step: at, bytes, of: of.clone() };
        array_of(of, values).map_err(bad)
    };
    Ok(match step {
        Step::In { values: given, .. } if given.is_empty() => {
            return Err(PredicateError::WrongValues { step: at, values: 0 });
        }
        Step::In { column, values: given } => match given.len() {
            1 => (0, Checked::Equal(*column, Scalar::new(values(*column)?))),
            _ => {
                let values = values(*column)?;
                let not_comparable =
                    |_| PredicateError::NotComparable { step: at, of: values.data_type().clone() };
                let sorted = sorted(&values).map_err(not_comparable)?;
                (0, Checked::In(*column, values, sorted))
            }
        },
        Step::Less { column, .. } => (0, Checked::Less(*column, Scalar::new(values(*column)?))),
        Step::Greater { column, .. } => {
            (0, Checked::Greater(*column, Scalar::new(values(*column)?)))
        }
        Step::IsNull { column } => {
            type_of(*column)?;
            (0, Checked::IsNull(*column))
        }
        Step::Not => (1, Checked::Not),
        Step::And => (2, Checked::And),
        Step::Or => (2, Checked::Or),
    })
}

fn pop(results: &mut Vec<BooleanArray>) -> Result<BooleanArray, ArrowError> {
    // The steps were checked.
    results.pop().ok_or_else(|| missing("result"))
}

/// Returns the error for a column or result that is missing, which is a defect: a checked predicate has all of them.
fn missing(what: &str) -> ArrowError {
    ArrowError::ComputeError(format!("a {what} of the predicate is missing; this is a defect"))
}

/// Returns the positions of `values` in ascending order of the values.
fn sorted(values: &ArrayRef) -> Result<Vec<usize>, ArrowError> {
    let compare = make_comparator(values, values, SortOptions::default())?;
    let mut sorted: Vec<usize> = (0..values.len()).collect();
    sorted.sort_unstable_by(|&a, &b| compare(a, b));
    Ok(sorted)
}

/// Returns for each row whether its value is one of `values`; null if the row's value is null. `sorted` has the
/// positions of `values` in ascending order of the values.
fn is_in(
    column: &ArrayRef,
    values: &ArrayRef,
    sorted: &[usize],
) -> Result<BooleanArray, ArrowError> {
    let compare = make_comparator(column, values, SortOptions::default())?;
    let is_one = |row: usize| {
        let order = |&value: &usize| -> Ordering { compare(row, value).reverse() };
        column.is_valid(row).then(|| sorted.binary_search_by(order).is_ok())
    };
    Ok((0..column.len()).map(is_one).collect())
}

#[cfg(test)]
#[path = "evaluator_tests.rs"]
mod tests;
