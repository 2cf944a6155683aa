//! How a value of each type is encoded, as a tree computed once from the columns' types.
//!
//! ```text
//! null             nothing
//! boolean          u8
//! plain            the value's bytes, little-endian (numbers, dates, decimals, fixed-size binary)
//! binary, text     the bytes; whoever holds the value knows its length
//! fixed list       body of as many items, always with a bitmap
//! list, map        u32: items in the low 30 bits, bit 30 "plain", bit 31 "bitmap"; then the body
//! struct, row      bitmap, a bit a field, at least a byte
//!                  | for each field: its fixed encoding, or the u32 end of its variable one
//!                  | the variable encodings, one after another
//! body of n items  bitmap, a bit an item (in lists only if an item is null, or has no bytes)
//!                  | fixed items: one after another, in their plain encoding if the list says so
//!                  | variable items: n × u32 ends, then the items
//! ```
//!
//! Bitmaps have the least significant bit first, set where a value is valid, as in Arrow. A null
//! of a fixed type is zeros, of a variable type nothing. Ends count from the struct's first byte,
//! or from a body's first item. The *plain* encoding of a fixed list is its items' plain encodings
//! without bitmaps; it is chosen where nothing within is null, and is one copy to decode.

use arrow_schema::DataType;

use crate::PackError;
use crate::physical::physical_type;
use crate::plan::plain_width;

/// The widest fixed part of a row. Far more than a sector; keeps sums of widths from overflowing.
const FIXED_BYTES_MAX: usize = 1 << 30;

/// Bits of a list's head.
pub(crate) const LIST_COUNT_MAX: usize = (1 << 30) - 1;
pub(crate) const LIST_PLAIN: u32 = 1 << 30;
pub(crate) const LIST_BITMAP: u32 = 1 << 31;

/// How values of one type are encoded.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub kind: Kind,
    /// The type of the array they become.
    pub physical: DataType,
    /// Bytes of every value, if constant.
    pub fixed: Option<usize>,
    /// Bytes of every value in the plain encoding, if the type has one.
    pub plain: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Plain(usize),
    Binary,
    /// Also a map, as the list of its entries.
    List(Box<Shape>),
    FixedList(usize, Box<Shape>),
    Struct(RowShape),
}

impl Shape {
    /// The shape of a wire type. An `Err` is the nested type at fault, or `None` for one that is
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

/// Where a field is within a struct or row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// At a constant place.
    Fixed { offset: usize, width: usize },
    /// Its end is the u32 at `end_at`, its start the one at `start_at`, or the tail for the first.
    Variable { end_at: usize, start_at: Option<usize> },
}

/// A struct's fields, or a row's columns.
#[derive(Clone, Debug)]
pub(crate) struct RowShape {
    pub fields: Vec<Shape>,
    pub slots: Vec<Slot>,
    /// Bytes before the variable part.
    pub tail: usize,
}

impl RowShape {
    /// An `Err` is the first field that makes the fixed part too wide.
    pub fn new(fields: Vec<Shape>) -> Result<Self, usize> {
        // At least a byte, so that no row and no list item of a struct is without bytes.
        let mut tail = fields.len().div_ceil(8).max(1);
        let mut slots = Vec::with_capacity(fields.len());
        let mut start_at = None;
        for (i, field) in fields.iter().enumerate() {
            slots.push(match field.fixed {
                Some(width) => Slot::Fixed { offset: tail, width },
                None => Slot::Variable { end_at: tail, start_at: start_at.replace(tail) },
            });
            tail += field.fixed.unwrap_or(4);
            if tail > FIXED_BYTES_MAX {
                return Err(i);
            }
        }
        Ok(Self { fields, slots, tail })
    }

    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|field| field.fixed.is_some())
    }
}

/// The shape of a top-level column of this wire type.
pub(crate) fn column_shape(column: &str, data_type: &DataType) -> Result<Shape, PackError> {
    Shape::new(data_type).map_err(|fault| match fault {
        Some(data_type) => PackError::Unsupported { column: column.to_owned(), data_type },
        None => PackError::TooWide { column: column.to_owned() },
    })
}

/// Bit `i` of a bitmap.
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
    fn slots_are_at_constant_places_and_variable_ones_chain() {
        let types = [DataType::Int16, DataType::Utf8, DataType::Boolean, DataType::Binary];
        let shapes = types.iter().map(|t| Shape::new(t).unwrap()).collect();
        let row = RowShape::new(shapes).unwrap();
        assert_eq!(
            row.slots,
            [
                Slot::Fixed { offset: 1, width: 2 },
                Slot::Variable { end_at: 3, start_at: None },
                Slot::Fixed { offset: 7, width: 1 },
                Slot::Variable { end_at: 8, start_at: Some(3) },
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
    fn unions_run_ends_and_absurd_widths_are_refused() {
        let union = DataType::Union(UnionFields::empty(), UnionMode::Sparse);
        let error = column_shape("u", &list_of(union, 1)).unwrap_err();
        assert!(error.to_string().starts_with("column u: type Union"), "{error}");
        let wide = list_of(list_of(DataType::Int64, i32::MAX), i32::MAX);
        assert!(matches!(column_shape("w", &wide), Err(PackError::TooWide { .. })));
    }
}
