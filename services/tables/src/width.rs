//! The width of values in memory.

use arrow_schema::DataType;

/// Returns the number of bytes of a value, or `None` for types of variable width, dictionaries and structs.
pub fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => u64::try_from(*width).ok(),
        DataType::FixedSizeList(item, count) => {
            fixed_bytes(item.data_type())?.checked_mul(u64::try_from(*count).ok()?)
        }
        other => other.primitive_width().map(|width| width as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_fixed_size_have_a_width_if_their_items_have_one() {
        let list = |item, count| DataType::new_fixed_size_list(item, count, true);
        assert_eq!(fixed_bytes(&list(DataType::Float32, 768)), Some(3072));
        assert_eq!(fixed_bytes(&list(list(DataType::Boolean, 3), 2)), Some(6));
        assert_eq!(fixed_bytes(&list(DataType::Null, 7)), Some(0));
        assert_eq!(fixed_bytes(&list(DataType::Utf8, 7)), None);
        let too_wide = list(list(DataType::Int64, i32::MAX), i32::MAX);
        assert_eq!(fixed_bytes(&too_wide), None);
    }
}
