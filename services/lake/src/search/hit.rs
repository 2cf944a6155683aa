//! Search results, and how they are read from Lance's record batches.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;

use address::RowAddr;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt64Type};
use lance::Dataset;
use lance::dataset::scanner::Scanner;
use lance_core::{Error, ROW_ADDR, ROW_ID, Result};

/// Lance's name for the column of distances.
pub(crate) const DISTANCE: &str = "_distance";

/// Lance's name for the column of BM25 scores.
pub(crate) const SCORE: &str = "_score";

/// Number of rows over which a filter is evaluated at a time. The evaluation can't be interrupted, so this bounds how
/// long a search runs past its deadline, and the size of its intermediate results.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A row near the query vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistanceHit {
    /// The row.
    pub addr: RowAddr,
    /// The distance by the column's metric; smaller is nearer. It is approximate (from compressed vectors) if an index
    /// answered, and exact if the row itself was compared. L2 is squared; Cosine and Dot are one minus the similarity.
    pub distance: f32,
}

/// A row whose text matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreHit {
    /// The row.
    pub addr: RowAddr,
    /// The BM25 score; larger is better.
    pub score: f32,
}

impl DistanceHit {
    /// Compares two hits. The nearer one is `Less`; of two equally near ones, that with the lower address.
    pub(crate) fn rank(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.addr.cmp(&other.addr))
    }
}

impl ScoreHit {
    /// Compares two hits. The better one is `Less`, so that sorting puts it first.
    pub(crate) fn rank(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.addr.cmp(&other.addr))
    }
}

/// Adds `scores` to `best`. A row in both has the better score.
pub(crate) fn take_best<Row: Eq + Hash>(
    best: &mut HashMap<Row, f32>,
    scores: impl IntoIterator<Item = (Row, f32)>,
) {
    for (row, score) in scores {
        best.entry(row).and_modify(|it| *it = it.max(score)).or_insert(score);
    }
}

/// Makes `scanner` return only addresses and `extra`: the column of distances or scores, if there is one.
///
/// Without stable row ids a row's id *is* its address, and requesting the id keeps the scanner from planning a take.
/// With stable row ids, the address itself has to be requested.
pub(crate) fn only_addresses(
    dataset: &Dataset,
    scanner: &mut Scanner,
    extra: &[&str],
) -> Result<()> {
    scanner.batch_size(BATCH_ROWS);
    scanner.disable_scoring_autoprojection().project(extra)?;
    if dataset.manifest().uses_stable_row_ids() {
        scanner.with_row_address();
    } else {
        scanner.with_row_id();
    }
    Ok(())
}

/// Returns the addresses in a batch of a scanner that [`only_addresses`] set up.
pub(crate) fn addresses(batch: &RecordBatch) -> Result<impl Iterator<Item = RowAddr> + '_> {
    let column = batch.column_by_name(ROW_ADDR).or_else(|| batch.column_by_name(ROW_ID));
    let column = column.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let column = column.ok_or_else(|| Error::internal("a search returned no row addresses"))?;
    Ok(column.values().iter().copied().map(RowAddr::from_u64))
}

/// Returns the row ids in a batch: addresses, or stable row ids.
pub(crate) fn row_ids(batch: &RecordBatch) -> Result<&[u64]> {
    let ids = batch.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
    Ok(ids.ok_or_else(|| Error::internal("a search returned no row ids"))?.values())
}

/// Returns the distances or scores in a batch, in the order of [`addresses`].
pub(crate) fn f32_column<'a>(batch: &'a RecordBatch, column: &str) -> Result<&'a [f32]> {
    let found =
        batch.column_by_name(column).and_then(|found| found.as_primitive_opt::<Float32Type>());
    Ok(found.ok_or_else(|| Error::internal(format!("a search returned no {column}")))?.values())
}
