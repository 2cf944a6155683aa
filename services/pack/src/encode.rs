//! Encodes a chunk's columns to an extent.
//!
//! Rows of variable width take two passes. The first pass computes the rows' lengths, which determine where each row
//! starts. The second pass writes each byte once. Rows of constant width need only the second pass, which writes them
//! column by column, so that its inner loop only copies.

use std::sync::Arc;

use address::{SECTOR_BYTES, sectors_for};
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_select::concat::concat;

use crate::column::{Column, Fields};
use crate::index::{Extent, ExtentIndex, Form, RowPlacement};
use crate::layout::Solo;
use crate::row_placement::{FixedRows, RowSpan, SECTORS_MAX, VariableRows};
use crate::shape::FieldLocation;
use crate::wire::encoded_type;
use crate::{PackError, PackLayout};

/// The minimum width in bytes of values whose nulls are a bitmap in the index. For values of this width or more, the
/// bitmap takes at most 0.2 % of the space. A chunk of narrower values with nulls is encoded as [`Form::Row`], with the
/// nulls in the rows.
const INDEXED_NULLS_WIDTH_MIN: u32 = 64;

impl PackLayout {
    /// Encodes one chunk. `columns` are the layout's columns, in its order and of equal length. The same columns always
    /// give the same bytes.
    ///
    /// # Errors
    /// [`PackError::Columns`], [`PackError::Type`] or [`PackError::Rows`] if the columns don't match the layout;
    /// [`PackError::TooLarge`] if the chunk needs 4 GiB or more, has 2^32 rows or more, or contains a list of 2^30
    /// items or more; [`PackError::Arrow`] if Arrow can't convert a dictionary or view to plain values.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<Extent, PackError> {
        self.encode_within(vec![columns.to_vec()], u64::MAX)
    }

    /// Encodes one chunk, like [`encode`](Self::encode), but into at most `bytes_max` bytes. `pieces` are the chunk's
    /// rows in order, some rows of all columns in each piece.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and [`PackError::TooLong`] if the extent, or the values of dictionaries, take more
    /// than `bytes_max` bytes.
    pub fn encode_within(
        &self,
        pieces: Vec<Vec<ArrayRef>>,
        bytes_max: u64,
    ) -> Result<Extent, PackError> {
        let rows = pieces.iter().map(|piece| self.check(piece)).sum::<Result<usize, _>>()?;
        let size = SizeLimit { rows, bytes_max };
        let rows = u32::try_from(rows).map_err(|_| size.too_large())?;
        let arrays = self.joined(pieces, size)?;
        let fields = Fields::new(&self.row, arrays.iter());
        if fields.columns.iter().any(|column| column.has_oversized_list(0..rows as usize)) {
            return Err(size.too_large());
        }
        match (self.solo, fields.columns.as_slice()) {
            (Solo::Plain(width), [column]) if is_plain(column, width, rows) => {
                encode_plain(column, width, rows, size)
            }
            (Solo::Value, [column]) => encode_values(column, rows, size),
            _ if self.row.is_fixed() => encode_fixed(&fields, rows, size),
            _ => encode_variable(&fields, rows, size),
        }
    }

    /// Casts the columns to the types that are encoded, and joins the pieces of each.
    fn joined(
        &self,
        pieces: Vec<Vec<ArrayRef>>,
        size: SizeLimit,
    ) -> Result<Vec<ArrayRef>, PackError> {
        let options = CastOptions { safe: false, ..Default::default() };
        let mut columns: Vec<Vec<ArrayRef>> = self.fields.iter().map(|_| Vec::new()).collect();
        for piece in pieces {
            columns.iter_mut().zip(piece).for_each(|(column, array)| column.push(array));
        }
        let mut cast_bytes = 0;
        let mut joined = Vec::with_capacity(columns.len());
        for (field, column) in self.fields.iter().zip(columns) {
            let data_type = encoded_type(field.data_type());
            let mut parts = Vec::with_capacity(column.len());
            for array in column {
                let part = cast_with_options(&array, &data_type, &options)
                    .map_err(PackError::arrow(field.name()))?;
                // The values of a dictionary may be many times as long as the dictionary.
                if !part.data_type().equals_datatype(array.data_type()) {
                    let bytes = part.to_data().get_slice_memory_size();
                    cast_bytes += bytes.map_err(PackError::arrow(field.name()))? as u64;
                    size.check(cast_bytes)?;
                }
                parts.push(part);
            }
            joined.push(match parts.as_slice() {
                [part] => Arc::clone(part),
                parts => {
                    let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
                    concat(&parts).map_err(PackError::arrow(field.name()))?
                }
            });
        }
        Ok(joined)
    }

    /// Checks the types and lengths of columns. Returns the number of their rows.
    fn check(&self, columns: &[ArrayRef]) -> Result<usize, PackError> {
        if columns.len() != self.fields.len() {
            let (expected, found) = (self.fields.len(), columns.len());
            return Err(PackError::Columns { expected, found });
        }
        let rows = columns.first().map_or(0, |array| array.len());
        for (array, field) in columns.iter().zip(&self.fields) {
            let column = field.name().clone();
            if array.len() != rows {
                return Err(PackError::Rows { column, expected: rows, found: array.len() });
            }
            // Names and metadata of nested fields don't affect the bytes, so they may differ.
            if !array.data_type().equals_datatype(field.data_type()) {
                let (expected, found) = (field.data_type().clone(), array.data_type().clone());
                return Err(PackError::Type { column, expected, found });
            }
        }
        Ok(rows)
    }
}

/// The maximum length of an extent.
#[derive(Clone, Copy)]
struct SizeLimit {
    /// The number of the chunk's rows, for errors.
    rows: usize,
    bytes_max: u64,
}

impl SizeLimit {
    /// Returns the length in bytes of the whole sectors that rows up to byte `end` need, if an extent may have it.
    fn whole_sectors(self, end: u64) -> Result<usize, PackError> {
        let sectors = sectors_for(end);
        if sectors > SECTORS_MAX {
            return Err(self.too_large());
        }
        let bytes = sectors * SECTOR_BYTES as u64;
        self.check(bytes)?;
        Ok(bytes as usize)
    }

    fn check(self, bytes: u64) -> Result<(), PackError> {
        let Self { rows, bytes_max } = self;
        match bytes > bytes_max {
            true => Err(PackError::TooLong { rows, bytes, bytes_max }),
            false => Ok(()),
        }
    }

    fn too_large(self) -> PackError {
        PackError::TooLarge { rows: self.rows }
    }
}

fn is_plain(column: &Column<'_>, width: u32, rows: u32) -> bool {
    let has_null = column.nulls().is_some_and(|nulls| nulls.null_count() > 0);
    (width >= INDEXED_NULLS_WIDTH_MIN || !has_null)
        && !(0..rows as usize).any(|i| !column.is_null(i) && column.holds_null(i))
}

fn encode_plain(
    column: &Column<'_>,
    width: u32,
    rows: u32,
    size: SizeLimit,
) -> Result<Extent, PackError> {
    let placed = FixedRows::new(width).ok_or_else(|| size.too_large())?;
    let len = size.whole_sectors(placed.end(rows))?;
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let contiguous = column.plain_bytes(0..rows as usize);
    let contiguous = contiguous.filter(|_| nulls.is_none() && placed.is_contiguous());
    let bytes = if let Some(values) = contiguous {
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(values);
        bytes.resize(len, 0);
        bytes
    } else {
        let mut bytes = vec![0; len];
        for (i, out) in row_slices(&mut bytes, placed, rows, 0, width as usize) {
            if !column.is_null(i) {
                column.write_plain(i..i + 1, out);
            }
        }
        bytes
    };
    let validity = nulls.map(|nulls| {
        let mut bits = vec![0u8; (rows as usize).div_ceil(8)];
        nulls.valid_indices().for_each(|i| bits[i / 8] |= 1 << (i % 8));
        bits.into()
    });
    let index = ExtentIndex::new(Form::Plain, rows, RowPlacement::Fixed(placed), &bytes, validity);
    Ok(Extent { index, bytes })
}

fn encode_fixed(fields: &Fields<'_>, rows: u32, size: SizeLimit) -> Result<Extent, PackError> {
    let width = u32::try_from(fields.row.tail).ok();
    let placed = width.and_then(FixedRows::new).ok_or_else(|| size.too_large())?;
    let mut bytes = vec![0; size.whole_sectors(placed.end(rows))?];
    for (bit, (column, location)) in fields.columns.iter().zip(&fields.row.locations).enumerate() {
        for (i, byte) in row_slices(&mut bytes, placed, rows, bit / 8, 1) {
            byte[0] |= u8::from(!column.is_null(i)) << (bit % 8);
        }
        let FieldLocation::Fixed { offset, width } = *location else { continue };
        for (i, out) in row_slices(&mut bytes, placed, rows, offset, width) {
            if !column.is_null(i) {
                column.write_fixed(i, out);
            }
        }
    }
    let index = ExtentIndex::new(Form::Row, rows, RowPlacement::Fixed(placed), &bytes, None);
    Ok(Extent { index, bytes })
}

fn encode_variable(fields: &Fields<'_>, rows: u32, size: SizeLimit) -> Result<Extent, PackError> {
    let lens = (0..rows as usize).map(|i| fields.size(i));
    encode_placed(Form::Row, lens, size, |i, out| fields.append(i, out))
}

fn encode_values(column: &Column<'_>, rows: u32, size: SizeLimit) -> Result<Extent, PackError> {
    let lens = (0..rows as usize).map(|i| if column.is_null(i) { 1 } else { 1 + column.size(i) });
    encode_placed(Form::Value, lens, size, |i, out| {
        out.push(u8::from(!column.is_null(i)));
        if !column.is_null(i) {
            column.append(i, out);
        }
    })
}

/// Encodes rows of the lengths `lens`. `append` writes row `i`.
fn encode_placed(
    form: Form,
    lens: impl ExactSizeIterator<Item = u64>,
    size: SizeLimit,
    append: impl Fn(usize, &mut Vec<u8>),
) -> Result<Extent, PackError> {
    // `u32::MAX` bytes don't fit into an extent either, so saturating still gives an error.
    let lens = lens.map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    let (placed, end) = VariableRows::new(lens).ok_or_else(|| size.too_large())?;
    let len = size.whole_sectors(end)?;
    let mut bytes = Vec::with_capacity(len);
    for (i, RowSpan { offset, len }) in placed.spans().enumerate() {
        bytes.resize(offset as usize, 0);
        append(i, &mut bytes);
        debug_assert_eq!(bytes.len(), offset as usize + len as usize, "row {i}");
    }
    bytes.resize(len, 0);
    let rows = placed.lens.len() as u32;
    let index = ExtentIndex::new(form, rows, RowPlacement::Variable(placed), &bytes, None);
    Ok(Extent { index, bytes })
}

/// Iterates over the bytes `offset..offset + width` of each row, with the row's number.
fn row_slices(
    bytes: &mut [u8],
    placed: FixedRows,
    rows: u32,
    offset: usize,
    width: usize,
) -> impl Iterator<Item = (usize, &mut [u8])> {
    placed.rows_mut(bytes, rows).map(move |(i, row)| (i, &mut row[offset..offset + width]))
}
