//! Query words: two words of one row's text, so that each search finds a row.

use arrow_array::StringArray;
use arrow_cast::cast;
use arrow_schema::DataType;
use rand::Rng;
use rand::rngs::StdRng;

use super::target::Target;
use crate::error::{CliError, Result};

/// The maximum number of texts that are drawn from the table.
const TEXTS: usize = 1000;

/// The minimum number of letters of a word. Shorter words are mostly stop words, which an index leaves out.
const LETTERS_MIN: usize = 4;

/// The words of each text from which queries are made. Each text has at least one word.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryWords(Vec<Vec<String>>);

impl QueryWords {
    /// Draws the texts from a column.
    pub async fn draw(target: &Target, column: &str, seed: u64) -> Result<Self> {
        let mut texts = Vec::new();
        for batch in target.sample(column, seed, TEXTS).await? {
            let text = cast(batch.column(0), &DataType::Utf8).ok();
            let text = text.as_deref().and_then(|it| it.as_any().downcast_ref::<StringArray>());
            let text = text.ok_or_else(|| {
                CliError::usage(format!("column `{column}` holds no text; name one with --column"))
            })?;
            texts.extend(text.iter().flatten().map(words_in).filter(|words| !words.is_empty()));
        }
        match texts.is_empty() {
            true => Err(CliError::usage(format!("no word was drawn from column `{column}`"))),
            false => Ok(Self(texts)),
        }
    }

    /// Returns two random words of a random text. They may be the same word.
    pub fn next(&self, random: &mut StdRng) -> String {
        let words = &self.0[random.random_range(0..self.0.len())];
        let mut word = || words[random.random_range(0..words.len())].as_str();
        format!("{} {}", word(), word())
    }
}

fn words_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| word.chars().count() >= LETTERS_MIN).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::random;

    #[test]
    fn words_of_one_text_are_asked_for() {
        assert_eq!(words_in("a strong wind; the high-wind"), ["strong", "wind", "high", "wind"]);
        let words = QueryWords(vec![words_in("strong wind"), words_in("large animal")]);
        for number in 0..20 {
            let query = words.next(&mut random(1, number));
            let pair: Vec<_> = query.split(' ').collect();
            assert!(words.0.iter().any(|text| pair.iter().all(|it| text.contains(&(*it).into()))));
        }
    }
}
