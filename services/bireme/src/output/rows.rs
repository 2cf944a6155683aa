//! Formats rows as a table, as records, or as JSON lines.

use arrow_array::RecordBatch;
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use arrow_schema::ArrowError;

use super::cell::cell;
use super::records::records;
use super::text_table::{Align, TextTable};

/// The layout of rows for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLayout {
    /// One row per line, if that fits.
    Table,
    /// One value per line.
    Records,
}

/// Returns rows as text. No line of a table is wider than `width`.
pub fn rows_text(batch: &RecordBatch, layout: RowLayout, width: usize) -> String {
    match layout {
        RowLayout::Table => table(batch).fitted(width).unwrap_or_else(|| records(batch)),
        RowLayout::Records => records(batch),
    }
}

fn table(batch: &RecordBatch) -> TextTable {
    let schema = batch.schema();
    let headers = schema.fields().iter().map(|field| {
        let align = if field.data_type().is_numeric() { Align::Right } else { Align::Left };
        (field.name().as_str(), align)
    });
    let mut table = TextTable::new(headers);
    for row in 0..batch.num_rows() {
        table.row(batch.columns().iter().map(|column| cell(column, row)).collect());
    }
    table
}

/// Returns rows as JSON lines, in which nulls are written.
pub fn json_rows(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, LineDelimited>(Vec::new());
    writer.write(batch)?;
    writer.finish()?;
    Ok(writer.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray, UInt64Array};

    use super::*;

    fn batch() -> RecordBatch {
        let id: ArrayRef = Arc::new(Int32Array::from(vec![1, 20]));
        let word: ArrayRef = Arc::new(StringArray::from(vec![Some("a long oar"), None]));
        RecordBatch::try_from_iter([("id", id), ("word", word)]).unwrap()
    }

    #[test]
    fn rows_fit_the_width_or_become_records() {
        let table = rows_text(&batch(), RowLayout::Table, 80);
        assert_eq!(table, "id  word\n 1  a long oar\n20  null\n");
        let cut = rows_text(&batch(), RowLayout::Table, 13);
        assert_eq!(cut, "id  word\n 1  a long o…\n20  null\n");
        assert!(rows_text(&batch(), RowLayout::Table, 5).contains("word  a long oar"));
    }

    #[test]
    fn json_has_one_row_per_line_and_nulls() {
        let lines = json_rows(&batch()).unwrap();
        let expected = "{\"id\":1,\"word\":\"a long oar\"}\n{\"id\":20,\"word\":null}\n";
        assert_eq!(String::from_utf8(lines).unwrap(), expected);
    }

    /// All digits are written, although a reader that parses numbers as floats loses some. JSON has no NaN and no
    /// infinity.
    #[test]
    fn json_has_every_digit_of_64_bits_and_null_for_nan_and_infinity() {
        let least: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, 1]));
        let most: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1]));
        let float: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::NEG_INFINITY]));
        let batch = RecordBatch::try_from_iter([("a", least), ("b", most), ("c", float)]).unwrap();
        let expected = "{\"a\":-9223372036854775808,\"b\":18446744073709551615,\"c\":null}\n\
                        {\"a\":1,\"b\":1,\"c\":null}\n";
        assert_eq!(String::from_utf8(json_rows(&batch).unwrap()).unwrap(), expected);
    }
}
