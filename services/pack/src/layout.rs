//! The layout of a pack's rows: a pure function of its columns' types.

use arrow_schema::{DataType, FieldRef};

use crate::PackError;
use crate::index::{ExtentIndex, Form, RowPlacement};
use crate::shape::{Kind, RowShape, column_shape};
use crate::wire::wire_type;

/// The layout of a pack's rows.
///
/// A pack of one fixed-width column without structs, such as a vector, uses [`Form::Plain`]. Its rows have no header,
/// so a vector of 4,096 bytes takes exactly one sector. A pack of one binary or text column uses [`Form::Value`]. All
/// other packs use [`Form::Row`]. So does a chunk of a single fixed-width column in which a value has a null element,
/// or in which a value is null and values have fewer than 64 bytes.
#[derive(Clone, Debug)]
pub struct PackLayout {
    pub(crate) fields: Vec<FieldRef>,
    pub(crate) row: RowShape,
    pub(crate) solo: Solo,
}

/// The special form that a pack of one column may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solo {
    /// One column of a fixed width above 0, without structs. The number is the width of a value in [`Form::Plain`].
    /// Some chunks use [`Form::Row`].
    Plain(u32),
    /// One binary or text column, always in [`Form::Value`].
    Value,
    /// Any other columns, always in [`Form::Row`].
    No,
}

/// The type of the vectors in a pack of one vector column. Nothing else is needed to score vectors in place: in an
/// extent of [`Form::Plain`], a row's bytes are the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorType {
    /// The type of each element.
    pub element: VectorElement,
    /// The number of elements of a vector.
    pub dimension: usize,
}

/// The type of a vector's elements, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorElement {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// IEEE 754 binary64.
    F64,
    /// bfloat16, which Lance stores as a `FixedSizeBinary(2)` with an extension name.
    Bf16,
    /// A signed byte.
    I8,
    /// An unsigned byte.
    U8,
}

impl PackLayout {
    /// Computes the layout of rows with the columns `fields`, in this order.
    ///
    /// # Errors
    /// [`PackError::Unsupported`] for unions, run-end encoding and list views at any depth; [`PackError::TooWide`] if
    /// the fixed part of a row is wider than 1 GiB.
    pub fn new(fields: &[FieldRef]) -> Result<Self, PackError> {
        let shapes = fields
            .iter()
            .map(|field| column_shape(field.name(), &wire_type(field.data_type())))
            .collect::<Result<Vec<_>, _>>()?;
        let solo = match shapes.as_slice() {
            [shape] => match (&shape.kind, shape.plain) {
                (Kind::Binary, _) => Solo::Value,
                (_, Some(width)) => Solo::Plain(width as u32),
                _ => Solo::No,
            },
            _ => Solo::No,
        };
        let row = RowShape::new(shapes)
            .map_err(|at| PackError::TooWide { column: fields[at].name().clone() })?;
        Ok(Self { fields: fields.to_vec(), row, solo })
    }

    /// Returns the columns with the table's types.
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// Returns the type of the vectors if the pack's only column is a column of vectors. In an extent of
    /// [`Form::Plain`], the bytes of a row are the vector unless [`ExtentIndex::is_null`] returns true. Extents of
    /// [`Form::Row`] must be decoded by a [`crate::Assembler`]: they have vectors with null elements, or null vectors
    /// of fewer than 64 bytes.
    pub fn vector_type(&self) -> Option<VectorType> {
        let [field] = self.fields.as_slice() else { return None };
        let DataType::FixedSizeList(item, dimension) = field.data_type() else { return None };
        let element = match item.data_type() {
            DataType::Float32 => VectorElement::F32,
            DataType::Float16 => VectorElement::F16,
            DataType::Float64 => VectorElement::F64,
            DataType::Int8 => VectorElement::I8,
            DataType::UInt8 => VectorElement::U8,
            DataType::FixedSizeBinary(2)
                if item.extension_type_name() == Some("lance.bfloat16") =>
            {
                VectorElement::Bf16
            }
            _ => return None,
        };
        Some(VectorType { element, dimension: usize::try_from(*dimension).ok()? })
    }

    /// Returns an error if `index` can't belong to an extent of this layout.
    pub(crate) fn check_index(&self, index: &ExtentIndex) -> Result<(), PackError> {
        let fits = match (self.solo, index.form, &index.placement) {
            (Solo::Plain(width), Form::Plain, RowPlacement::Fixed(rows)) => rows.width == width,
            (Solo::Value, Form::Value, RowPlacement::Variable(_)) => true,
            (Solo::Plain(_) | Solo::No, Form::Row, RowPlacement::Fixed(rows)) => {
                self.row.is_fixed() && rows.width as usize == self.row.tail
            }
            (Solo::No, Form::Row, RowPlacement::Variable(_)) => !self.row.is_fixed(),
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(PackError::CorruptIndex { reason: "it has another layout" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    fn vector(item: Field) -> Option<VectorType> {
        let list = DataType::FixedSizeList(Arc::new(item), 1024);
        PackLayout::new(&[Arc::new(Field::new("v", list, true))]).unwrap().vector_type()
    }

    #[test]
    fn vector_types_follow_from_the_element_type() {
        let plain = |data_type| vector(Field::new("item", data_type, true));
        let f32 = VectorType { element: VectorElement::F32, dimension: 1024 };
        assert_eq!(plain(DataType::Float32), Some(f32));
        assert_eq!(plain(DataType::UInt8).map(|v| v.element), Some(VectorElement::U8));
        assert_eq!(plain(DataType::Int32), None);
        assert_eq!(plain(DataType::FixedSizeBinary(2)), None);
        let bf16 = Field::new("item", DataType::FixedSizeBinary(2), true).with_metadata(
            [("ARROW:extension:name".to_owned(), "lance.bfloat16".to_owned())].into(),
        );
        assert_eq!(vector(bf16).map(|v| v.element), Some(VectorElement::Bf16));
    }

    #[test]
    fn packs_of_one_column_may_have_a_special_form() {
        let solo = |data_type| {
            PackLayout::new(&[Arc::new(Field::new("c", data_type, true))]).unwrap().solo
        };
        let dictionary = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
        assert_eq!(solo(dictionary), Solo::Value);
        assert_eq!(solo(DataType::BinaryView), Solo::Value);
        assert_eq!(solo(DataType::Int64), Solo::Plain(8));
        assert_eq!(solo(DataType::Null), Solo::No);
        assert_eq!(solo(DataType::FixedSizeBinary(0)), Solo::No);
        assert_eq!(solo(DataType::Struct(arrow_schema::Fields::empty())), Solo::No);
        assert_eq!(PackLayout::new(&[]).unwrap().solo, Solo::No);
    }
}
