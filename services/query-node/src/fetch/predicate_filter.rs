//! Filters in the forms in which I/O nodes and this query node evaluate them for single rows. Pure.
//!
//! Both use the same code, so who answers does not change which rows pass.

use arrow_array::RecordBatch;
use client::fetch::Predicate as WirePredicate;
use predicate::{Evaluator, Predicate, Step};
use wire::fetch::{PredicateOp, PredicateStep};

use super::join::present;
use crate::error::{QueryError, Result};
use crate::tables::{OpenTable, row_bytes};

/// Maximum number of rows of the table for which this node evaluates a filter at a time.
const TABLE_ROWS_AT_ONCE: usize = 4_096;

/// The approximate maximum size in bytes of the rows of the table for which this node evaluates a filter at a time.
const TABLE_BYTES_AT_ONCE: usize = 1 << 20;

/// A filter in the form in which it is evaluated for single rows.
pub struct PredicateFilter {
    /// The columns that it reads.
    pub columns: Vec<String>,
    /// Its form on the wire.
    pub wire: WirePredicate,
    evaluator: Evaluator,
    /// The approximate size of a row's columns, in bytes.
    row_bytes: usize,
}

impl PredicateFilter {
    /// Checks `predicate` against the columns of `open`.
    ///
    /// # Errors
    /// `ColumnNotFound`, or `Server` if the predicate does not fit the columns' types, which is a bug.
    pub fn new(open: &OpenTable, predicate: &Predicate) -> Result<Self> {
        let schema = open.wire_schema_of(&predicate.columns)?;
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type()).collect();
        let evaluator = Evaluator::new(&predicate.steps, &types);
        let evaluator = evaluator.map_err(|error| QueryError::Server(error.to_string()))?;
        let wire = WirePredicate { steps: predicate.steps.iter().map(to_wire).collect() };
        let columns = predicate.columns.clone();
        // Columns without a fixed size may take up the whole packed row.
        let row_bytes = row_bytes(&schema).unwrap_or(open.packed_row_bytes);
        Ok(Self { columns, wire, evaluator, row_bytes })
    }

    /// Returns the number of rows of the table for which this node evaluates the filter at a time.
    pub fn rows_at_once(&self) -> usize {
        (TABLE_BYTES_AT_ONCE / self.row_bytes.max(1)).clamp(1, TABLE_ROWS_AT_ONCE)
    }

    /// Returns the approximate size of the columns of `rows` rows, in bytes.
    pub fn bytes_of(&self, rows: usize) -> usize {
        rows.saturating_mul(self.row_bytes)
    }

    /// Returns the positions, among `rows` requested rows, of those that pass. `batch` has the requested rows without
    /// those at the positions `missing`.
    pub fn passing(&self, rows: usize, missing: &[u32], batch: &RecordBatch) -> Result<Vec<u32>> {
        let passing = self.evaluator.passing(batch.columns())?;
        if missing.is_empty() {
            return Ok(passing);
        }
        let present: Vec<u32> = present(rows, missing).map(|at| at as u32).collect();
        Ok(passing.into_iter().filter_map(|row| present.get(row as usize).copied()).collect())
    }
}

fn to_wire(step: &Step) -> PredicateStep {
    let (op, column, values) = match step {
        Step::In { column, values } => (PredicateOp::In, *column, values.clone()),
        Step::Less { column, value } => (PredicateOp::Less, *column, vec![value.clone()]),
        Step::Greater { column, value } => (PredicateOp::Greater, *column, vec![value.clone()]),
        Step::IsNull { column } => (PredicateOp::IsNull, *column, Vec::new()),
        Step::Not => (PredicateOp::Not, 0, Vec::new()),
        Step::And => (PredicateOp::And, 0, Vec::new()),
        Step::Or => (PredicateOp::Or, 0, Vec::new()),
    };
    PredicateStep { op: op.into(), column: column as u32, values }
}
