//! Physical types: what an I/O node hands out without looking at text.
//!
//! A drive's bytes were valid UTF-8 when they were filled, but proving it again costs the core that
//! serves them. So text leaves as binary of the same bytes, the wire's schema declares the logical
//! type, and the receiver, which must not trust the network either, validates.

use arrow_array::{ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};

use crate::PackError;
use crate::wire::map_children;

/// The type of the arrays that [`crate::Assembler`] makes for a column of this wire type: `Utf8` is
/// `Binary`, `LargeUtf8` `LargeBinary`, at every depth. Buffers are the same in both.
pub fn physical_type(wire_type: &DataType) -> DataType {
    match wire_type {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        other => map_children(other, physical_type),
    }
}

/// The array in its wire type, once all of its text is proven to be UTF-8. No buffer is copied.
///
/// # Errors
/// [`PackError::Arrow`] for text that isn't UTF-8, or an array of another type.
pub fn to_logical(physical: ArrayData, wire_field: &Field) -> Result<ArrayRef, PackError> {
    let data = logical_data(physical, wire_field.data_type())
        .map_err(PackError::arrow(wire_field.name()))?;
    Ok(make_array(data))
}

fn logical_data(
    physical: ArrayData,
    data_type: &DataType,
) -> Result<ArrayData, arrow_schema::ArrowError> {
    let children: Vec<&DataType> = match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => Vec::new(),
    };
    if physical.data_type() != &physical_type(data_type) {
        return Err(arrow_schema::ArrowError::CastError(format!(
            "an array of {} is not the physical form of {data_type}",
            physical.data_type()
        )));
    }
    let converted = children
        .into_iter()
        .zip(physical.child_data())
        .map(|(child_type, child)| logical_data(child.clone(), child_type))
        .collect::<Result<Vec<_>, _>>()?;
    physical.into_builder().data_type(data_type.clone()).child_data(converted).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, BinaryArray, StringArray};

    #[test]
    fn text_is_validated_on_its_way_back() {
        let field = Field::new("name", DataType::Utf8, true);
        let good = BinaryArray::from_opt_vec(vec![Some("é".as_bytes()), None]);
        let text = to_logical(good.to_data(), &field).unwrap();
        assert_eq!(text.as_ref(), &StringArray::from(vec![Some("é"), None]) as &dyn Array);
        let bad = BinaryArray::from_vec(vec![b"\xff"]);
        let error = to_logical(bad.to_data(), &field).unwrap_err();
        assert!(error.to_string().contains("column name"), "{error}");
        let other = Field::new("n", DataType::Int8, true);
        assert!(to_logical(good.to_data(), &other).is_err());
    }
}
