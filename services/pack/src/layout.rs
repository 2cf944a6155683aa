//! The layout of a pack's rows: a pure function of its columns' types.

use arrow_schema::{DataType, Field, FieldRef};

use crate::PackError;
use crate::index::{ExtentIndex, Form, Placement};
use crate::shape::{Kind, RowShape, column_shape};
use crate::wire::{wire_field, wire_type};

/// The layout of a pack's rows.
///
/// A pack of one fixed-width column (a vector) is [`Form::Plain`]: bare values, so that a vector
/// of 4,096 bytes is one sector. A pack of one binary or text column is [`Form::Value`]. All others
/// are [`Form::Row`], and so is a chunk of a fixed-width column that [`Form::Plain`] can't hold.
#[derive(Clone, Debug)]
pub struct PackLayout {
    pub(crate) fields: Vec<FieldRef>,
    pub(crate) row: RowShape,
    pub(crate) solo: Solo,
}

/// What the only column of a pack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solo {
    /// Fixed-width, of that many bytes without nulls within: [`Form::Plain`], or [`Form::Row`].
    Plain(u32),
    /// Binary or text: always [`Form::Value`].
    Value,
    /// There are several columns, or the one is nested: always [`Form::Row`].
    No,
}

/// What the vectors of a solo column are, for scoring them in place: their bytes are a row's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorType {
    /// The type of each element.
    pub element: VectorElement,
    /// Elements of a vector.
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
    /// bfloat16: `FixedSizeBinary(2)` that Lance marks as such.
    Bf16,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
}

impl PackLayout {
    /// The layout of rows of these columns, in this order.
    ///
    /// # Errors
    /// [`PackError::Unsupported`] for unions, run-end encoding and list views at any depth;
    /// [`PackError::TooWide`] for more than 1 GiB of constant width a row.
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

    /// The columns, in the table's types.
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// The columns in the types in which they leave, before text becomes binary: see
    /// [`crate::physical_type`].
    pub fn wire_fields(&self) -> Vec<Field> {
        self.fields.iter().map(|field| wire_field(field)).collect()
    }

    /// What the vectors are, if the pack is one column of vectors. In an extent of [`Form::Plain`]
    /// the bytes of a row that [`ExtentIndex::is_null`] says isn't null are the vector; extents of
    /// [`Form::Row`] (vectors with nulls among their elements) go through an [`crate::Assembler`].
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

    /// Refuses an index that no extent of this layout has.
    pub(crate) fn check_index(&self, index: &ExtentIndex) -> Result<(), PackError> {
        let fits = match (self.solo, index.form, &index.placement) {
            (Solo::Plain(width), Form::Plain, Placement::Fixed(rows)) => rows.width == width,
            (Solo::Value, Form::Value, Placement::Variable(_)) => true,
            (Solo::Plain(_) | Solo::No, Form::Row, Placement::Fixed(rows)) => {
                self.row.is_fixed() && rows.width as usize == self.row.tail
            }
            (Solo::No, Form::Row, Placement::Variable(_)) => !self.row.is_fixed(),
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(PackError::CorruptIndex { reason: "of another layout" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn vector(item: Field) -> Option<VectorType> {
        let list = DataType::FixedSizeList(Arc::new(item), 1024);
        PackLayout::new(&[Arc::new(Field::new("v", list, true))]).unwrap().vector_type()
    }

    #[test]
    fn vectors_are_known_by_their_elements() {
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
    fn one_column_packs_are_solo() {
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
