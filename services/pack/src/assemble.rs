//! Assembles rows, as they arrive from drives, into the columns of a reply.
//!
//! ```text
//! new      takes each row's length from the index of its extent and allocates the buffers
//! put      copies the row's values to their positions in the final Arrow buffers if all projected columns have fixed
//!          width, or if the pack's only column is binary or text, such as a blob
//!          decodes a whole row at once if all rows before it were decoded, as rows from RAM mostly arrive
//!          otherwise stages the row, because the positions of its values depend on the rows before it
//!          (a piece of a fixed-width row with a header is staged too)
//! finish   decodes staged rows in order; a position that was not put completely is an error, unless the index says
//!          that its row is null
//! ```
//!
//! Rows may come from extents of different forms. They may arrive in any order, and in pieces. Nothing is allocated per
//! row.
//!
//! Callers check sectors ([`ExtentIndex::check`]) before they put bytes from them. If bytes are damaged nevertheless,
//! the result is an error or wrong values, but never a panic or an invalid array.

use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;

use crate::error::Malformed;
use crate::gather::{GatherRow, zeroed};
use crate::index::{ExtentIndex, Form};
use crate::layout::Solo;
use crate::values::SoloValues;
use crate::{PackError, PackLayout};

/// Assembles the projected columns of one pack's rows.
pub struct Assembler {
    /// The names of the projected columns.
    columns: Vec<String>,
    rows: Vec<Row>,
    target: Target,
    /// The position up to which rows arrived whole and in order. They are decoded, and all staged rows come after them.
    next: usize,
    /// The rows that can't be decoded as they arrive.
    staged: StagedRows,
}

#[derive(Clone, Copy)]
struct Row {
    /// The length of the row's span in bytes.
    len: u32,
    /// The bytes put so far.
    received: u32,
    form: Form,
    /// Whether the index says that the row is null. No bytes need to be put for such a row.
    is_null: bool,
    is_staged: bool,
}

enum Target {
    /// The values of the pack's only column, which is binary or text. `None` if the column isn't projected.
    Values(Option<SoloValues>),
    /// The projected columns of any other pack.
    Rows(GatherRow),
}

impl Assembler {
    /// Creates an assembler. `projection` has the indices of the wanted fields of the layout, without repeats, in the
    /// order of the resulting columns. `rows` has the extent's index and the row's number for each position of the
    /// result, in order. A row may occur more than once.
    ///
    /// # Errors
    /// [`PackError::Projection`], [`PackError::NoSuchRow`], [`PackError::CorruptIndex`] for the index of another
    /// layout, [`PackError::ReplyTooLarge`] for more than 2 GiB in a column with 32-bit offsets.
    pub fn new<'a>(
        layout: &PackLayout,
        projection: &[usize],
        rows: impl IntoIterator<Item = (&'a ExtentIndex, u32)>,
    ) -> Result<Self, PackError> {
        Self::in_memory(layout, projection, rows, &mut zeroed)
    }

    /// Like [`new`](Self::new), with buffers from `allocate`, which gets a length in bytes and may return memory with
    /// earlier contents. `allocate` is called only for columns in which every byte is overwritten: with zeros if the
    /// value is null, otherwise by puts, whose completeness [`finish`](Self::finish) checks.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_memory<'a>(
        layout: &PackLayout,
        projection: &[usize],
        rows: impl IntoIterator<Item = (&'a ExtentIndex, u32)>,
        allocate: &mut dyn FnMut(usize) -> MutableBuffer,
    ) -> Result<Self, PackError> {
        for (i, &column) in projection.iter().enumerate() {
            if column >= layout.fields.len() || projection[..i].contains(&column) {
                return Err(PackError::Projection { column });
            }
        }
        let columns: Vec<String> =
            projection.iter().map(|&column| layout.fields[column].name().clone()).collect();
        let rows = rows
            .into_iter()
            .map(|(index, row)| {
                layout.check_index(index)?;
                let missing = PackError::NoSuchRow { row, rows: index.rows() };
                let len = index.len_of(row).ok_or(missing)?;
                let (form, is_null) = (index.form(), index.is_null(row));
                Ok(Row { len, received: 0, form, is_null, is_staged: false })
            })
            .collect::<Result<Vec<_>, PackError>>()?;
        let target = match layout.solo {
            Solo::Value if projection.is_empty() => Target::Values(None),
            Solo::Value => {
                let lens = rows.iter().map(|row| row.len as usize - 1);
                let values = SoloValues::new(&layout.row.fields[0].physical, lens);
                let column = layout.fields[0].name().clone();
                Target::Values(Some(values.ok_or(PackError::ReplyTooLarge { column })?))
            }
            Solo::Plain(_) | Solo::No => {
                // Every byte of a plain row is copied to the buffer, and `finish` checks that all were put.
                let are_plain = matches!(layout.solo, Solo::Plain(_))
                    && rows.iter().all(|row| row.form == Form::Plain);
                let memory = if are_plain { allocate } else { &mut zeroed };
                let columns = projection.iter().copied();
                let mut gather = GatherRow::new(&layout.row, columns, rows.len(), memory);
                if let Some(solo) = gather.solo_mut() {
                    let nulls = rows.iter().enumerate().filter(|(_, row)| row.is_null);
                    for (position, _) in nulls {
                        solo.set_null(position);
                        solo.plain_mut(position, 1).into_iter().for_each(|place| place.fill(0));
                    }
                }
                Target::Rows(gather)
            }
        };
        Ok(Self { columns, rows, target, next: 0, staged: StagedRows::default() })
    }

    /// Returns the number of positions.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts all bytes of the row at `position`, that is, the bytes of its span in the extent. Rows for which
    /// [`ExtentIndex::is_null`] returns true need not be put.
    ///
    /// # Errors
    /// [`PackError::Put`] if there is no such position, the length differs from the span's, or the position was put
    /// before; [`PackError::Corrupt`].
    pub fn put(&mut self, position: usize, bytes: &[u8]) -> Result<(), PackError> {
        match self.rows.get(position) {
            Some(row) if row.len as usize == bytes.len() => self.put_piece(position, 0, bytes),
            _ => Err(PackError::Put { position, offset: 0, len: bytes.len() }),
        }
    }

    /// Puts a piece of the row at `position`. The piece begins at `offset` in the row's span. Pieces may be put in any
    /// order. They must not overlap, and together they must cover the span.
    ///
    /// # Errors
    /// [`PackError::Put`] for a position that does not exist, for bytes outside the span, or for more bytes in total
    /// than the span has; [`PackError::Corrupt`].
    pub fn put_piece(
        &mut self,
        position: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), PackError> {
        let put_error = || PackError::Put { position, offset, len: bytes.len() };
        let row = self.rows.get_mut(position).ok_or_else(put_error)?;
        let (len, received) = (row.len as usize, row.received as usize + bytes.len());
        if offset.checked_add(bytes.len()).is_none_or(|end| end > len) || received > len {
            return Err(put_error());
        }
        row.received = received as u32;
        if row.is_null || bytes.is_empty() {
            return Ok(());
        }
        let is_whole = bytes.len() == len;
        match (&mut self.target, row.form) {
            (Target::Values(None), _) => return Ok(()),
            (Target::Values(Some(values)), _) => {
                let put = values.put(position, offset, bytes);
                return put.map_err(|malformed| corrupt(&self.columns, 0, malformed));
            }
            (Target::Rows(gather), Form::Plain) => {
                let Some(solo) = gather.solo_mut() else { return Ok(()) };
                if let Some(place) = solo.plain_mut(position, 1)
                    && let Some(place) = place.get_mut(offset..offset + bytes.len())
                {
                    place.copy_from_slice(bytes);
                    return Ok(());
                }
                if is_whole {
                    solo.set_plain(position, bytes);
                    return Ok(());
                }
            }
            (Target::Rows(gather), _)
                if is_whole && (position == self.next || gather.is_fixed()) =>
            {
                let set = gather.set(position, bytes);
                set.map_err(|(i, malformed)| corrupt(&self.columns, i, malformed))?;
                self.next += usize::from(position == self.next);
                return Ok(());
            }
            (Target::Rows(_), _) => {}
        }
        row.is_staged = true;
        self.staged.put(&self.rows, position, offset, bytes);
        Ok(())
    }

    /// Returns the projected columns, with their rows in position order, in the physical form of their wire types
    /// ([`crate::physical_type`]).
    ///
    /// # Errors
    /// [`PackError::Missing`] if a row for which [`ExtentIndex::is_null`] returns false was not put completely;
    /// [`PackError::Corrupt`]; [`PackError::ReplyTooLarge`].
    pub fn finish(mut self) -> Result<Vec<ArrayData>, PackError> {
        let missing = self.rows.iter().filter(|row| !row.is_null && row.received < row.len);
        match missing.count() {
            0 => {}
            count => return Err(PackError::Missing { count }),
        }
        let gather = match self.target {
            Target::Values(None) => return Ok(Vec::new()),
            Target::Values(Some(values)) => {
                let array = values.finish(self.rows.len());
                return Ok(vec![array.map_err(|error| invalid(&self.columns[0], &error))?]);
            }
            Target::Rows(ref mut gather) => gather,
        };
        for (position, row) in self.rows.iter().enumerate().filter(|(_, row)| row.is_staged) {
            debug_assert!(
                position >= self.next,
                "slots of variable width are set in ascending order"
            );
            let bytes = self.staged.row(position, row.len);
            if row.form == Form::Plain {
                gather.solo_mut().into_iter().for_each(|solo| solo.set_plain(position, bytes));
            } else {
                let set = gather.set(position, bytes);
                set.map_err(|(i, malformed)| corrupt(&self.columns, i, malformed))?;
            }
        }
        let Target::Rows(gather) = self.target else { return Ok(Vec::new()) };
        let arrays = gather.into_gathers().zip(&self.columns).map(|(gather, column)| {
            gather.finish(self.rows.len()).map_err(|error| invalid(column, &error))
        });
        arrays.collect()
    }
}

/// An arena with a place for each row's bytes, in position order. Only staged rows are copied to their places. The
/// arena is allocated when the first row is staged.
#[derive(Default)]
struct StagedRows {
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl StagedRows {
    fn put(&mut self, rows: &[Row], position: usize, offset: usize, bytes: &[u8]) {
        if self.starts.is_empty() {
            let mut end = 0;
            self.starts.extend(rows.iter().map(|row| {
                let start = end;
                end += row.len as usize;
                start
            }));
            self.bytes = vec![0; end];
        }
        let start = self.starts[position] + offset;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn row(&self, position: usize, len: u32) -> &[u8] {
        let start = self.starts[position];
        &self.bytes[start..start + len as usize]
    }
}

fn corrupt(columns: &[String], column: usize, malformed: Malformed) -> PackError {
    let column = columns[column].clone();
    match malformed {
        Malformed::Bytes(reason) => PackError::Corrupt { column, reason: reason.to_owned() },
        Malformed::TooLarge => PackError::ReplyTooLarge { column },
    }
}

/// Returns the error for decoded values that Arrow rejects, such as a null in a type that allows none.
fn invalid(column: &str, error: &arrow_schema::ArrowError) -> PackError {
    PackError::Corrupt { column: column.to_owned(), reason: error.to_string() }
}
