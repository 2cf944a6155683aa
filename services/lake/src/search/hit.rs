//! What searches find, and how it is read off Lance's answers.

use address::RowAddr;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt64Type};
use lance::dataset::scanner::Scanner;
use lance_core::{Error, ROW_ADDR, ROW_ID, Result};

use crate::table::Table;

/// Rows that a filter is evaluated over at a time. A kernel that runs can't be interrupted, so this bounds how long a
/// search goes on after its deadline, and what its intermediate results take.
const BATCH_ROWS: usize = 1024;

/// A row near the query vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistanceHit {
    /// The row.
    pub addr: RowAddr,
    /// By the column's metric, smaller is nearer. Approximate (by the compressed vectors) where an
    /// index answered, exact where rows were compared: L2 is squared, Cosine and Dot are one minus
    /// the similarity.
    pub distance: f32,
}

/// A row whose text matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreHit {
    /// The row.
    pub addr: RowAddr,
    /// BM25, larger is better.
    pub score: f32,
}

/// Makes `scanner` return nothing but addresses (and `extra`, the column of distances or scores).
///
/// Without stable row ids a row's id *is* its address, and asking for the id keeps the scanner from
/// planning a take; with them only the address will do.
pub(crate) fn only_addresses(table: &Table, scanner: &mut Scanner, extra: &[&str]) -> Result<()> {
    scanner.batch_size(BATCH_ROWS);
    scanner.disable_scoring_autoprojection().project(extra)?;
    if table.dataset().manifest().uses_stable_row_ids() {
        scanner.with_row_address();
    } else {
        scanner.with_row_id();
    }
    Ok(())
}

/// The addresses in an answer to a scanner that was set up by [`only_addresses`].
pub(crate) fn addresses(batch: &RecordBatch) -> Result<impl Iterator<Item = RowAddr> + '_> {
    let column = batch.column_by_name(ROW_ADDR).or_else(|| batch.column_by_name(ROW_ID));
    let column = column.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let column = column.ok_or_else(|| Error::internal("a search came without row addresses"))?;
    Ok(column.values().iter().copied().map(RowAddr::from_u64))
}

/// The distances or scores in an answer, row by row with [`addresses`].
pub(crate) fn numbers<'a>(batch: &'a RecordBatch, column: &str) -> Result<&'a [f32]> {
    let found =
        batch.column_by_name(column).and_then(|found| found.as_primitive_opt::<Float32Type>());
    Ok(found.ok_or_else(|| Error::internal(format!("a search came without {column}")))?.values())
}
