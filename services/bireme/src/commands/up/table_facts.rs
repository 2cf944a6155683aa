//! Finds facts about a table by reading one of its rows. `next_steps.rs` makes the suggested commands from them.

use address::RowAddr;
use lake::Table;

use super::next_steps::TableFacts;
use crate::output::key_text;

/// The number of rows that are tried to find one that is not deleted.
const ROWS_TRIED: u32 = 64;

/// The maximum number of words of a text that are suggested.
const WORDS: usize = 2;

/// The minimum length of a suggested word, in bytes. Shorter words are mostly stop words, which a text index leaves
/// out.
const WORD_BYTES_MIN: usize = 5;

/// Returns the facts that could be determined. Errors are ignored: without facts, other commands are suggested.
pub async fn table_facts(name: &str, table: &Table) -> TableFacts {
    let indexes = table.indexes().await.unwrap_or_default();
    let text = indexes.iter().find(|index| index.is_text()).and_then(|index| index.columns.first());
    let key = match table.key_column() {
        Some(column) => value(table, column).await,
        None => None,
    };
    let words = match text {
        Some(column) => value(table, column).await.map(|text| first_words(&text)),
        None => None,
    };
    TableFacts {
        name: name.to_owned(),
        key,
        words: words.filter(|words| !words.is_empty()),
        has_vector: table.vector_column(None, None).await.is_ok(),
    }
}

/// Returns the column's value in a row that is not deleted.
async fn value(table: &Table, column: &str) -> Option<String> {
    let fragment = table.fragments().iter().find(|it| it.deleted_rows < it.physical_rows)?;
    let offsets = 0..fragment.physical_rows.min(ROWS_TRIED);
    let tried: Vec<RowAddr> = offsets.map(|offset| RowAddr::new(fragment.id, offset)).collect();
    let missing = table.missing(&tried).await.ok()?;
    let live = (0..tried.len()).find(|at| !missing.contains(at))?;
    let row = table.take(&[tried[live]], &[column.to_owned()]).await.ok()?;
    let array = row.columns().first().filter(|array| !array.is_empty())?;
    key_text(array, 0)
}

fn first_words(text: &str) -> String {
    let words =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= WORD_BYTES_MIN);
    words.take(WORDS).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_long_words_are_taken() {
        assert_eq!(first_words("[that which a small boat, for rowing]"), "which small");
        assert_eq!(first_words("a b"), "");
    }
}
