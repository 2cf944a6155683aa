//! Appends columns of looked-up rows to a stream of record batches.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, Field, Schema};
use arrow_select::filter::filter;
use arrow_select::take::take;
use futures::future::try_join_all;
use futures::{Stream, TryStreamExt, stream};
use wire::{Fault, Reason};

use super::call::GottenRows;
use super::lookup::{Lookup, keys_of};

/// The maximum number of rows that are looked up as one batch.
const BATCH_ROWS: usize = 1024;

/// The number of batches that are looked up at the same time. Only these batches, and the input batches that they are
/// slices of, are in memory. Their keys take half of the credit of a Lookup stream (65,536 keys).
const BATCHES_IN_FLIGHT: usize = 32;

/// The columns of one table that are appended.
pub struct Append {
    /// The open projection, in Arrow, of the columns to append.
    pub lookup: Lookup,
    /// The column of the input that has the keys.
    pub on: String,
}

/// Looks up the keys of each row of `input` in the tables of `appends`, and appends the columns of the rows that are
/// found. The rows of `input` keep their order. A row whose key is null or is not found gets nulls. Batches may become
/// smaller.
///
/// # Errors
/// `COLUMN_NOT_FOUND` if the input lacks a column of keys; `BAD_ARGUMENT` if it already has a column that is to be
/// appended, if its keys have a type that can't be looked up, or if a projection does not return its rows in Arrow; the
/// errors of `input` and of [`Lookup::get`].
pub fn append_columns(
    input: impl Stream<Item = Result<RecordBatch, Fault>>,
    appends: Arc<[Append]>,
) -> impl Stream<Item = Result<RecordBatch, Fault>> {
    let parts = |batch: RecordBatch| {
        let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
        let part = move |start| Ok(batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start)));
        stream::iter(starts.map(part))
    };
    let appended = move |part| {
        let appends = Arc::clone(&appends);
        async move { appended(part, &appends).await }
    };
    input.map_ok(parts).try_flatten().map_ok(appended).try_buffered(BATCHES_IN_FLIGHT)
}

async fn appended(rows: RecordBatch, appends: &[Append]) -> Result<RecordBatch, Fault> {
    let found = try_join_all(appends.iter().map(|append| found(&rows, append))).await?;
    let (mut fields, mut columns) = (rows.schema().fields().to_vec(), rows.columns().to_vec());
    for found in found {
        for (field, column) in found.schema().fields().iter().zip(found.columns()) {
            if fields.iter().any(|known| known.name() == field.name()) {
                let name = field.name();
                let message =
                    format!("the rows have a column `{name}` already; don't append another");
                return Err(Fault::new(Reason::BadArgument, message).with("column", name));
            }
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    let schema = Schema::new_with_metadata(fields, rows.schema().metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(internal)
}

/// Returns, for each of `rows`, the columns of the table's row that has the same key, or nulls.
async fn found(rows: &RecordBatch, append: &Append) -> Result<RecordBatch, Fault> {
    let Append { lookup, on } = append;
    let keys = rows.column_by_name(on).ok_or_else(|| {
        let schema = rows.schema();
        let columns: Vec<_> =
            schema.fields().iter().map(|field| format!("`{}`", field.name())).collect();
        let columns = columns.join(", ");
        let message = format!("the rows have no column `{on}` of keys; they have {columns}");
        Fault::new(Reason::ColumnNotFound, message).with("column", on)
    })?;
    let asked = without_nulls(keys).map_err(internal)?;
    let (found, not_found) = match asked.is_empty() {
        true => (RecordBatch::new_empty(lookup.schema().ok_or_else(not_arrow)?), Vec::new()),
        false => {
            let answer = lookup.get(keys_of(&asked)?).await?;
            (arrow(answer.rows)?, answer.not_found)
        }
    };
    let mut not_found = not_found.into_iter().peekable();
    let (mut key, mut row) = (0, 0);
    let places = (0..keys.len()).map(|at| {
        if keys.is_null(at) {
            return None;
        }
        let place = match not_found.next_if_eq(&key) {
            Some(_) => None,
            None => {
                row += 1;
                Some(row - 1)
            }
        };
        key += 1;
        place
    });
    let places: UInt32Array = places.collect();
    let column = |column: &ArrayRef| take(column, &places, None).map_err(internal);
    let columns = found.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let fields = found.schema();
    let fields = fields.fields().iter().map(|field| Field::clone(field).with_nullable(true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(internal)
}

/// Returns the values of an array that are not null.
///
/// # Errors
/// If Arrow can't filter the type.
pub fn without_nulls(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.nulls() {
        None => Ok(Arc::clone(array)),
        Some(nulls) => filter(array, &BooleanArray::new(nulls.inner().clone(), None)),
    }
}

fn arrow(rows: Option<GottenRows>) -> Result<RecordBatch, Fault> {
    match rows {
        Some(GottenRows::Arrow(rows)) => Ok(rows),
        Some(GottenRows::Json(_)) | None => Err(not_arrow()),
    }
}

fn not_arrow() -> Fault {
    Fault::new(Reason::BadArgument, "columns can be appended only if rows are returned in Arrow")
}

fn internal(error: ArrowError) -> Fault {
    Fault::new(Reason::Internal, error.to_string())
}
