//! Full-text search.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use futures::FutureExt;
use lance_index::scalar::FullTextSearchQuery;

use super::allow_list::{AllowList, Allowed};
use super::coverage::Coverage;
use super::filter::may_read_clock;
use super::hit::{SCORE, ScoreHit, addresses, f32_column, only_addresses};
use super::plan_reason::PlanReason;
use super::row_addresses::RowAddresses;
use super::selection::widened;
use super::text_index::TextIndex;
use crate::deep_stack::polled_on_deep_stack;
use crate::error::{LakeError, Result};
use crate::table::Table;

/// Maximum number of words in a search, each a run of letters and digits. Repetitions count too, unless
/// [`bounded_words`] drops them. Lance takes about 16 KiB for each word, repetitions included: 400,000 words took 6.5
/// GB.
const WORDS_MAX: usize = 512;

/// Maximum bytes of the words that [`bounded_words`] leaves of a search. Text with few spaces may still be many words
/// to a tokenizer that makes n-grams, or splits Chinese.
const WORDS_BYTES_MAX: usize = 8 << 10;

/// Up to this many words, repeated words are kept, because a repetition gives a word more weight.
const REPEATED_WORDS_MAX: usize = 64;

/// The minimum share of rows that pass a filter at which the index is searched without a mask, for more rows, of which
/// those that do not pass are dropped. Below it, a mask is cheaper. With a mask of up to a tenth of the rows, Lance visits
/// every row that it selects: 2.5 ms for 100,000 rows, where two words have 2,400 matches.
const UNMASKED_SHARE_MIN: f64 = 0.02;

/// Maximum number of rows for which the index is searched without a mask.
const UNMASKED_ROWS_MAX: usize = 20_000;

/// A full-text search.
#[derive(Clone, Debug, Default)]
pub struct TextQuery {
    /// The column to search; all columns that have a full-text index if `None`.
    pub column: Option<String>,
    /// The words, any of which may match. The index's tokenizer decides on case, stems and stop words.
    pub words: String,
    /// The maximum number of rows; at least 1.
    pub k: usize,
    /// A SQL expression that the rows must satisfy. It is applied before the search, so that `k` rows are returned if
    /// that many match.
    pub filter: Option<String>,
}

/// The rows that a full-text search found.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHits {
    /// The best matches, best first.
    pub hits: Vec<ScoreHit>,
    /// The rows that the filter lets through, if there is a filter and the index was searched directly.
    pub allowed: Option<Allowed>,
    /// The reason why Lance's scanner planned the search; `None` if the index was searched directly.
    pub planned: Option<PlanReason>,
}

impl Table {
    /// Returns the best matches, best first. Rows that were added after the index was built are scanned.
    ///
    /// Errors: `BadQuery` (no words, k = 0), `ColumnNotFound`, `NoIndex`, `NoTextIndex`,
    /// `UnsupportedType`, `BadFilter`, and those of the store.
    pub async fn search_text(&self, query: &TextQuery) -> Result<TextHits> {
        let (words, columns) = self.check_text_query(query).await?;
        let index = match self.searched_alone(query, &columns).await? {
            Ok(index) => index,
            Err(reason) => {
                let hits = self.plan_text(query, words, &columns).await?;
                return Ok(TextHits { hits, allowed: None, planned: Some(reason) });
            }
        };
        let list = match &query.filter {
            Some(filter) => Some(self.allow_list(filter).await?),
            None => None,
        };
        let hits = self.search_text_index(index, &words, query.k, list.as_deref()).await?;
        let allowed = list.map(|list| list.summary());
        Ok(TextHits { hits, allowed, planned: None })
    }

    /// Like [`search_text`](Self::search_text), but always through Lance's scanner, which plans each search anew.
    ///
    /// Errors: as `search_text`.
    pub async fn planned_text(&self, query: &TextQuery) -> Result<Vec<ScoreHit>> {
        let (words, columns) = self.check_text_query(query).await?;
        self.plan_text(query, words, &columns).await
    }

    /// Searches `columns` for `words`, within the limits, through Lance's scanner.
    async fn plan_text(
        &self,
        query: &TextQuery,
        words: String,
        columns: &[String],
    ) -> Result<Vec<ScoreHit>> {
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self.dataset(), &mut scanner, &[SCORE]) }).await?;
        self.set_filter(&mut scanner, query.filter.as_deref())?;
        let k = i64::try_from(query.k).unwrap_or(i64::MAX);
        let search = async {
            let words = FullTextSearchQuery::new(words).with_columns(columns)?.limit(Some(k));
            scanner.prefilter(true).full_text_search(words)?.limit(Some(k), None)?;
            let batch = scanner.try_into_batch().await?;
            let scores = f32_column(&batch, SCORE)?.iter();
            let mut hits: Vec<_> = addresses(&batch)?
                .zip(scores)
                .map(|(addr, &score)| ScoreHit { addr, score })
                .collect();
            hits.sort_by(ScoreHit::rank);
            hits.truncate(query.k);
            Ok(hits)
        };
        self.caught(polled_on_deep_stack(search.boxed())).await
    }

    /// Checks `query`. Returns its words, within the limits, and the columns to search.
    async fn check_text_query(&self, query: &TextQuery) -> Result<(String, Vec<String>)> {
        if query.k == 0 {
            return Err(LakeError::BadQuery { why: "k is 0; ask for at least 1 row".into() });
        }
        let words = bounded_words(&query.words).map_err(|why| LakeError::BadQuery { why })?;
        Ok((words, self.text_columns(query.column.as_deref()).await?))
    }

    /// Returns the full-text index that alone answers `query`, or the reason if there is none.
    async fn searched_alone(
        &self,
        query: &TextQuery,
        columns: &[String],
    ) -> Result<std::result::Result<&TextIndex, PlanReason>> {
        let [column] = columns else { return Ok(Err(PlanReason::SeveralIndexes)) };
        if !is_text(self.schema().field(self.column_position(column)?).data_type()) {
            return Ok(Err(PlanReason::ListsOfText));
        }
        if query.filter.as_deref().is_some_and(may_read_clock) {
            return Ok(Err(PlanReason::Clock));
        }
        self.text_index_alone(column).await
    }

    /// Returns the full-text index of `column`, which has strings, or the reason if a search needs more than the index.
    ///
    /// Errors: those of the store.
    async fn text_index_alone(
        &self,
        column: &str,
    ) -> Result<std::result::Result<&TextIndex, PlanReason>> {
        let cell = &self.direct_of(self.column_position(column)?).text_index;
        let check = async {
            let indexes = self.indexes().await?;
            let mut of_column = indexes.iter().filter(|it| it.is_text() && it.columns == [column]);
            let (Some(index), None) = (of_column.next(), of_column.next()) else {
                return Ok(Err(PlanReason::SeveralIndexes));
            };
            let coverage = self.caught(Coverage::load(self.dataset(), &index.name)).await?;
            let coverage = match coverage {
                Ok(coverage) => coverage,
                Err(reason) => return Ok(Err(reason)),
            };
            let uncovered = self.live_rows_of(coverage.uncovered.iter().copied());
            Ok(match (coverage.segments.is_empty(), uncovered) {
                (true, _) => Err(PlanReason::CoversNothing),
                (false, 0) => {
                    let addresses = self.caught(RowAddresses::load(self.dataset())).await?;
                    Ok(TextIndex { column: column.to_owned(), addresses })
                }
                (false, rows) => Err(PlanReason::Uncovered(rows)),
            })
        };
        let checked = cell.get_or_try_init(|| self.on_own_runtime(check.boxed())).await?;
        Ok(checked.as_ref().map_err(|reason| *reason))
    }

    /// Returns the `k` best matches of `words` in `index`, best first, of the rows in `list` if it is given.
    ///
    /// Errors: those of the store.
    async fn search_text_index(
        &self,
        index: &TextIndex,
        words: &str,
        k: usize,
        list: Option<&AllowList>,
    ) -> Result<Vec<ScoreHit>> {
        let run = |k, mask| self.caught(index.search(self.dataset(), words, k, mask));
        let Some(list) = list else { return run(k, None).await.map(|(_, hits)| hits) };
        let share = list.summary().rows as f64 / self.row_count().max(1) as f64;
        let wide = widened(k, share.min(1.0));
        if share >= UNMASKED_SHARE_MIN && wide <= UNMASKED_ROWS_MAX {
            let (ids, mut hits) = run(wide, None).await?;
            let is_all = ids.len() < wide;
            let mut ids = ids.into_iter();
            hits.retain(|_| ids.next().is_some_and(|id| list.contains(id)));
            if is_all || hits.len() >= k {
                hits.truncate(k);
                return Ok(hits);
            }
        }
        run(k, Some(Arc::clone(list.mask()))).await.map(|(_, hits)| hits)
    }

    async fn text_columns(&self, wanted: Option<&str>) -> Result<Vec<String>> {
        if let Some(column) = wanted {
            let data_type = self.schema().fields()[self.column_position(column)?].data_type();
            if !can_be_searched(data_type) {
                return Err(LakeError::UnsupportedType {
                    column: column.to_owned(),
                    data_type: data_type.to_string(),
                    why: "full-text search needs strings or lists of strings".to_owned(),
                });
            }
        }
        let indexes = self.indexes().await?;
        let indexed =
            indexes.iter().filter(|index| index.is_text()).flat_map(|index| index.columns.iter());
        let columns: Vec<_> =
            indexed.filter(|column| wanted.is_none_or(|it| it == *column)).cloned().collect();
        if !columns.is_empty() {
            return Ok(columns);
        }
        let (uri, version) = (self.uri().to_owned(), self.version());
        Err(match wanted {
            Some(column) => LakeError::NoIndex { uri, version, column: column.to_owned() },
            None => LakeError::NoTextIndex { uri, version, columns: self.searchable_columns() },
        })
    }

    /// Returns the columns that could have a full-text index, in the schema's order, but strings before lists of
    /// strings, because these mostly hold names. Leaves out the key column, whose values mostly are one word each,
    /// unless it is the only one.
    fn searchable_columns(&self) -> Vec<String> {
        let fields = self.schema().fields().iter();
        let mut of_text: Vec<_> =
            fields.filter(|field| can_be_searched(field.data_type())).collect();
        of_text.sort_by_key(|field| !is_text(field.data_type()));
        let is_key = |name: &str| Some(name) == self.key_column();
        if of_text.iter().any(|field| !is_key(field.name())) {
            of_text.retain(|field| !is_key(field.name()));
        }
        of_text.into_iter().map(|field| field.name().clone()).collect()
    }
}

/// Checks the words of a search against the limits. Returns them, each once if there are many.
fn bounded_words(words: &str) -> std::result::Result<String, String> {
    if !words.contains(char::is_alphanumeric) {
        return Err("no words to search for".into());
    }
    let count = |words: &str| {
        words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).count()
    };
    let bounded = if words.split_whitespace().nth(REPEATED_WORDS_MAX).is_none() {
        words.to_owned()
    } else {
        let mut seen = HashSet::new();
        let mut distinct = words.split_whitespace().filter(|word| seen.insert(*word));
        // One more than the maximum is enough to find that there are too many.
        distinct.by_ref().take(WORDS_MAX + 1).collect::<Vec<_>>().join(" ")
    };
    let (bytes, number) = (bounded.len(), count(&bounded));
    let hint = "search for fewer words";
    if number > WORDS_MAX {
        return Err(format!("it has more than {WORDS_MAX} different words; {hint}"));
    }
    if bytes > WORDS_BYTES_MAX {
        return Err(format!(
            "its words have {bytes} bytes, and {WORDS_BYTES_MAX} is the most; {hint}"
        ));
    }
    Ok(bounded)
}

/// Returns whether a column of `data_type` can have a full-text index: strings or lists of strings.
pub(crate) fn can_be_searched(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => is_text(item.data_type()),
        other => is_text(other),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bounded_and_repetitions_of_many_are_dropped() {
        for words in ["hot soup", "  large animal, of Africa ", "C++ C++", &"ab ".repeat(64)] {
            assert_eq!(bounded_words(words).as_deref(), Ok(words));
        }
        assert_eq!(bounded_words(&"willow ".repeat(400_000)).as_deref(), Ok("willow"));
        assert_eq!(bounded_words(&"a b a c ".repeat(1000)).as_deref(), Ok("a b c"));
        let different: Vec<_> = (0..WORDS_MAX).map(|n| n.to_string()).collect();
        assert_eq!(bounded_words(&different.join(" ")), Ok(different.join(" ")));
        let more = format!("{} more", different.join(" "));
        assert_eq!(
            bounded_words(&more).unwrap_err(),
            "it has more than 512 different words; search for fewer words"
        );
        // Words separated by commas count too, because the index splits there.
        let error = bounded_words(&"a,".repeat(1_000_000)).unwrap_err();
        assert!(error.contains("more than 512"), "{error}");
        let error = bounded_words(&"x".repeat(2_000_000)).unwrap_err();
        assert!(error.contains("2000000 bytes, and 8192 is the most"), "{error}");
        assert_eq!(bounded_words(" ,- "), Err("no words to search for".into()));
    }
}
