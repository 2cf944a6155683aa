//! Appends columns of looked-up rows to a stream of record batches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use address::without;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, Field, Schema};
use arrow_select::filter::filter;
use arrow_select::take::{take, take_record_batch};
use futures::future::try_join_all;
use futures::{Stream, TryStreamExt, stream};
use tokio::time::{Instant, sleep_until};
use wire::{Fault, Reason, bytes_of_arrays};

use super::batch_size::BatchSize;
use super::call::GottenRows;
use super::keys::keys_of;
use super::lasting_lookup::{LastingLookup, LookupFailure};
use super::lookup::{LookedUp, Lookup, damaged};

/// The maximum number of rows that are looked up as one batch.
const BATCH_ROWS: usize = 1024;

/// The number of batches that are looked up at the same time. Only these batches, and the input batches that they are
/// slices of, are in memory. Their keys take half of the credit of a Lookup stream (65,536 keys).
const BATCHES_IN_FLIGHT: usize = 32;

/// The number of rows of the first batches. These are looked up before anything is known about the size of rows, so
/// they have together as many rows as one batch may have.
const FIRST_BATCH_ROWS: usize = BATCH_ROWS / BATCHES_IN_FLIGHT;

/// The size of a batch's columns in bytes above which the following batches get half as many rows. So the batches in
/// flight have 256 MiB together, or at most twice that after rows have become larger.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The time for which look-ups that are refused because of load or a limit, or that the node does not answer because it
/// is away, are repeated without any success, if the projection has no timeout of its own. A node restarts within
/// seconds, and its queues drain in less than a second. With a limit of rows per second, a batch waits for the rows of
/// earlier ones, which a node looks up together, up to 4,096: this is enough from 100 rows per second on.
pub(super) const REFUSED_MAX: Duration = Duration::from_secs(60);

/// The maximum number of batches in flight if all rows of each key are returned: each answer may be as large as a
/// message, 256 MiB.
const ALL_ROWS_BATCHES_IN_FLIGHT: usize = 4;

/// The columns of one table that are appended.
pub struct Append {
    /// The open projection, in Arrow, of the columns to append.
    pub lookup: Lookup,
    /// The column of the input that has the keys.
    pub on: String,
    /// Counts the keys of the rows that the stream has returned.
    pub counts: Arc<KeyCounts>,
}

/// The number of keys of an input, as far as it was looked up.
#[derive(Debug, Default)]
pub struct KeyCounts {
    keys: AtomicU64,
    found: AtomicU64,
}

impl KeyCounts {
    /// Returns the number of rows of the input that have a key.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of rows of the input whose key is in a row of the table.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    fn add(&self, matched: Matched) {
        self.keys.fetch_add(matched.keys, Ordering::Relaxed);
        self.found.fetch_add(matched.found, Ordering::Relaxed);
    }
}

/// The number of some rows that have a key, and of those whose key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched {
    keys: u64,
    found: u64,
}

/// Looks up the keys of each row of `input` in the tables of `appends`, and appends the columns of the rows that are
/// found. The rows of `input` keep their order. A row whose key is null or is not found gets nulls. If a projection
/// returns all rows of each key, a row of `input` is repeated for each row that has its key. Batches may become
/// smaller. Look-ups that a node refuses because of load or a limit, or does not answer because it stops or the
/// connection ends, are repeated, for as long as the timeout of the projections, or [`REFUSED_MAX`], lasts. Projections
/// are opened on another stream then; they should name a version, so that all rows are of the same one.
///
/// # Errors
/// `COLUMN_NOT_FOUND` if the input lacks a column of keys; `BAD_ARGUMENT` if it already has a column that is to be
/// appended, if its keys have a type that can't be looked up, if a projection does not return its rows in Arrow, or if
/// a projection of several returns all rows of each key; the errors of `input` and of [`Lookup::get`].
pub fn append_columns(
    input: impl Stream<Item = Result<RecordBatch, Fault>>,
    appends: Arc<[Append]>,
) -> impl Stream<Item = Result<RecordBatch, Fault>> {
    let all_rows = appends.iter().any(|append| append.lookup.returns_all_rows());
    let in_flight = if all_rows { ALL_ROWS_BATCHES_IN_FLIGHT } else { BATCHES_IN_FLIGHT };
    let size = Mutex::new(BatchSize::new(FIRST_BATCH_ROWS, BATCH_ROWS));
    let lasting = |append: &Append| LastingLookup::new(append.lookup.clone());
    let lookups = appends.iter().map(lasting).collect();
    let asked = Arc::new(Asked { appends, lookups, size });
    let sized = Arc::clone(&asked);
    let parts = move |batch| stream::iter(parts(batch, Arc::clone(&sized)).map(Ok));
    let (looking_up, counted) = (Arc::clone(&asked), Arc::clone(&asked));
    let looked_up = move |rows| {
        let asked = Arc::clone(&looking_up);
        async move { Part::looked_up(rows, &asked).await }
    };
    let looked_up = input.map_ok(parts).try_flatten().map_ok(looked_up).try_buffered(in_flight);
    // Batches whose answers are too large are halved, refused batches are looked up again, and rows are repeated, only
    // when it is their turn: the batches that were looked up ahead hold no more than an answer each, and a node that
    // refuses batches gets one at a time.
    let found = move |part| {
        let asked = Arc::clone(&asked);
        stream::try_unfold(vec![part], move |waiting| next_found(waiting, Arc::clone(&asked)))
    };
    let joined = move |(rows, found): (RecordBatch, Found)| {
        // A batch that is halved is looked up again, so only what is returned counts.
        for (append, matched) in counted.appends.iter().zip(&found.matched) {
            append.counts.add(*matched);
        }
        stream::iter(found.beside(rows))
    };
    looked_up.map_ok(found).try_flatten().map_ok(joined).try_flatten()
}

/// The columns to append, and the size of the batches that are looked up for them.
struct Asked {
    appends: Arc<[Append]>,
    /// The projections of `appends`.
    lookups: Vec<LastingLookup>,
    size: Mutex<BatchSize>,
}

impl Asked {
    fn size(&self) -> MutexGuard<'_, BatchSize> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time for which refused look-ups are repeated.
    fn refused_max(&self) -> Duration {
        let timeouts = self.lookups.iter().filter_map(LastingLookup::timeout);
        timeouts.min().unwrap_or(REFUSED_MAX)
    }
}

/// Divides a batch. Each part has the size that is current when it is taken.
fn parts(batch: RecordBatch, asked: Arc<Asked>) -> impl Iterator<Item = RecordBatch> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rows = asked.size().rows().min(batch.num_rows() - start);
        let part = (rows > 0).then(|| batch.slice(start, rows));
        start += rows;
        part
    })
}

/// A part of a batch.
enum Part {
    /// Its keys were not looked up.
    Unknown(RecordBatch),
    /// The keys, or the answer, are too large for one message.
    TooLarge(RecordBatch),
    /// The node has refused to look its keys up, or was away. They are looked up again at `retry_at`.
    Refused { rows: RecordBatch, retry_at: Instant, fault: Fault },
    /// The rows of its keys were found.
    Known(RecordBatch, Found),
}

impl Part {
    async fn looked_up(rows: RecordBatch, asked: &Asked) -> Result<Self, Fault> {
        let count = rows.num_rows();
        let LookupFailure { fault, retry_at } = match found_for(&rows, asked).await {
            Ok(found) if bytes_of_arrays(found.columns.columns()) > BATCH_BYTES_MAX => {
                asked.size().too_large(count);
                return Ok(Self::Known(rows, found));
            }
            Ok(found) => {
                asked.size().fitted(count);
                return Ok(Self::Known(rows, found));
            }
            Err(failure) => failure,
        };
        match retry_at {
            Some(retry_at) => {
                // A node that lacks memory for many rows may have enough for fewer. One whose queue is full gains nothing
                // from many tiny batches.
                if fault.reason == Reason::Overloaded && count > FIRST_BATCH_ROWS {
                    asked.size().too_large(count);
                }
                Ok(Self::Refused { rows, retry_at, fault })
            }
            None if fault.reason == Reason::TooLarge && count > 1 => {
                asked.size().too_large(count);
                Ok(Self::TooLarge(rows))
            }
            None => Err(fault),
        }
    }
}

/// Returns the next rows with what was found for them, and the parts that follow. `waiting` has the parts, the last
/// one first. Halves parts that are too large, and parts that are larger than others that were. Looks refused parts up
/// again.
async fn next_found(
    mut waiting: Vec<Part>,
    asked: Arc<Asked>,
) -> Result<Option<((RecordBatch, Found), Vec<Part>)>, Fault> {
    let refused_until = Instant::now() + asked.refused_max();
    while let Some(part) = waiting.pop() {
        match part {
            Part::Known(rows, found) => return Ok(Some(((rows, found), waiting))),
            Part::Refused { fault, retry_at, .. } if retry_at > refused_until => return Err(fault),
            Part::Refused { rows, retry_at, .. } => {
                sleep_until(retry_at).await;
                waiting.push(Part::Unknown(rows));
            }
            Part::Unknown(rows) if rows.num_rows() <= asked.size().rows() => {
                waiting.push(Part::looked_up(rows, &asked).await?);
            }
            Part::Unknown(rows) | Part::TooLarge(rows) => {
                let half = rows.num_rows() / 2;
                waiting.push(Part::Unknown(rows.slice(half, rows.num_rows() - half)));
                waiting.push(Part::Unknown(rows.slice(0, half)));
            }
        }
    }
    Ok(None)
}

/// Returns the columns of all appends for `rows`.
async fn found_for(rows: &RecordBatch, asked: &Asked) -> Result<Found, LookupFailure> {
    let Asked { appends, lookups, .. } = asked;
    if appends.len() > 1 && appends.iter().any(|append| append.lookup.returns_all_rows()) {
        let message = "all rows of a key can be appended from one table at a time; append the \
                       columns of the other tables to the result";
        return Err(Fault::new(Reason::BadArgument, message).into());
    }
    let each = appends.iter().zip(lookups);
    let found = try_join_all(each.map(|(append, lookup)| found(rows, append, lookup))).await?;
    let together = |one: Found, other: Found| {
        let columns = beside(&one.columns, &other.columns)?;
        let matched = [one.matched, other.matched].concat();
        Ok(Found { repeated: one.repeated, columns, matched })
    };
    let all = found.into_iter().map(Ok).reduce(|one, other| together(one?, other?));
    all.unwrap_or_else(|| Ok(Found::nothing(rows.num_rows())))
}

/// Returns `rows` with the columns of `more`, which has as many rows.
fn beside(rows: &RecordBatch, more: &RecordBatch) -> Result<RecordBatch, Fault> {
    let (mut fields, mut columns) = (rows.schema().fields().to_vec(), rows.columns().to_vec());
    for (field, column) in more.schema().fields().iter().zip(more.columns()) {
        if fields.iter().any(|known| known.name() == field.name()) {
            let name = field.name();
            let message = format!("the rows have a column `{name}` already; don't append another");
            return Err(Fault::new(Reason::BadArgument, message).with("column", name));
        }
        fields.push(Arc::clone(field));
        columns.push(Arc::clone(column));
    }
    let schema = Schema::new_with_metadata(fields, rows.schema().metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(internal)
}

/// The columns to append to some rows.
struct Found {
    /// If a row may have several matches, the position of the row for each row of `columns`. `None` if each row has one
    /// row of `columns`.
    repeated: Option<UInt32Array>,
    columns: RecordBatch,
    /// The keys of each table that columns are appended from.
    matched: Vec<Matched>,
}

impl Found {
    /// No columns for `rows` rows.
    fn nothing(rows: usize) -> Self {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns =
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
        let columns = columns.expect("a batch without columns has any length");
        Self { repeated: None, columns, matched: Vec::new() }
    }

    /// Returns `rows` with the columns, in batches of at most [`BATCH_ROWS`] rows.
    fn beside(self, rows: RecordBatch) -> impl Iterator<Item = Result<RecordBatch, Fault>> {
        let starts = (0..self.columns.num_rows()).step_by(BATCH_ROWS);
        starts.map(move |start| {
            let count = BATCH_ROWS.min(self.columns.num_rows() - start);
            let columns = self.columns.slice(start, count);
            match &self.repeated {
                None => beside(&rows.slice(start, count), &columns),
                Some(repeated) => {
                    let rows = take_record_batch(&rows, &repeated.slice(start, count));
                    beside(&rows.map_err(internal)?, &columns)
                }
            }
        })
    }
}

/// Returns, for each of `rows`, the columns of the table's row that has the same key, or of all such rows, or nulls.
async fn found(
    rows: &RecordBatch,
    append: &Append,
    lasting: &LastingLookup,
) -> Result<Found, LookupFailure> {
    let Append { lookup, on, .. } = append;
    let keys = rows.column_by_name(on).ok_or_else(|| {
        let schema = rows.schema();
        let columns: Vec<_> =
            schema.fields().iter().map(|field| format!("`{}`", field.name())).collect();
        let columns = columns.join(", ");
        let message = format!("the rows have no column `{on}` of keys; they have {columns}");
        Fault::new(Reason::ColumnNotFound, message).with("column", on)
    })?;
    let asked = without_nulls(keys).map_err(internal)?;
    let (found, row_keys) = match asked.is_empty() {
        true => (RecordBatch::new_empty(lookup.schema().ok_or_else(not_arrow)?), Vec::new()),
        false => {
            let answer = lasting.get(keys_of(&asked)?).await?;
            let LookedUp { rows, row_keys, not_found, unread, .. } = answer;
            if let Some(unread) = unread {
                return Err(unread.fault.into());
            }
            let rows = arrow(rows)?;
            let row_keys = match lookup.returns_all_rows() {
                true => row_keys,
                false => without(0..asked.len() as u32, &not_found).collect(),
            };
            if row_keys.len() != rows.num_rows() {
                return Err(damaged("it does not have the rows of its keys").into());
            }
            (rows, row_keys)
        }
    };
    let matches = Matches::of(keys, &row_keys)?;
    // If each of `rows` has a row of its own, these are in its order.
    let is_in_order = !lookup.returns_all_rows() && row_keys.len() == keys.len();
    let column = |column: &ArrayRef| match is_in_order {
        true => Ok(Arc::clone(column)),
        false => take(column, &matches.found, None).map_err(internal),
    };
    let columns = found.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let fields = found.schema();
    let fields = fields.fields().iter().map(|field| Field::clone(field).with_nullable(true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(matches.found.len()));
    let columns = RecordBatch::try_new_with_options(Arc::new(schema), columns, &options);
    let repeated = lookup.returns_all_rows().then_some(matches.rows);
    let matched = Matched { keys: asked.len() as u64, found: matches.keys_found };
    Ok(Found { repeated, columns: columns.map_err(internal)?, matched: vec![matched] })
}

/// The matches of rows with the rows that were found for their keys.
struct Matches {
    /// The position of the row of each match. A row without a match is there once.
    rows: UInt32Array,
    /// The position of the found row of each match, or null.
    found: UInt32Array,
    /// The number of rows that have a match.
    keys_found: u64,
}

impl Matches {
    /// `row_keys` has, for each row that was found, the position of its key among those that are not null, ascending.
    ///
    /// # Errors
    /// If a position is not that of a key, or the positions are not ascending.
    fn of(keys: &ArrayRef, row_keys: &[u32]) -> Result<Self, Fault> {
        let (mut rows, mut found) =
            (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        let mut row_keys = (0..).zip(row_keys).peekable();
        let (mut key, mut keys_found) = (0, 0);
        let nulls = keys.logical_nulls();
        for at in 0..keys.len() {
            let matched = found.len();
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at)) {
                while let Some((row, _)) = row_keys.next_if(|(_, of)| **of == key) {
                    rows.push(at as u32);
                    found.push(Some(row));
                }
                key += 1;
            }
            if found.len() == matched {
                rows.push(at as u32);
                found.push(None);
            } else {
                keys_found += 1;
            }
        }
        match row_keys.next() {
            None => Ok(Self { rows: rows.into(), found: found.into(), keys_found }),
            Some(_) => Err(damaged("its rows are not in the order of their keys")),
        }
    }
}

/// Returns the values of an array that are not null. An entry of a dictionary array is also null if its value is.
///
/// # Errors
/// If Arrow can't filter the type.
pub fn without_nulls(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.logical_nulls() {
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

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int32Array, Int64Array, StringArray};
    use wire::query::lookup_batch::Keys;

    use super::*;

    #[test]
    fn each_row_is_there_once_or_as_often_as_it_is_matched() {
        let keys: ArrayRef =
            Arc::new(Int64Array::from(vec![None, Some(7), Some(8), None, Some(9), Some(7)]));
        let matches = Matches::of(&keys, &[0, 0, 2, 3, 3, 3]).unwrap();
        assert_eq!(matches.rows, UInt32Array::from(vec![0, 1, 1, 2, 3, 4, 5, 5, 5]));
        let found = [None, Some(0), Some(1), None, None, Some(2), Some(3), Some(4), Some(5)];
        assert_eq!(matches.found, UInt32Array::from(found.to_vec()));
        assert_eq!(matches.keys_found, 3);
        assert_eq!(Matches::of(&keys, &[]).unwrap().found.null_count(), keys.len());
    }

    #[test]
    fn a_value_of_a_dictionary_may_be_null() {
        let (keys, values) =
            (vec![Some(0), Some(1), None, Some(2)], vec![Some("a"), None, Some("b")]);
        let values = Arc::new(StringArray::from(values));
        let keys: ArrayRef =
            Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(keys), values));
        let asked = without_nulls(&keys).unwrap();
        let Keys::Strings(strings) = keys_of(&asked).unwrap() else { panic!("they are text") };
        assert_eq!((&strings.data[..], strings.lengths), (&b"ab"[..], vec![1, 1]));
        let matches = Matches::of(&keys, &[0, 1]).unwrap();
        assert_eq!(matches.found, UInt32Array::from(vec![Some(0), None, None, Some(1)]));
        assert_eq!(matches.keys_found, 2);
    }

    #[test]
    fn rows_of_no_key_are_refused() {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(7), Some(8)]));
        // The first positions are not ascending, and the others are not those of keys.
        for row_keys in [&[1, 0][..], &[0, 1, 0], &[2], &[0, 1, 2]] {
            let fault = Matches::of(&keys, row_keys).err().unwrap();
            assert_eq!(fault.reason, Reason::Internal);
            assert!(
                fault.message.contains("answer is damaged: its rows are not in the"),
                "{fault}"
            );
        }
    }
}
