//! Columns of a chunk in a form that can be written row by row.
//!
//! A [`Column`] has the buffers of an Arrow array, sliced to its offset, and its nulls. So writing a value costs one
//! match on its kind and no look-up. A column writes the bytes that [`crate::shape`] describes. [`crate::encode`]
//! decides where to write them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

use crate::shape::{FieldLocation, Kind, LIST_BITMAP, LIST_COUNT_MAX, LIST_PLAIN, RowShape, Shape};

pub(crate) struct Column<'a> {
    shape: &'a Shape,
    nulls: Option<NullBuffer>,
    values: ColumnValues<'a>,
}

enum ColumnValues<'a> {
    Null,
    Boolean(BooleanBuffer),
    Plain(usize, Buffer),
    Binary(ArrayOffsets, Buffer),
    List(ArrayOffsets, Box<Column<'a>>),
    FixedList(usize, Box<Column<'a>>),
    Struct(Fields<'a>),
}

/// The columns of a struct's fields, or of a row.
pub(crate) struct Fields<'a> {
    pub row: &'a RowShape,
    pub columns: Vec<Column<'a>>,
}

enum ArrayOffsets {
    Small(OffsetBuffer<i32>),
    Large(OffsetBuffer<i64>),
}

impl ArrayOffsets {
    /// Returns the range of value `i`. The casts are safe, because Arrow checks that offsets ascend and are not
    /// negative.
    fn range(&self, i: usize) -> Range<usize> {
        match self {
            Self::Small(offsets) => offsets[i] as usize..offsets[i + 1] as usize,
            Self::Large(offsets) => offsets[i] as usize..offsets[i + 1] as usize,
        }
    }
}

impl<'a> Column<'a> {
    /// Creates a column of `array`. The array's type must be that of `shape`, but its offsets may have another width.
    pub fn new(array: &ArrayRef, shape: &'a Shape) -> Self {
        let values = match &shape.kind {
            Kind::Null => ColumnValues::Null,
            Kind::Boolean => ColumnValues::Boolean(array.as_boolean().values().clone()),
            Kind::Plain(width) => {
                let data = array.to_data();
                let bytes = (data.offset() * width, data.len() * width);
                ColumnValues::Plain(*width, data.buffers()[0].slice_with_length(bytes.0, bytes.1))
            }
            Kind::Binary => match array.data_type() {
                DataType::Utf8 => {
                    let text = array.as_string::<i32>();
                    ColumnValues::Binary(
                        ArrayOffsets::Small(text.offsets().clone()),
                        text.values().clone(),
                    )
                }
                DataType::LargeUtf8 => {
                    let text = array.as_string::<i64>();
                    ColumnValues::Binary(
                        ArrayOffsets::Large(text.offsets().clone()),
                        text.values().clone(),
                    )
                }
                DataType::Binary => {
                    let bytes = array.as_binary::<i32>();
                    ColumnValues::Binary(
                        ArrayOffsets::Small(bytes.offsets().clone()),
                        bytes.values().clone(),
                    )
                }
                _ => {
                    let bytes = array.as_binary::<i64>();
                    ColumnValues::Binary(
                        ArrayOffsets::Large(bytes.offsets().clone()),
                        bytes.values().clone(),
                    )
                }
            },
            Kind::List(item) => {
                let (offsets, items): (_, ArrayRef) = match array.data_type() {
                    DataType::LargeList(_) => {
                        let list = array.as_list::<i64>();
                        (ArrayOffsets::Large(list.offsets().clone()), list.values().clone())
                    }
                    DataType::Map(_, _) => {
                        let map = array.as_map();
                        let entries = Arc::new(map.entries().clone());
                        (ArrayOffsets::Small(map.offsets().clone()), entries)
                    }
                    _ => {
                        let list = array.as_list::<i32>();
                        (ArrayOffsets::Small(list.offsets().clone()), list.values().clone())
                    }
                };
                ColumnValues::List(offsets, Box::new(Column::new(&items, item)))
            }
            Kind::FixedList(len, item) => {
                let list = array.as_fixed_size_list();
                ColumnValues::FixedList(*len, Box::new(Column::new(list.values(), item)))
            }
            Kind::Struct(row) => {
                ColumnValues::Struct(Fields::new(row, array.as_struct().columns().iter()))
            }
        };
        Self { shape, nulls: array.nulls().cloned(), values }
    }

    pub fn is_null(&self, i: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i))
    }

    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.nulls.as_ref()
    }

    /// Returns whether value `i`, of a type with a plain encoding, has a null element at any depth.
    pub fn holds_null(&self, i: usize) -> bool {
        match &self.values {
            ColumnValues::FixedList(len, item) if item.may_hold_null() => {
                (i * len..(i + 1) * len).any(|j| item.is_null(j) || item.holds_null(j))
            }
            _ => false,
        }
    }

    fn may_hold_null(&self) -> bool {
        let within = match &self.values {
            ColumnValues::FixedList(_, item) => item.may_hold_null(),
            _ => false,
        };
        within || self.nulls.as_ref().is_some_and(|nulls| nulls.null_count() > 0)
    }

    /// Returns the length in bytes of the encoding of value `i`, which must not be null.
    pub fn size(&self, i: usize) -> u64 {
        if let Some(width) = self.shape.fixed {
            return width as u64;
        }
        match &self.values {
            ColumnValues::Binary(offsets, _) => offsets.range(i).len() as u64,
            ColumnValues::List(offsets, item) => {
                let items = offsets.range(i);
                4 + item.body_size(&items, item.list_head(&items))
            }
            ColumnValues::FixedList(len, item) => {
                item.body_size(&(i * len..(i + 1) * len), LIST_BITMAP)
            }
            ColumnValues::Struct(fields) => fields.size(i),
            ColumnValues::Null | ColumnValues::Boolean(_) | ColumnValues::Plain(..) => 0,
        }
    }

    /// Writes value `i` of a type of constant width. The value must not be null, and `out` must have the value's width
    /// and hold zeros.
    pub fn write_fixed(&self, i: usize, out: &mut [u8]) {
        match &self.values {
            ColumnValues::Boolean(bits) => out[0] = u8::from(bits.value(i)),
            ColumnValues::Plain(width, bytes) => {
                out.copy_from_slice(&bytes[i * width..(i + 1) * width]);
            }
            ColumnValues::FixedList(len, item) => {
                let (bitmap, out) = out.split_at_mut(len.div_ceil(8));
                item.write_bitmap(i * len..(i + 1) * len, bitmap);
                item.write_items(i * len..(i + 1) * len, out);
            }
            ColumnValues::Struct(fields) => fields.write_fixed(i, out),
            ColumnValues::Null | ColumnValues::Binary(..) | ColumnValues::List(..) => {}
        }
    }

    /// Appends value `i` of a type of any width. The value must not be null.
    pub fn append(&self, i: usize, out: &mut Vec<u8>) {
        match &self.values {
            ColumnValues::Binary(offsets, bytes) => out.extend_from_slice(&bytes[offsets.range(i)]),
            ColumnValues::List(offsets, item) => {
                let items = offsets.range(i);
                let head = item.list_head(&items);
                out.extend_from_slice(&(items.len() as u32 | head).to_le_bytes());
                item.append_body(items, head, out);
            }
            ColumnValues::FixedList(len, item) if self.shape.fixed.is_none() => {
                item.append_body(i * len..(i + 1) * len, LIST_BITMAP, out);
            }
            ColumnValues::Struct(fields) if self.shape.fixed.is_none() => fields.append(i, out),
            _ => {
                let at = out.len();
                out.resize(at + self.shape.fixed.unwrap_or(0), 0);
                self.write_fixed(i, &mut out[at..]);
            }
        }
    }

    /// Writes the values `range` in the plain encoding. `out` must have their total width.
    pub fn write_plain(&self, range: Range<usize>, out: &mut [u8]) {
        if let Some(bytes) = self.plain_bytes(range.clone()) {
            out.copy_from_slice(bytes);
            return;
        }
        match &self.values {
            ColumnValues::Boolean(bits) => {
                for (i, out) in range.zip(out) {
                    *out = u8::from(bits.value(i));
                }
            }
            ColumnValues::FixedList(len, item) => {
                item.write_plain(range.start * len..range.end * len, out);
            }
            _ => {}
        }
    }

    /// Returns the plain encoding of the values `range` without a copy, if Arrow's buffer has the same bytes.
    pub fn plain_bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        match &self.values {
            ColumnValues::Plain(width, bytes) => {
                Some(&bytes[range.start * width..range.end * width])
            }
            ColumnValues::FixedList(len, item) => {
                item.plain_bytes(range.start * len..range.end * len)
            }
            _ => None,
        }
    }

    /// Returns whether the values `range` contain, at any depth, a list with more items than its head can count.
    pub fn has_oversized_list(&self, range: Range<usize>) -> bool {
        match &self.values {
            ColumnValues::List(offsets, item) if !range.is_empty() => {
                let items = offsets.range(range.start).start..offsets.range(range.end - 1).end;
                range.into_iter().any(|i| offsets.range(i).len() > LIST_COUNT_MAX)
                    || item.has_oversized_list(items)
            }
            ColumnValues::FixedList(len, item) => {
                item.has_oversized_list(range.start * len..range.end * len)
            }
            ColumnValues::Struct(fields) => {
                fields.columns.iter().any(|column| column.has_oversized_list(range.clone()))
            }
            _ => false,
        }
    }

    // The following methods are called on the column of a list's items. `items` is the range of the items of one list.

    /// Returns the flags of the list's head.
    fn list_head(&self, items: &Range<usize>) -> u32 {
        let has_null = self.nulls.as_ref().is_some_and(|nulls| nulls.null_count() > 0)
            && items.clone().any(|i| self.is_null(i));
        let bitmap = has_null || self.shape.fixed == Some(0);
        let plain = matches!(self.values, ColumnValues::FixedList(..))
            && self.shape.plain.is_some()
            && !items.clone().any(|i| !self.is_null(i) && self.holds_null(i));
        (if bitmap { LIST_BITMAP } else { 0 }) | (if plain { LIST_PLAIN } else { 0 })
    }

    fn body_size(&self, items: &Range<usize>, head: u32) -> u64 {
        let bitmap = if head & LIST_BITMAP != 0 { items.len().div_ceil(8) } else { 0 };
        let width = if head & LIST_PLAIN != 0 { self.shape.plain } else { self.shape.fixed };
        let values: u64 = match width {
            Some(width) => items.len() as u64 * width as u64,
            None => {
                let valid = items.clone().filter(|&i| !self.is_null(i));
                items.len() as u64 * 4 + valid.map(|i| self.size(i)).sum::<u64>()
            }
        };
        bitmap as u64 + values
    }

    fn append_body(&self, items: Range<usize>, head: u32, out: &mut Vec<u8>) {
        let mut at = out.len();
        if head & LIST_BITMAP != 0 {
            out.resize(at + items.len().div_ceil(8), 0);
            self.write_bitmap(items.clone(), &mut out[at..]);
            at = out.len();
        }
        if head & LIST_PLAIN != 0 {
            let width = self.shape.plain.unwrap_or(0);
            out.resize(at + items.len() * width, 0);
            if head & LIST_BITMAP == 0 {
                self.write_plain(items, &mut out[at..]);
            } else {
                // Arrow allows any bytes in the slot of a null. Skip them, so that equal values have equal bytes.
                let item_bytes = items.zip(out[at..].chunks_exact_mut(width.max(1)));
                item_bytes
                    .filter(|(i, _)| !self.is_null(*i))
                    .for_each(|(i, out)| self.write_plain(i..i + 1, out));
            }
        } else if let Some(width) = self.shape.fixed {
            out.resize(at + items.len() * width, 0);
            self.write_items(items, &mut out[at..]);
        } else {
            let first = at + items.len() * 4;
            out.resize(first, 0);
            for i in items {
                if !self.is_null(i) {
                    self.append(i, out);
                }
                let end = (out.len() - first) as u32;
                out[at..at + 4].copy_from_slice(&end.to_le_bytes());
                at += 4;
            }
        }
    }

    fn write_bitmap(&self, items: Range<usize>, out: &mut [u8]) {
        for (bit, i) in items.enumerate() {
            out[bit / 8] |= u8::from(!self.is_null(i)) << (bit % 8);
        }
    }

    /// Writes items of constant width one after another.
    fn write_items(&self, items: Range<usize>, out: &mut [u8]) {
        match (&self.values, self.shape.fixed) {
            (ColumnValues::Plain(..), _) if self.nulls.is_none() => self.write_plain(items, out),
            (_, Some(width)) if width > 0 => {
                for (i, out) in items.zip(out.chunks_exact_mut(width)) {
                    if !self.is_null(i) {
                        self.write_fixed(i, out);
                    }
                }
            }
            _ => {}
        }
    }
}

impl<'a> Fields<'a> {
    /// Creates the columns of `arrays`, which must have the types of the row's fields.
    pub fn new<'b>(row: &'a RowShape, arrays: impl Iterator<Item = &'b ArrayRef>) -> Self {
        let columns = arrays.zip(&row.fields).map(|(array, shape)| Column::new(array, shape));
        Self { row, columns: columns.collect() }
    }

    pub fn size(&self, i: usize) -> u64 {
        let variable = self.columns.iter().filter(|c| c.shape.fixed.is_none() && !c.is_null(i));
        self.row.tail as u64 + variable.map(|column| column.size(i)).sum::<u64>()
    }

    /// Writes the bitmap and the fixed fields of row `i`. `out` must hold zeros.
    pub fn write_fixed(&self, i: usize, out: &mut [u8]) {
        for (bit, (column, location)) in self.columns.iter().zip(&self.row.locations).enumerate() {
            if column.is_null(i) {
                continue;
            }
            out[bit / 8] |= 1 << (bit % 8);
            if let FieldLocation::Fixed { offset, width } = *location {
                column.write_fixed(i, &mut out[offset..offset + width]);
            }
        }
    }

    pub fn append(&self, i: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.row.tail, 0);
        self.write_fixed(i, &mut out[start..]);
        for (column, location) in self.columns.iter().zip(&self.row.locations) {
            if let FieldLocation::Variable { end_at, .. } = *location {
                if !column.is_null(i) {
                    column.append(i, out);
                }
                let end = (out.len() - start) as u32;
                out[start + end_at..start + end_at + 4].copy_from_slice(&end.to_le_bytes());
            }
        }
    }
}
