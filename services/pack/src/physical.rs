//! Physical types: the types of the arrays that an I/O node sends, in which text is binary.
//!
//! Text was valid UTF-8 when it was encoded, but to build an array of text, the core that serves it would have to
//! validate it again. An I/O node therefore sends text as binary with the same bytes, and the wire schema declares the
//! logical type.
//! The receiver validates the text, which it must do in any case because it does not trust the network.

use arrow_array::{ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};

use crate::PackError;
use crate::wire::map_children;

/// Returns the type of the arrays that [`crate::Assembler`] builds for a column of `wire_type`: `Utf8` becomes `Binary`
/// and `LargeUtf8` becomes `LargeBinary`, at every depth. The buffers are the same.
pub fn physical_type(wire_type: &DataType) -> DataType {
    match wire_type {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        other => map_children(other, physical_type),
    }
}

/// Converts an array to its wire type, after validating that its text is UTF-8. Copies no buffer.
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
    fn text_is_validated_in_the_conversion_to_logical() {
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
