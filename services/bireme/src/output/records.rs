//! Formats rows with one value per line, for a single row or a narrow terminal.

use arrow_array::RecordBatch;
use console::{Alignment, measure_text_width, pad_str};

use super::cell::cell;
use crate::escape::one_line;

/// Returns every value with its column's name, and an empty line between rows.
pub fn records(batch: &RecordBatch) -> String {
    let schema = batch.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| one_line(field.name())).collect();
    let width = names.iter().map(|name| measure_text_width(name)).max().unwrap_or(0);
    let rows = (0..batch.num_rows()).map(|row| {
        let lines = names.iter().zip(batch.columns()).map(|(name, column)| {
            let name = pad_str(name, width, Alignment::Left, None);
            format!("{name}  {}\n", cell(column, row))
        });
        lines.collect::<String>()
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, StringArray};

    use super::*;

    #[test]
    fn names_are_aligned() {
        let id: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let word: ArrayRef = Arc::new(StringArray::from(vec!["oar", "hull"]));
        let batch = RecordBatch::try_from_iter([("id", id), ("word", word)]).unwrap();
        assert_eq!(records(&batch), "id    1\nword  oar\n\nid    2\nword  hull\n");
    }
}
