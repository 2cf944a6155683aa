//! Full-text search.

mod expr;
mod fresh_scores;
mod fresh_text;
mod index;
mod limits;
mod node;
mod open_index;
mod open_segments;
mod resolve;
mod search;

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::try_join;
use lance_index::scalar::FullTextSearchQuery;
use lance_index::scalar::inverted::query::FtsQuery;

use self::open_index::{FORMATS, open_text_index};
use self::resolve::ResolvedText;
use self::search::TextSearch;
use super::filter::may_read_clock;
use super::filter::{AllowList, Allowed};
use super::hit::{SCORE, ScoreHit, addresses, f32_column, only_addresses, take_best};
use super::plan_reason::PlanReason;
use super::selection::rows_to_search;
use crate::error::{LakeError, Result};
use crate::schema::text_type::is_text;
use crate::table::Table;
use crate::threads::deep_stack::polled_on_deep_stack;

pub use expr::{Fuzziness, TextBoolean, TextBoost, TextCombined, TextExpr, TextMatch, TextPhrase};
pub(crate) use index::TextIndex;
pub use limits::BadText;

/// The minimum share of rows that pass a filter at which the index is searched without a mask. Such a search asks for
/// more rows, and those that do not pass are dropped. Below this share, a mask is cheaper. With a mask of up to a tenth
/// of the rows, Lance visits every row that the mask selects: 2.5 ms for 100,000 rows, in a search for two words that
/// have 2,400 matches.
const UNMASKED_TEXTS_SHARE_MIN: f64 = 0.02;

/// Maximum number of rows that a search without a mask asks for.
const UNMASKED_ROWS_MAX: usize = 20_000;

/// Maximum bytes of words of a search that is short ([`Table::text_is_open`]), counted for each column that it searches.
/// The calling thread splits them into words, and looks each up in each part of the index.
const SHORT_WORDS_BYTES_MAX: usize = 256;

/// Maximum number of rows that a short search asks for, counted like its words. The calling thread ranks as many rows of
/// each part of the index.
const SHORT_ROWS_MAX: usize = 1000;

/// Maximum number of rows of a table on which a search is short. The first search of a part of the index adds up the
/// lengths of the part's texts on the calling thread.
const SHORT_TABLE_ROWS_MAX: u64 = 10_000_000;

/// A full-text search.
#[derive(Clone, Debug, Default)]
pub struct TextQuery {
    /// The query that a row's text must match, with its scoring.
    pub query: TextExpr,
    /// The maximum number of rows; at least 1.
    pub k: usize,
    /// A SQL expression that the rows must satisfy. It is applied before the search, so that `k` rows are returned if
    /// that many match.
    pub filter: Option<String>,
    /// Whether to leave out rows that the index does not cover.
    pub indexed_only: bool,
}

/// The rows that a full-text search found.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHits {
    /// The best matches, best first.
    pub hits: Vec<ScoreHit>,
    /// The number of rows that pass the filter, if there is one and the index was searched directly.
    pub allowed: Option<Allowed>,
    /// The number of rows that the index does not cover and that were scored one by one; the largest one of several
    /// columns.
    pub fresh: usize,
    /// The reason why Lance's scanner planned the search; `None` if the index was searched directly.
    pub planned: Option<PlanReason>,
}

impl Table {
    /// Returns the best matches, best first. Rows that were added after the index was built are compared one by one
    /// (unless the query is `indexed_only`), and match fuzzy words only if they have these words exactly.
    ///
    /// Errors: `BadQuery` (a limit, k = 0), `ColumnNotFound`, `NoIndex`, `NoTextIndex`, `NoPositions`,
    /// `ColumnNotNamed`, `UnsupportedType`, `BadFilter`, and those of the store.
    pub async fn search_text(&self, query: &TextQuery) -> Result<TextHits> {
        let resolved = self.check_text_query(query).await?;
        let search = match self.direct_text(query, &resolved).await? {
            Ok(search) => search,
            Err(reason) => {
                let hits = self.plan_text(query, resolved).await?;
                return Ok(TextHits { hits, allowed: None, fresh: 0, planned: Some(reason) });
            }
        };
        let list = match self.filter_or_condition(query.filter.as_deref()) {
            Some(filter) => Some(self.allow_list(filter).await?),
            None => None,
        };
        let list = list.as_deref();
        let indexed = self.search_text_indexes(&search, query.k, list);
        let fresh = self.caught_text(None, search.run_fresh(list).boxed());
        let (mut hits, (fresh_hits, fresh)) = try_join(indexed, fresh).await?;
        if !fresh_hits.is_empty() {
            hits = best_hits([hits, fresh_hits], query.k);
        }
        let allowed = list.map(AllowList::summary);
        Ok(TextHits { hits, allowed, fresh, planned: None })
    }

    /// Returns whether the search for `query` is short for the thread that calls [`search_text`](Self::search_text): it is
    /// a match without edits and without a filter, has few words and rows, and the indexes are open and cover all rows
    /// that it searches. Lance then scores the rows on its own threads.
    pub fn text_is_open(&self, query: &TextQuery) -> bool {
        let TextExpr::Match(words) = &query.query else { return false };
        let filter = self.filter_or_condition(query.filter.as_deref());
        if words.fuzziness != Fuzziness::Edits(0) || filter.is_some() {
            return false;
        }
        let Some(indexes) = self.loaded_indexes() else { return false };
        let shown = indexes.iter().filter(|index| index.is_text() && self.shows_index(index));
        let wanted = words.column.as_ref();
        let columns: Vec<&String> = shown
            .flat_map(|index| &index.columns)
            .filter(|column| wanted.is_none_or(|wanted| wanted == *column))
            .collect();
        let is_short = columns.len() * words.words.len() <= SHORT_WORDS_BYTES_MAX
            && columns.len().saturating_mul(query.k) <= SHORT_ROWS_MAX
            && self.row_count() <= SHORT_TABLE_ROWS_MAX;
        let is_open = |column: &&String| {
            let Ok(position) = self.column_position(column) else { return false };
            let Some(Ok(index)) = self.direct_of(position).text_index.get() else { return false };
            let is_covered = query.indexed_only || index.uncovered_rows == 0;
            is_covered && index.open.are_cached()
        };
        is_short && !columns.is_empty() && columns.iter().all(is_open)
    }

    /// Like [`search_text`](Self::search_text), but always through Lance's scanner, which plans each search anew.
    ///
    /// Errors: as `search_text`.
    pub async fn planned_text(&self, query: &TextQuery) -> Result<Vec<ScoreHit>> {
        let resolved = self.check_text_query(query).await?;
        self.plan_text(query, resolved).await
    }

    /// Searches for `resolved`, which is `query`, through Lance's scanner. A row that several queries match has the
    /// best of its scores.
    async fn plan_text(&self, query: &TextQuery, resolved: ResolvedText) -> Result<Vec<ScoreHit>> {
        let ResolvedText { mut queries, fresh_queries, .. } = resolved;
        // The scanner runs a query on covered and uncovered rows alike. For a match with automatic edits, both queries
        // are run: a covered row that has the very words gets no better score by them. (It is found by them if
        // `max_expansions` left these words out.) Queries that contain such a match are not run twice, because they may
        // exclude the rows that match, or lower their scores.
        if !query.indexed_only
            && matches!(query.query, TextExpr::Match(_) | TextExpr::MultiMatch(_))
        {
            let mut fresh_queries = fresh_queries.unwrap_or_default();
            fresh_queries.retain(|fresh| !queries.contains(fresh));
            queries.append(&mut fresh_queries);
        }
        let mut found = Vec::with_capacity(queries.len());
        for searched in queries {
            found.push(self.plan_one_text(query, searched).await?);
        }
        Ok(best_hits(found, query.k))
    }

    /// Returns the best `query.k` matches of `searched`, which is one of the queries of `query`, in any order.
    async fn plan_one_text(&self, query: &TextQuery, searched: FtsQuery) -> Result<Vec<ScoreHit>> {
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self.dataset(), &mut scanner, &[SCORE]) }).await?;
        self.check_addresses_unnamed(query.filter.as_deref())?;
        self.set_filter(&mut scanner, query.filter.as_deref())?;
        let k = i64::try_from(query.k).unwrap_or(i64::MAX);
        let search = async {
            let searched = FullTextSearchQuery::new_query(searched).limit(Some(k));
            scanner.prefilter(true).full_text_search(searched)?.limit(Some(k), None)?;
            if query.indexed_only {
                scanner.fast_search();
            }
            let batch = scanner.try_into_batch().await?;
            let scores = f32_column(&batch, SCORE)?.iter();
            let hits = addresses(&batch)?.zip(scores);
            Ok(hits.map(|(addr, &score)| ScoreHit { addr, score }).collect())
        };
        let filter = query.filter.as_deref();
        self.caught_text(filter, polled_on_deep_stack(search.boxed())).await
    }

    /// Awaits Lance's search, which evaluates `filter` if there is one. If Lance reports bad input, the query is at
    /// fault, because the table could be opened.
    ///
    /// Errors: `BadQuery`, `BadFilter` if the filter has no value for a row, and those of the store.
    async fn caught_text<T>(
        &self,
        filter: Option<&str>,
        search: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        let searched = self.caught_filter(filter, async {
            match search.await {
                Err(error) if is_bad_input(&error) => Ok(Err(error)),
                other => other.map(Ok),
            }
        });
        searched.await?.map_err(|error| match self.blame(error) {
            // Lance's text may repeat the condition on rows, or list the table's fields.
            LakeError::Internal { .. } if self.shown_part().is_some() => {
                LakeError::BadQuery { why: "the index can't answer this text query".into() }
            }
            LakeError::Internal { why, .. } => LakeError::BadQuery { why },
            other => other,
        })
    }

    /// Checks `query`, and resolves it.
    async fn check_text_query(&self, query: &TextQuery) -> Result<ResolvedText> {
        if query.k == 0 {
            return Err(LakeError::BadQuery { why: "k is 0; ask for at least 1 row".into() });
        }
        self.resolve_text(&query.query).await
    }

    /// Returns the direct search of the indexes that answer `query`, or the reason if the scanner has to plan it.
    async fn direct_text(
        &self,
        query: &TextQuery,
        resolved: &ResolvedText,
    ) -> Result<std::result::Result<TextSearch<'_>, PlanReason>> {
        if query.filter.as_deref().is_some_and(may_read_clock) {
            return Ok(Err(PlanReason::Clock));
        }
        let mut indexes = Vec::with_capacity(resolved.columns.len());
        for column in &resolved.columns {
            match self.text_index_alone(column).await? {
                Ok(index) => indexes.push(index),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        let dataset = self.dataset();
        let search = TextSearch::new(dataset, indexes, &resolved.queries, query.indexed_only);
        let search = match search {
            Ok(search) if !query.indexed_only => search,
            other => return Ok(other),
        };
        let mut fresh = Vec::new();
        for index in search.with_uncovered() {
            match self.fresh_text(&index.column, &index.uncovered).await? {
                Ok(rows) => fresh.push((index, rows)),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        if fresh.is_empty() {
            return Ok(Ok(search));
        }
        let queries = resolved.fresh_queries.as_ref().unwrap_or(&resolved.queries);
        Ok(Ok(search.with_fresh(fresh, queries)))
    }

    /// Returns the full-text index of `column`, or the reason if a search needs more than the index and the rows that
    /// it does not cover.
    ///
    /// Errors: those of the store.
    async fn text_index_alone(
        &self,
        column: &str,
    ) -> Result<std::result::Result<&TextIndex, PlanReason>> {
        let Ok(position) = self.column_position(column) else {
            return Ok(Err(PlanReason::Nested));
        };
        if !is_text(self.stored_schema().field(position).data_type()) {
            return Ok(Err(PlanReason::ListsOfText));
        }
        let direct = self.direct_of(position);
        let check = async {
            direct.note_use();
            let indexes = self.indexes().await?;
            let mut of_column = indexes.iter().filter(|it| it.is_text() && it.columns == [column]);
            match (of_column.next(), of_column.next()) {
                (Some(index), None) => open_text_index(self, column, &index.name, &FORMATS).await,
                _ => Ok(Err(PlanReason::SeveralIndexes)),
            }
        };
        let check = || self.on_own_runtime(check.boxed());
        let checked = direct.text_index.get_or_try_init(check).await?;
        Ok(checked.as_ref().map_err(|reason| *reason))
    }

    /// Returns the `k` best matches of `search`, best first, of the rows in `list` if it is given.
    ///
    /// Errors: `BadQuery`, and those of the store.
    async fn search_text_indexes(
        &self,
        search: &TextSearch<'_>,
        k: usize,
        list: Option<&AllowList>,
    ) -> Result<Vec<ScoreHit>> {
        // On the table's runtime: if a segment was evicted, this search opens it again, and later searches use it.
        let run =
            |k, mask| self.on_own_runtime(self.caught_text(None, search.run(k, mask)).boxed());
        let Some(list) = list else { return run(k, None).await.map(|(_, hits)| hits) };
        let share = list.summary().rows as f64 / self.row_count().max(1) as f64;
        let wide = rows_to_search(k, share.min(1.0));
        if share >= UNMASKED_TEXTS_SHARE_MIN && wide <= UNMASKED_ROWS_MAX {
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
}

/// Merges the rows that several searches found. A row has its best score. Returns the `k` best, best first.
fn best_hits(found: impl IntoIterator<Item = Vec<ScoreHit>>, k: usize) -> Vec<ScoreHit> {
    let mut best = HashMap::new();
    take_best(&mut best, found.into_iter().flatten().map(|hit| (hit.addr, hit.score)));
    let best = best.into_iter().map(|(addr, score)| ScoreHit { addr, score });
    let mut hits: Vec<_> = best.collect();
    hits.sort_by(ScoreHit::rank);
    hits.truncate(k);
    hits
}

fn is_bad_input(error: &lance::Error) -> bool {
    matches!(error, lance::Error::InvalidInput { .. })
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray,
    };
    use lance::Dataset;

    use super::*;
    use crate::{IndexRequest, Lake, LakeOptions, build_index};

    fn texts() -> impl RecordBatchReader + Send + 'static {
        let texts = Arc::new(StringArray::from(vec!["an oak", "a river"])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let schema = batch.schema();
        RecordBatchIterator::new([Ok(batch)], schema)
    }

    /// Returns a table of two texts with a full-text index.
    pub(super) async fn indexed(uri: &str) -> Table {
        Dataset::write(texts(), uri, None).await.unwrap();
        let lake = Lake::new(LakeOptions::default());
        let request = IndexRequest::Text { column: "text".into(), positions: false };
        build_index(&lake, uri, &request, |_| ()).await.unwrap();
        lake.open(uri).await.unwrap()
    }

    #[tokio::test]
    async fn only_automatic_edits_need_other_queries_for_uncovered_rows() {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path().join("table").to_str().unwrap()).await;
        for (fuzziness, has_others) in
            [(Fuzziness::Edits(0), false), (Fuzziness::Edits(1), false), (Fuzziness::Auto, true)]
        {
            let oak = TextMatch { words: "oak".into(), fuzziness, ..Default::default() };
            let resolved = table.resolve_text(&TextExpr::Match(oak)).await.unwrap();
            assert_eq!(resolved.fresh_queries.is_some(), has_others, "{fuzziness:?}");
        }
    }

    #[tokio::test]
    async fn a_short_search_of_open_indexes_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let table = indexed(&uri).await;
        let oak = TextMatch { words: "oak".into(), ..Default::default() };
        let of = |query: TextMatch| TextQuery {
            query: TextExpr::Match(query),
            k: 10,
            ..Default::default()
        };
        let short = of(oak.clone());
        assert!(!table.text_is_open(&short), "nobody has searched the version");
        assert_eq!(table.search_text(&short).await.unwrap().hits.len(), 1);
        assert!(table.text_is_open(&short));
        let on = |column: &str| of(TextMatch { column: Some(column.into()), ..oak.clone() });
        assert!(table.text_is_open(&on("text")));
        let phrase = TextPhrase { words: "oak".into(), ..Default::default() };
        for (other, why) in [
            (on("nope"), "no index"),
            (TextQuery { filter: Some("text = 'an oak'".into()), ..short.clone() }, "a filter"),
            (TextQuery { k: 1001, ..short.clone() }, "many rows"),
            (of(TextMatch { words: "oak ".repeat(100), ..oak.clone() }), "many words"),
            (of(TextMatch { fuzziness: Fuzziness::Edits(1), ..oak.clone() }), "edits"),
            (of(TextMatch { fuzziness: Fuzziness::Auto, ..oak.clone() }), "automatic edits"),
            (TextQuery { query: TextExpr::Phrase(phrase), ..short.clone() }, "a phrase"),
        ] {
            assert!(!table.text_is_open(&other), "{why}");
        }
        table.index_cache().clear().await;
        assert!(!table.text_is_open(&short), "the index was evicted");
        Dataset::open(&uri).await.unwrap().append(texts(), None).await.unwrap();
        let table = table.newer().await.unwrap().unwrap();
        let found = table.search_text(&short).await.unwrap();
        assert_eq!((found.hits.len(), found.fresh), (2, 2));
        assert!(!table.text_is_open(&short), "rows are uncovered");
        assert!(table.text_is_open(&TextQuery { indexed_only: true, ..short }));
    }
}
