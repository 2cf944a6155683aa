//! Rows, as they arrive from drives, into the columns of a reply.
//!
//! ```text
//! new      every row's length is taken from its index, and room is made
//! put      fixed-width columns and blobs: copied to their place in the final Arrow buffer
//!          other columns: the row is staged, since its place depends on the rows before it
//! finish   staged rows are decoded in order; positions never put are an error
//! ```
//!
//! Rows may come from extents of different forms, arrive in any order and in pieces. Nothing is
//! allocated per row. Sectors are to be checked ([`ExtentIndex::check`]) before their bytes are put;
//! bytes that are wrong nevertheless are an error, never a panic and never an invalid array.

use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;

use crate::gather::{GatherRow, Malformed, zeroed};
use crate::index::{ExtentIndex, Form};
use crate::layout::Solo;
use crate::values::Values;
use crate::{PackError, PackLayout};

/// Gathers the projected columns of one pack's rows.
pub struct Assembler {
    /// Names of the projected columns.
    columns: Vec<String>,
    rows: Vec<Row>,
    target: Target,
    /// Rows that can't be decoded as they arrive.
    stage: Stage,
}

#[derive(Clone, Copy)]
struct Row {
    /// Bytes of the row's span.
    len: u32,
    /// Bytes put so far.
    received: u32,
    form: Form,
    /// Known from the index: nothing needs to be put.
    is_null: bool,
    is_staged: bool,
}

enum Target {
    /// A solo column of binary or text, unless it isn't projected.
    Values(Option<Values>),
    Rows(GatherRow),
}

impl Assembler {
    /// An assembler of the columns `projection` (indices of the layout's fields, in the order
    /// wanted, without repeats) of these rows. Each item becomes one position, in order; a row may
    /// be given more than once.
    ///
    /// # Errors
    /// [`PackError::Projection`], [`PackError::NoSuchRow`], [`PackError::CorruptIndex`] for the
    /// index of another layout, [`PackError::ReplyTooLarge`] for more than 2 GiB of a column with
    /// 32-bit offsets.
    pub fn new<'a>(
        layout: &PackLayout,
        projection: &[usize],
        rows: impl IntoIterator<Item = (&'a ExtentIndex, u32)>,
    ) -> Result<Self, PackError> {
        Self::in_memory(layout, projection, rows, &mut zeroed)
    }

    /// The same, in memory that `used` gives: buffers of so many bytes, whatever they hold. It is
    /// asked only where every byte is put before the end.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_memory<'a>(
        layout: &PackLayout,
        projection: &[usize],
        rows: impl IntoIterator<Item = (&'a ExtentIndex, u32)>,
        used: &mut dyn FnMut(usize) -> MutableBuffer,
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
                let values = Values::new(&layout.row.fields[0].physical, lens);
                let column = layout.fields[0].name().clone();
                Target::Values(Some(values.ok_or(PackError::ReplyTooLarge { column })?))
            }
            Solo::Plain(_) | Solo::No => {
                // Such rows are copied whole, and `finish` sees that all were.
                let are_whole = matches!(layout.solo, Solo::Plain(_))
                    && rows.iter().all(|row| row.form == Form::Plain);
                let memory = if are_whole { used } else { &mut zeroed };
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
        Ok(Self { columns, rows, target, stage: Stage::default() })
    }

    /// How many positions there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts all bytes of the row at `position`, as its index's span has them. Not needed (but
    /// allowed) where [`ExtentIndex::is_null`].
    ///
    /// # Errors
    /// [`PackError::Put`] for another length, or a position put before; [`PackError::Corrupt`].
    pub fn put(&mut self, position: usize, bytes: &[u8]) -> Result<(), PackError> {
        match self.rows.get(position) {
            Some(row) if row.len as usize == bytes.len() => self.put_piece(position, 0, bytes),
            _ => Err(PackError::Put { position, offset: 0, len: bytes.len() }),
        }
    }

    /// Puts the bytes from `offset` of the span of the row at `position`. Pieces may come in any
    /// order and must not overlap; together they are the span.
    ///
    /// # Errors
    /// [`PackError::Put`] for bytes outside the span, or more than it has;
    /// [`PackError::Corrupt`].
    pub fn put_piece(
        &mut self,
        position: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), PackError> {
        let refused = || PackError::Put { position, offset, len: bytes.len() };
        let row = self.rows.get_mut(position).ok_or_else(refused)?;
        let (len, received) = (row.len as usize, row.received as usize + bytes.len());
        if offset.checked_add(bytes.len()).is_none_or(|end| end > len) || received > len {
            return Err(refused());
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
            (Target::Rows(gather), _) if is_whole && gather.is_fixed() => {
                let set = gather.set(position, bytes);
                return set.map_err(|(i, malformed)| corrupt(&self.columns, i, malformed));
            }
            (Target::Rows(_), _) => {}
        }
        row.is_staged = true;
        self.stage.put(&self.rows, position, offset, bytes);
        Ok(())
    }

    /// The projected columns, in position order, in the physical form of their wire types
    /// ([`crate::physical_type`]).
    ///
    /// # Errors
    /// [`PackError::Missing`] if not all bytes of every row were put; [`PackError::Corrupt`];
    /// [`PackError::ReplyTooLarge`].
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
            let bytes = self.stage.row(position, row.len);
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

/// One arena for the bytes of rows, in position order. Made with the first row that needs it.
#[derive(Default)]
struct Stage {
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stage {
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

/// Decoded bytes that Arrow refuses: nulls where the type allows none.
fn invalid(column: &str, error: &arrow_schema::ArrowError) -> PackError {
    PackError::Corrupt { column: column.to_owned(), reason: error.to_string() }
}
