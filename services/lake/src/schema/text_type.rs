//! The types of columns that full-text search is possible on.

use arrow::datatypes::DataType;

/// Returns whether a column of `data_type` can have a full-text index: strings or lists of strings.
pub(crate) fn can_be_searched(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => is_text(item.data_type()),
        other => is_text(other),
    }
}

/// Returns whether a column of `data_type` has one string a row.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
}
