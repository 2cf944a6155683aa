//! The encoding of values of each type, as a tree that is computed once from the columns' types.
//!
//! ```text
//! null             nothing
//! boolean          u8
//! plain            the value's bytes, little-endian (numbers, dates, decimals, fixed-size binary)
//! binary, text     the bytes; the length is known from the enclosing struct or list
//! fixed list       body of its items, always with a bitmap
//! list, map        u32: number of items in the low 30 bits, bit 30 "plain", bit 31 "bitmap"; then the body
//! struct, row      bitmap, one bit for each field, at least one byte
//!                  | for each field: its fixed encoding, or the u32 end of its variable encoding
//!                  | the variable encodings, one after another
//! body of n items  bitmap, one bit for each item (in lists only if an item is null, or the items' type has width 0)
//!                  | fixed items: one after another, in their plain encoding if the list's "plain" bit is set
//!                  | variable items: n × u32 ends, then the items
//! ```
//!
//! Bitmaps have the least significant bit first, and a set bit means that the value is valid, as in Arrow. A null
//! takes zeros if its type is fixed, and no bytes if it is variable. Ends count from the struct's first byte, or from
//! a body's first item.
//!
//! The *plain* encoding of a fixed list consists of its items' plain encodings, without bitmaps, so decoding it is one
//! copy. Fixed lists of structs, or of values of variable width, have no plain encoding. All other fixed lists use the
//! plain encoding if they are the items of one list, or a chunk of a pack's only column, unless at least one of these
//! fixed lists contains a null at any depth. Some of the fixed lists may themselves be null, except in a chunk of a
//! column whose values have fewer than 64 bytes.

use arrow_schema::DataType;

use crate::PackError;
use crate::physical::physical_type;
use crate::plan::plain_width;

/// The maximum width of a row's fixed part. It is far more than a sector, and keeps sums of widths from overflowing.
const FIXED_BYTES_MAX: usize = 1 << 30;

/// The maximum number of items of a list, and the mask of the number in a list's head.
pub(crate) const LIST_COUNT_MAX: usize = (1 << 30) - 1;
/// The bit of a list's head that says that its items are in the plain encoding.
pub(crate) const LIST_PLAIN: u32 = 1 << 30;
/// The bit of a list's head that says that its body has a bitmap.
pub(crate) const LIST_BITMAP: u32 = 1 << 31;

/// The encoding of values of one type.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub kind: Kind,
    /// The physical type of the decoded array.
    pub physical: DataType,
    /// The length of every value in bytes, if it is constant.
    pub fixed: Option<usize>,
    /// The length of every value in the plain encoding, if the type has one.
    pub plain: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Plain(usize),
    Binary,
    /// A list, or a map as the list of its entries.
    List(Box<Shape>),
    FixedList(usize, Box<Shape>),
    Struct(RowShape),
}

impl Shape {
    /// Computes the shape of a wire type. An `Err` has the nested type that is unsupported, or `None` if the type is
    /// too wide.
    pub fn new(data_type: &DataType) -> Result<Self, Option<DataType>> {
        let unsupported = || Some(data_type.clone());
        let kind = match data_type {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Boolean,
            DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => {
                Kind::Binary
            }
            DataType::FixedSizeBinary(width) => {
                Kind::Plain(usize::try_from(*width).map_err(|_| unsupported())?)
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                Kind::List(Box::new(Self::new(item.data_type())?))
            }
            DataType::FixedSizeList(item, len) => {
                let len = usize::try_from(*len).map_err(|_| unsupported())?;
                Kind::FixedList(len, Box::new(Self::new(item.data_type())?))
            }
            DataType::Struct(fields) => {
                let shapes = fields.iter().map(|field| Self::new(field.data_type()));
                Kind::Struct(RowShape::new(shapes.collect::<Result<_, _>>()?).map_err(|_| None)?)
            }
            other => Kind::Plain(other.primitive_width().ok_or_else(unsupported)?),
        };
        let fixed = match &kind {
            Kind::Null => Some(0),
            Kind::Boolean => Some(1),
            Kind::Plain(width) => Some(*width),
            Kind::Binary | Kind::List(_) => None,
            Kind::FixedList(len, item) => match item.fixed {
                Some(width) => {
                    let items = len.checked_mul(width).ok_or(None)?;
                    Some(len.div_ceil(8).checked_add(items).ok_or(None)?)
                }
                None => None,
            },
            Kind::Struct(row) => row.is_fixed().then_some(row.tail),
        };
        if fixed.is_some_and(|width| width > FIXED_BYTES_MAX) {
            return Err(None);
        }
        let plain = plain_width(data_type).filter(|&width| width > 0);
        Ok(Self { kind, physical: physical_type(data_type), fixed, plain })
    }
}

/// The location of a field in a struct or row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldLocation {
    /// At a constant offset.
    Fixed { offset: usize, width: usize },
    /// The u32 at `end_at` is the field's end. The u32 at `start_at` is its start; without `start_at`, the field is the
    /// first in the variable part.
    Variable { end_at: usize, start_at: Option<usize> },
}

/// The shapes of a struct's fields, or of a row's columns.
#[derive(Clone, Debug)]
pub(crate) struct RowShape {
    pub fields: Vec<Shape>,
    pub locations: Vec<FieldLocation>,
    /// The length of the fixed part, which is the offset of the variable part.
    pub tail: usize,
}

impl RowShape {
    /// Lays out the fields. An `Err` has the index of the first field that makes the fixed part too wide.
    pub fn new(fields: Vec<Shape>) -> Result<Self, usize> {
        // At least one byte, so that every row and every struct in a list has bytes.
        let mut tail = fields.len().div_ceil(8).max(1);
        let mut locations = Vec::with_capacity(fields.len());
        let mut start_at = None;
        for (i, field) in fields.iter().enumerate() {
            locations.push(match field.fixed {
                Some(width) => FieldLocation::Fixed { offset: tail, width },
                None => FieldLocation::Variable { end_at: tail, start_at: start_at.replace(tail) },
            });
            tail += field.fixed.unwrap_or(4);
            if tail > FIXED_BYTES_MAX {
                return Err(i);
            }
        }
        Ok(Self { fields, locations, tail })
    }

    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|field| field.fixed.is_some())
    }
}

/// Computes the shape of a top-level column of this wire type.
pub(crate) fn column_shape(column: &str, data_type: &DataType) -> Result<Shape, PackError> {
    Shape::new(data_type).map_err(|unsupported| match unsupported {
        Some(data_type) => PackError::Unsupported { column: column.to_owned(), data_type },
        None => PackError::TooWide { column: column.to_owned() },
    })
}

/// Returns bit `i` of a bitmap.
pub(crate) fn bit(bitmap: &[u8], i: usize) -> bool {
    bitmap[i / 8] >> (i % 8) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{Field, UnionFields, UnionMode};
    use std::sync::Arc;

    fn list_of(data_type: DataType, len: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", data_type, true)), len)
    }

    #[test]
    fn fixed_fields_are_at_constant_offsets_and_variable_ones_are_chained() {
        let types = [DataType::Int16, DataType::Utf8, DataType::Boolean, DataType::Binary];
        let shapes = types.iter().map(|t| Shape::new(t).unwrap()).collect();
        let row = RowShape::new(shapes).unwrap();
        assert_eq!(
            row.locations,
            [
                FieldLocation::Fixed { offset: 1, width: 2 },
                FieldLocation::Variable { end_at: 3, start_at: None },
                FieldLocation::Fixed { offset: 7, width: 1 },
                FieldLocation::Variable { end_at: 8, start_at: Some(3) },
            ]
        );
        assert_eq!((row.tail, row.is_fixed()), (12, false));
    }

    #[test]
    fn widths_follow_from_types() {
        let widths = |t: &DataType| Shape::new(t).map(|shape| (shape.fixed, shape.plain)).unwrap();
        assert_eq!(widths(&DataType::Null), (Some(0), None));
        assert_eq!(widths(&list_of(DataType::Float32, 9)), (Some(2 + 36), Some(36)));
        assert_eq!(widths(&list_of(list_of(DataType::Int8, 8), 2)), (Some(1 + 18), Some(16)));
        assert_eq!(widths(&list_of(DataType::Utf8, 2)), (None, None));
        assert_eq!(widths(&DataType::Struct(arrow_schema::Fields::empty())), (Some(1), None));
    }

    #[test]
    fn unions_and_excessive_widths_are_refused() {
        let union = DataType::Union(UnionFields::empty(), UnionMode::Sparse);
        let error = column_shape("u", &list_of(union, 1)).unwrap_err();
        assert!(error.to_string().starts_with("column u: type Union"), "{error}");
        let wide = list_of(list_of(DataType::Int64, i32::MAX), i32::MAX);
        assert!(matches!(column_shape("w", &wide), Err(PackError::TooWide { .. })));
    }
}
