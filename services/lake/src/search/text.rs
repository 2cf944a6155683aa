//! Full-text search.

use lance_index::scalar::FullTextSearchQuery;

use super::hit::{ScoreHit, addresses, numbers, only_addresses};
use crate::error::{LakeError, Result};
use crate::table::Table;

/// Lance's name for the column of BM25 scores.
const SCORE: &str = "_score";

/// A question to the full-text index.
#[derive(Clone, Debug, Default)]
pub struct TextQuery {
    /// The column to search; all columns that have a full-text index if `None`.
    pub column: Option<String>,
    /// Words, any of which may match. The index's tokenizer decides on case, stems and stop words.
    pub words: String,
    /// How many rows at most; at least 1.
    pub k: usize,
    /// SQL expression that the rows must satisfy; applied before the search, so that `k` rows come
    /// back if that many match.
    pub filter: Option<String>,
}

impl Table {
    /// The best matches, best first. Rows that were added after the index was built are searched
    /// too (by scanning them).
    ///
    /// Errors: `BadQuery` (no words, k = 0), `ColumnNotFound`, `NoIndex`, `BadFilter`, and those
    /// of the store.
    pub async fn search_text(&self, query: &TextQuery) -> Result<Vec<ScoreHit>> {
        if query.k == 0 {
            return Err(LakeError::BadQuery { why: "k is 0; ask for at least 1 row".into() });
        }
        if !query.words.contains(char::is_alphanumeric) {
            return Err(LakeError::BadQuery { why: "no words to search for".into() });
        }
        let columns = self.text_columns(query.column.as_deref()).await?;
        let mut scanner = self.dataset().scan();
        only_addresses(self, &mut scanner, &[SCORE]).map_err(|error| self.blame(error))?;
        self.set_filter(&mut scanner, query.filter.as_deref())?;
        let k = i64::try_from(query.k).unwrap_or(i64::MAX);
        let search = async {
            let words = FullTextSearchQuery::new(query.words.clone())
                .with_columns(&columns)?
                .limit(Some(k));
            scanner.prefilter(true).full_text_search(words)?.limit(Some(k), None)?;
            let batch = scanner.try_into_batch().await?;
            let scores = numbers(&batch, SCORE)?.iter();
            let mut hits: Vec<_> = addresses(&batch)?
                .zip(scores)
                .map(|(addr, &score)| ScoreHit { addr, score })
                .collect();
            hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.addr.cmp(&b.addr)));
            hits.truncate(query.k);
            Ok(hits)
        };
        search.await.map_err(|error| self.blame(error))
    }

    async fn text_columns(&self, wanted: Option<&str>) -> Result<Vec<String>> {
        if let Some(column) = wanted {
            self.column_position(column)?;
        }
        let indexes = self.indexes().await?;
        let indexed =
            indexes.iter().filter(|index| index.is_text()).flat_map(|index| index.columns.iter());
        let columns: Vec<_> =
            indexed.filter(|column| wanted.is_none_or(|it| it == *column)).cloned().collect();
        if columns.is_empty() {
            return Err(LakeError::NoIndex {
                uri: self.uri().to_owned(),
                column: wanted.unwrap_or("COLUMN").to_owned(),
                kind: "full-text",
                flag: "--text",
            });
        }
        Ok(columns)
    }
}
