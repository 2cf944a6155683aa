//! Encodes a chunk's columns to an extent.
//!
//! Rows of variable width take two passes. The first pass computes the rows' lengths, which determine where each row
//! starts. The second pass writes each byte once. Rows of constant width need only the second pass, which writes them
//! column by column, so that its inner loop only copies.

use address::{SECTOR_BYTES, sectors_for};
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};

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
        let rows = self.check(columns)?;
        let arrays = columns
            .iter()
            .zip(&self.fields)
            .map(|(array, field)| {
                let options = CastOptions { safe: false, ..Default::default() };
                cast_with_options(array, &encoded_type(field.data_type()), &options)
                    .map_err(PackError::arrow(field.name()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let fields = Fields::new(&self.row, arrays.iter());
        let too_large = || PackError::TooLarge { rows: rows as usize };
        if fields.columns.iter().any(|column| column.has_oversized_list(0..rows as usize)) {
            return Err(too_large());
        }
        match (self.solo, fields.columns.as_slice()) {
            (Solo::Plain(width), [column]) if is_plain(column, width, rows) => {
                encode_plain(column, width, rows)
            }
            (Solo::Value, [column]) => encode_values(column, rows),
            _ if self.row.is_fixed() => encode_fixed(&fields, rows),
            _ => encode_variable(&fields, rows),
        }
        .ok_or_else(too_large)
    }

    fn check(&self, columns: &[ArrayRef]) -> Result<u32, PackError> {
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
        u32::try_from(rows).map_err(|_| PackError::TooLarge { rows })
    }
}

fn is_plain(column: &Column<'_>, width: u32, rows: u32) -> bool {
    let has_null = column.nulls().is_some_and(|nulls| nulls.null_count() > 0);
    (width >= INDEXED_NULLS_WIDTH_MIN || !has_null)
        && !(0..rows as usize).any(|i| !column.is_null(i) && column.holds_null(i))
}

fn encode_plain(column: &Column<'_>, width: u32, rows: u32) -> Option<Extent> {
    let placed = FixedRows::new(width)?;
    let len = whole_sectors(placed.end(rows))?;
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
    Some(Extent { index, bytes })
}

fn encode_fixed(fields: &Fields<'_>, rows: u32) -> Option<Extent> {
    let placed = FixedRows::new(u32::try_from(fields.row.tail).ok()?)?;
    let mut bytes = vec![0; whole_sectors(placed.end(rows))?];
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
    Some(Extent { index, bytes })
}

fn encode_variable(fields: &Fields<'_>, rows: u32) -> Option<Extent> {
    let lens = (0..rows as usize).map(|i| fields.size(i));
    encode_placed(Form::Row, lens, |i, out| fields.append(i, out))
}

fn encode_values(column: &Column<'_>, rows: u32) -> Option<Extent> {
    let lens = (0..rows as usize).map(|i| if column.is_null(i) { 1 } else { 1 + column.size(i) });
    encode_placed(Form::Value, lens, |i, out| {
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
    append: impl Fn(usize, &mut Vec<u8>),
) -> Option<Extent> {
    // `u32::MAX` bytes don't fit into an extent either, so saturating still gives `None`.
    let lens = lens.map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    let (placed, end) = VariableRows::new(lens)?;
    let len = sectors_for(end) as usize * SECTOR_BYTES;
    let mut bytes = Vec::with_capacity(len);
    for (i, RowSpan { offset, len }) in placed.spans().enumerate() {
        bytes.resize(offset as usize, 0);
        append(i, &mut bytes);
        debug_assert_eq!(bytes.len(), offset as usize + len as usize, "row {i}");
    }
    bytes.resize(len, 0);
    let rows = placed.lens.len() as u32;
    let index = ExtentIndex::new(form, rows, RowPlacement::Variable(placed), &bytes, None);
    Some(Extent { index, bytes })
}

/// Returns the length in bytes of the whole sectors that rows up to byte `end` need; `None` if an extent cannot have
/// that many.
fn whole_sectors(end: u64) -> Option<usize> {
    let sectors = sectors_for(end);
    (sectors <= SECTORS_MAX).then_some(sectors as usize * SECTOR_BYTES)
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
