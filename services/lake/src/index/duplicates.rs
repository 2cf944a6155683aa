//! Finds keys that more than one row has, and rows without a key.
//!
//! Only the key column is read. It is sorted, on disk if it doesn't fit into [`SORT_BYTES`], so that equal keys follow
//! each other. This is exact for any number of rows. A set of hashes would save the sort, but it grows with the table,
//! and equal hashes do not prove equal keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::partition;
use arrow::util::display::array_value_to_string;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;
use futures::TryStreamExt;
use lance::dataset::scanner::ColumnOrdering;

use super::progress::Reporter;
use crate::error::{LakeError, Result};
use crate::table::Table;

/// The maximum memory of the sort, in bytes. Keys that don't fit go to temporary files.
const SORT_BYTES: usize = 256 << 20;

/// The name of this step in progress reports, in the style of Lance's names.
const STAGE: &str = "check_keys";

/// Keys that aren't unique. Of the rows with such a key, look-ups find the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKeys {
    /// The number of keys that more than one row has.
    pub keys: u64,
    /// The number of rows with one of these keys.
    pub rows: u64,
    /// One of the keys, in the form that look-ups take.
    pub example: String,
}

/// Finds the duplicates among the live rows of `table`. Errors: `ColumnNotFound`, `NullKeys`, and those of the store.
pub(crate) async fn find(
    table: &Table,
    column: &str,
    reporter: &Reporter,
) -> Result<Option<DuplicateKeys>> {
    table.column_position(column)?;
    let blame = |error| table.blame(error);
    let plan = sorted(table, column).await.map_err(blame)?;
    let mut tally = Tally::default();
    let mut rows = 0;
    let pool = Arc::new(FairSpillPool::new(SORT_BYTES));
    let scan = async {
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let context = TaskContext::default().with_runtime(runtime);
        let mut batches = plan.execute(0, Arc::new(context))?;
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows() as u64;
            tally.add(batch.column(0))?;
            reporter.report(STAGE, rows, false);
        }
        Ok((tally.nulls, tally.end()?))
    };
    let (nulls, found) = scan.await.map_err(blame)?;
    reporter.report(STAGE, rows, true);
    match nulls {
        0 => Ok(found),
        rows => Err(LakeError::NullKeys {
            uri: table.uri().to_owned(),
            column: column.to_owned(),
            rows,
        }),
    }
}

/// Plans a scan of the column in ascending order, nulls first, as one partition.
async fn sorted(table: &Table, column: &str) -> lance::Result<Arc<dyn ExecutionPlan>> {
    let mut scanner = table.dataset().scan();
    let order = ColumnOrdering::asc_nulls_first(column.to_owned());
    scanner.project(&[column])?.order_by(Some(vec![order]))?;
    Box::pin(scanner.create_plan()).await
}

/// Counts duplicates in sorted keys that arrive batch by batch.
#[derive(Default)]
struct Tally {
    keys: u64,
    rows: u64,
    nulls: u64,
    example: Option<String>,
    /// The last key, and the number of rows with it so far: the next batch may begin with the same key.
    last: Option<(ArrayRef, u64)>,
}

impl Tally {
    fn add(&mut self, column: &ArrayRef) -> lance::Result<()> {
        let nulls = column.null_count();
        self.nulls += nulls as u64;
        let keys = column.slice(nulls, column.len() - nulls);
        let runs = partition(std::slice::from_ref(&keys))?.ranges();
        for (at, run) in runs.iter().enumerate() {
            let mut length = run.len() as u64;
            if at == 0
                && let Some((last, before)) = self.last.take()
            {
                if is_same(&last, &keys)? {
                    length += before;
                } else {
                    self.close(&last, before)?;
                }
            }
            if at + 1 == runs.len() {
                self.last = Some((keys.slice(run.start, 1), length));
            } else if length > 1 {
                self.close(&keys.slice(run.start, 1), length)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, key: &ArrayRef, rows: u64) -> lance::Result<()> {
        if rows > 1 {
            self.keys += 1;
            self.rows += rows;
            if self.example.is_none() {
                self.example = Some(array_value_to_string(key, 0)?);
            }
        }
        Ok(())
    }

    fn end(mut self) -> lance::Result<Option<DuplicateKeys>> {
        if let Some((key, rows)) = self.last.take() {
            self.close(&key, rows)?;
        }
        let Self { keys, rows, example, .. } = self;
        Ok(example.map(|example| DuplicateKeys { keys, rows, example }))
    }
}

/// Returns whether two arrays begin with the same value.
fn is_same(a: &ArrayRef, b: &ArrayRef) -> lance::Result<bool> {
    Ok(ScalarValue::try_from_array(a, 0)? == ScalarValue::try_from_array(b, 0)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, Int64Array};

    use super::*;

    fn tallied(batches: &[ArrayRef]) -> Option<(u64, u64, String)> {
        let mut tally = Tally::default();
        batches.iter().for_each(|batch| tally.add(batch).unwrap());
        assert_eq!(tally.nulls, batches.iter().map(|batch| batch.null_count() as u64).sum::<u64>());
        tally.end().unwrap().map(|it| (it.keys, it.rows, it.example))
    }

    fn numbers(numbers: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(numbers.to_vec()))
    }

    #[test]
    fn runs_are_counted_across_batches() {
        assert_eq!(tallied(&[]), None);
        assert_eq!(tallied(&[numbers(&[Some(1), Some(2)]), numbers(&[Some(3)])]), None);
        let batches = [
            numbers(&[None, None]),
            numbers(&[None, Some(1), Some(2)]),
            numbers(&[Some(2)]),
            numbers(&[]),
            numbers(&[Some(2), Some(3), Some(4), Some(4)]),
            numbers(&[Some(5), Some(6), Some(6)]),
        ];
        assert_eq!(tallied(&batches), Some((3, 7, "2".into())));
        let hex: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"\x0a\xff", b"\x0a\xff"]));
        assert_eq!(tallied(&[hex]), Some((1, 2, "0aff".into())), "the form that look-ups take");
    }
}
