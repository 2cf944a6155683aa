//! Converts arrays from wire types back to the table's types: the reverse of [`crate::wire_field`].

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, StructArray,
    UInt64Array, make_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::take::take;

use crate::PackError;
use crate::column::Column;
use crate::shape::column_shape;
use crate::wire::{encoded_type, wire_type};

/// Converts an array of a field's wire type to the field's own type. Rebuilds dictionaries and views at every depth. A
/// dictionary has the values that occur, in the order of their first occurrence. Returns other arrays unchanged.
///
/// # Errors
/// [`PackError::DictionaryOverflow`] if there are more distinct values than the key type can count, which can only
/// happen if the rows come from several chunks; [`PackError::Arrow`] if the array has another type.
pub fn restore(array: &ArrayRef, field: &Field) -> Result<ArrayRef, PackError> {
    restore_type(array, field.data_type()).map_err(|error| match error {
        RestoreError::Overflow { values, key_type } => {
            PackError::DictionaryOverflow { column: field.name().clone(), values, key_type }
        }
        RestoreError::Arrow(source) => PackError::Arrow { column: field.name().clone(), source },
    })
}

enum RestoreError {
    Overflow { values: usize, key_type: DataType },
    Arrow(ArrowError),
}

impl From<ArrowError> for RestoreError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

fn restore_type(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, RestoreError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    if array.data_type() != &wire_type(to) {
        let reason = format!("{} is not the wire type of {to}", array.data_type());
        return Err(ArrowError::CastError(reason).into());
    }
    Ok(match to {
        DataType::Dictionary(key_type, value_type) => {
            dictionary(restore_type(array, value_type)?, key_type, value_type)?
        }
        DataType::List(item) => Arc::new(list::<i32>(array, item)?),
        DataType::LargeList(item) => Arc::new(list::<i64>(array, item)?),
        DataType::FixedSizeList(item, len) => {
            let from = array.as_fixed_size_list();
            let items = restore_type(from.values(), item.data_type())?;
            let nulls = from.nulls().cloned();
            let item = item.clone();
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, items, nulls, from.len())?)
        }
        DataType::Map(entries_field, sorted) => {
            let from = array.as_map();
            let entries: ArrayRef = Arc::new(from.entries().clone());
            let entries = restore_type(&entries, entries_field.data_type())?.as_struct().clone();
            let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
            Arc::new(MapArray::try_new(entries_field.clone(), offsets, entries, nulls, *sorted)?)
        }
        DataType::Struct(fields) => {
            let from = array.as_struct();
            let children = from
                .columns()
                .iter()
                .zip(fields)
                .map(|(child, field)| restore_type(child, field.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            let nulls = from.nulls().cloned();
            let len = from.len();
            Arc::new(StructArray::try_new_with_length(fields.clone(), children, nulls, len)?)
        }
        view => cast(array, view)?,
    })
}

fn list<O: OffsetSizeTrait>(
    array: &ArrayRef,
    item: &FieldRef,
) -> Result<GenericListArray<O>, RestoreError> {
    let from = array.as_list::<O>();
    let items = restore_type(from.values(), item.data_type())?;
    let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
    Ok(GenericListArray::try_new(item.clone(), offsets, items, nulls)?)
}

/// Builds a dictionary from values of any type. Arrow's cast supports only primitive and binary values. This function
/// compares values by their encoding instead, which every type has.
fn dictionary(
    values: ArrayRef,
    key_type: &DataType,
    value_type: &DataType,
) -> Result<ArrayRef, RestoreError> {
    let encoded = cast(&values, &encoded_type(value_type))?;
    let shape = column_shape("", encoded.data_type())
        .map_err(|error| ArrowError::CastError(error.to_string()))?;
    let column = Column::new(&encoded, &shape);
    let mut keys_by_bytes: HashMap<Vec<u8>, u64> = HashMap::new();
    let (mut firsts, mut bytes) = (Vec::<u64>::new(), Vec::new());
    let mut key_of = |i| {
        bytes.clear();
        column.append(i, &mut bytes);
        if let Some(&key) = keys_by_bytes.get(bytes.as_slice()) {
            return key;
        }
        let key = firsts.len() as u64;
        keys_by_bytes.insert(bytes.clone(), key);
        firsts.push(i as u64);
        key
    };
    let keys: UInt64Array =
        (0..values.len()).map(|i| (!column.is_null(i)).then(|| key_of(i))).collect();
    let overflow = |_| RestoreError::Overflow { values: firsts.len(), key_type: key_type.clone() };
    let keys: ArrayRef = Arc::new(keys);
    let keys = cast(&keys, key_type).map_err(overflow)?.to_data();
    let distinct = take(&values, &UInt64Array::from(firsts.clone()), None)?;
    let data_type = DataType::Dictionary(key_type.clone().into(), value_type.clone().into());
    let data = keys.into_builder().data_type(data_type).add_child_data(distinct.to_data());
    Ok(make_array(data.build()?))
}

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(array, to, &CastOptions { safe: false, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::StringArray;

    #[test]
    fn a_dictionary_has_each_value_once_in_order_of_first_occurrence() {
        let text: ArrayRef =
            Arc::new(StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]));
        let to = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8View.into());
        let restored = restore(&text, &Field::new("d", to.clone(), true)).unwrap();
        assert_eq!(restored.data_type(), &to);
        let dictionary = restored.as_any_dictionary();
        assert_eq!(dictionary.values().len(), 2);
        assert_eq!(dictionary.values().as_string_view().value(0), "b");
        assert_eq!(dictionary.keys().null_count(), 1);
    }

    #[test]
    fn a_dictionary_overflow_names_the_column() {
        let text: ArrayRef =
            Arc::new((0..200).map(|i| Some(i.to_string())).collect::<StringArray>());
        let to = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
        let error = restore(&text, &Field::new("color", to, true)).unwrap_err();
        let expected = "column color: 200 distinct values do not fit dictionary keys of Int8";
        assert_eq!(error.to_string(), expected);
    }
}
