//! Resolves a full-text query against a version: which columns it searches, and which of Lance's queries it becomes.

use std::collections::{BTreeMap, HashMap};

use futures::FutureExt;
use lance::Dataset;
use lance::index::scalar::{load_segment_details, load_segments};
use lance_index::scalar::InvertedIndexParams;
use lance_index::scalar::inverted::DocumentGranularity;
use lance_index::scalar::inverted::query::{
    BooleanQuery, BoostQuery, CombinedFieldsQuery, FtsQuery, MatchQuery, MultiMatchQuery, Operator,
    PhraseQuery, Tokens, collect_query_tokens,
};
use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;

use super::expr::{Fuzziness, TextCombined, TextExpr, TextMatch, TextPhrase};
use super::limits::{EXPANSIONS_MAX, LEAVES_MAX, bounded_words, expansions_of};
use crate::error::{LakeError, Result};
use crate::schema::text_type::{can_be_searched, is_text};
use crate::table::Table;
use crate::table::index_info::IndexInfo;

/// A full-text query, every part of which names a column with a full-text index.
pub(crate) struct ResolvedText {
    /// Lance's queries. A row that several of them match has the best of its scores.
    pub queries: Vec<FtsQuery>,
    /// The queries for rows that an index does not cover, if they are others. Automatic edits are zero edits there,
    /// because Lance always stems the words of such a search, and those of `queries` are stems already.
    pub fresh_queries: Option<Vec<FtsQuery>>,
    /// The columns that the queries search, each once.
    pub columns: Vec<String>,
}

impl Table {
    /// Resolves `expr`.
    ///
    /// Errors: `BadQuery`, `ColumnNotFound`, `UnsupportedType`, `NoIndex`, `NoTextIndex`, `NoPositions`,
    /// `ColumnNotNamed`, and those of the store.
    pub(crate) async fn resolve_text(&self, expr: &TextExpr) -> Result<ResolvedText> {
        expr.check_limits().map_err(|bad| LakeError::BadQuery { why: bad.to_string() })?;
        let indexes = self.indexes().await?;
        let is_known = |index: &&IndexInfo| index.is_text() && self.shows_index(index);
        let indexes: Vec<&IndexInfo> = indexes.iter().filter(is_known).collect();
        let mut resolver = Resolver {
            table: self,
            indexes: &indexes,
            tokenizers: HashMap::new(),
            columns: Vec::new(),
            leaves: 0,
            expansions: 0,
        };
        let mut matches = Vec::new();
        collect_matches(expr, &mut matches);
        if self.condition().is_some() && matches.iter().any(|query| is_fuzzy(query)) {
            // Hidden rows' words are among those that a fuzzy word stands for, and use up `max_expansions`.
            let why = "fuzzy words are not available under a grant that shows only some rows, because they are compared \
                       with the words of all rows; set the fuzziness to 0";
            return Err(LakeError::BadQuery { why: why.into() });
        }
        for wanted in matches.into_iter().filter(|query| is_automatic(query)) {
            for column in resolver.columns_of(wanted.column.as_deref())? {
                let tokenizer = self.caught(tokenizer(self.dataset(), &column)).await?;
                resolver.tokenizers.insert(column, tokenizer);
            }
        }
        let queries = resolver.root(expr)?;
        resolver.check_expansions()?;
        let has_automatic = !resolver.tokenizers.is_empty();
        let fresh_queries = if has_automatic {
            // Resolves the query once more, with zero edits in place of automatic ones.
            resolver.tokenizers.clear();
            resolver.leaves = 0;
            Some(resolver.root(expr)?)
        } else {
            None
        };
        Ok(ResolvedText { queries, fresh_queries, columns: resolver.columns })
    }

    /// Returns the columns that could have a full-text index, in the schema's order, but strings before lists of
    /// strings, because the lists mostly hold names. Leaves out the key column, whose values mostly are one word each,
    /// unless it is the only one.
    fn searchable_columns(&self) -> Vec<String> {
        let fields = self.schema().fields().iter();
        let mut of_text: Vec<_> = fields.filter(|it| can_be_searched(it.data_type())).collect();
        of_text.sort_by_key(|field| !is_text(field.data_type()));
        let is_key = |name: &str| Some(name) == self.key_column();
        if of_text.iter().any(|field| !is_key(field.name())) {
            of_text.retain(|field| !is_key(field.name()));
        }
        of_text.into_iter().map(|field| field.name().clone()).collect()
    }
}

struct Resolver<'a> {
    table: &'a Table,
    /// The table's full-text indexes.
    indexes: &'a [&'a IndexInfo],
    /// The tokenizers of the columns that are searched with automatic edits. In a column without one, automatic edits
    /// become zero edits.
    tokenizers: HashMap<String, Box<dyn LanceTokenizer>>,
    /// The columns that the query searches, each once.
    columns: Vec<String>,
    /// The number of columns that are searched, counted anew for each part of the query.
    leaves: usize,
    /// The maximum number of words of the indexes that fuzzy words stand for, counted for each column.
    expansions: usize,
}

impl Resolver<'_> {
    /// Resolves the whole query. If a match has automatic edits, each match becomes one query per column: automatic
    /// edits may need several of Lance's queries, and Lance's query for several columns can't contain those.
    fn root(&mut self, expr: &TextExpr) -> Result<Vec<FtsQuery>> {
        let matches = match expr {
            TextExpr::Match(query) => self.spread(query)?,
            TextExpr::MultiMatch(matches) => self.spread_all(matches)?,
            _ => {
                let query = self.query(expr)?;
                self.check_leaves()?;
                return Ok(vec![query]);
            }
        };
        match matches.iter().any(is_automatic) {
            true => matches.iter().map(|query| self.leaf(query)).collect(),
            false => Ok(vec![multi_match(matches.iter().map(exactly).collect())]),
        }
    }

    fn query(&mut self, expr: &TextExpr) -> Result<FtsQuery> {
        Ok(match expr {
            TextExpr::Match(query) => {
                let matches = self.spread(query)?;
                self.nested(&matches)?
            }
            TextExpr::MultiMatch(matches) => {
                let matches = self.spread_all(matches)?;
                self.nested(&matches)?
            }
            TextExpr::Phrase(query) => self.phrase(query)?.into(),
            TextExpr::Boost(query) => BoostQuery {
                positive: Box::new(self.query(&query.positive)?),
                negative: Box::new(self.query(&query.negative)?),
                negative_boost: unsigned(query.negative_boost),
            }
            .into(),
            TextExpr::CombinedFields(query) => self.combined(query)?.into(),
            TextExpr::Boolean(query) => {
                let mut all = |queries: &[TextExpr]| {
                    queries.iter().map(|query| self.query(query)).collect::<Result<Vec<_>>>()
                };
                let (must, should) = (all(&query.must)?, all(&query.should)?);
                BooleanQuery { must, should, must_not: all(&query.must_not)? }.into()
            }
        })
    }

    /// Resolves matches, each of one column, that are part of another query.
    fn nested(&mut self, matches: &[TextMatch]) -> Result<FtsQuery> {
        match matches {
            [only] => self.leaf(only),
            several if several.iter().any(is_automatic) => Err(LakeError::BadQuery {
                why: "a match with automatic edits searches several columns inside of another query, which is not \
                      possible; name one column, or give the number of edits"
                    .into(),
            }),
            several => Ok(multi_match(several.iter().map(exactly).collect())),
        }
    }

    /// Resolves a match in one column.
    fn leaf(&mut self, query: &TextMatch) -> Result<FtsQuery> {
        if !is_automatic(query) {
            return Ok(exactly(query).into());
        }
        let tokenizer = query.column.as_ref().and_then(|it| self.tokenizers.get_mut(it));
        let Some(tokenizer) = tokenizer else { return Ok(exactly(query).into()) };
        let parts = by_edits(&collect_query_tokens(&query.words, tokenizer));
        let parts = parts.into_iter().map(|(edits, words)| {
            let query = TextMatch { words, fuzziness: Fuzziness::Edits(edits), ..query.clone() };
            FtsQuery::from(exactly(&query))
        });
        let mut parts: Vec<FtsQuery> = parts.collect();
        Ok(match parts.len() {
            // Only stop words, or no words, which match nothing.
            0 => exactly(query).into(),
            1 => parts.remove(0),
            _ if query.all_words => {
                BooleanQuery { must: parts, should: vec![], must_not: vec![] }.into()
            }
            _ => BooleanQuery { should: parts, must: vec![], must_not: vec![] }.into(),
        })
    }

    fn phrase(&mut self, query: &TextPhrase) -> Result<PhraseQuery> {
        let columns = self.columns_of(query.column.as_deref())?;
        let [column] = columns.as_slice() else {
            return Err(LakeError::ColumnNotNamed { purpose: "text", candidates: columns });
        };
        self.search(column);
        let mut of_column = self.indexes.iter().filter(|index| index.columns.contains(column));
        if of_column.any(|index| index.positions == Some(false)) {
            return Err(LakeError::NoPositions {
                uri: self.table.uri().to_owned(),
                version: self.table.version(),
                column: column.clone(),
            });
        }
        let phrase = PhraseQuery::new(query.words.clone()).with_column(Some(column.clone()));
        Ok(phrase.with_slop(query.slop))
    }

    fn combined(&mut self, query: &TextCombined) -> Result<CombinedFieldsQuery> {
        let (mut columns, mut weights) = (Vec::new(), Vec::new());
        for (column, weight) in &query.columns {
            self.columns_of(Some(column))?;
            self.search(column);
            columns.push(column.clone());
            weights.push(*weight);
        }
        let combined = CombinedFieldsQuery::try_new(query.words.clone(), columns);
        let combined = combined.and_then(|it| it.try_with_boosts(weights));
        let combined = combined.map_err(|error| self.table.blame(error))?;
        Ok(combined.with_operator(operator(query.all_words)))
    }

    /// Returns `query` for each column that it searches.
    fn spread(&mut self, query: &TextMatch) -> Result<Vec<TextMatch>> {
        // The words were checked before.
        let words = bounded_words(&query.words).unwrap_or_default();
        let columns = self.columns_of(query.column.as_deref())?;
        columns.iter().for_each(|column| self.search(column));
        self.expansions += columns.len() * expansions_of(query);
        let on = |column| TextMatch { column: Some(column), words: words.clone(), ..query.clone() };
        Ok(columns.into_iter().map(on).collect())
    }

    fn spread_all(&mut self, matches: &[TextMatch]) -> Result<Vec<TextMatch>> {
        let mut all = Vec::new();
        for query in matches {
            all.extend(self.spread(query)?);
        }
        self.check_leaves()?;
        Ok(all)
    }

    /// Records that a part of the query searches `column`.
    fn search(&mut self, column: &str) {
        self.leaves += 1;
        if !self.columns.iter().any(|known| known == column) {
            self.columns.push(column.to_owned());
        }
    }

    /// Checks the number of parts again, now that the columns are known: a match that names no column searches several.
    fn check_leaves(&self) -> Result<()> {
        match self.leaves {
            leaves if leaves > LEAVES_MAX => Err(LakeError::BadQuery {
                why: format!(
                    "the text query searches {leaves} columns, counted for each of its parts, and {LEAVES_MAX} is the \
                     most; name the columns to search"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Checks the number of expansions again, now that the columns are known: a fuzzy match that names no column
    /// searches several.
    fn check_expansions(&self) -> Result<()> {
        match self.expansions {
            words if words > EXPANSIONS_MAX => Err(LakeError::BadQuery {
                why: format!(
                    "the text query lets its fuzzy words stand for {words} words, counted for each column, and \
                     {EXPANSIONS_MAX} is the most; name the columns to search, or lower `max_expansions`"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the columns with a full-text index, each once, or only the `wanted` one. Fails if there is none.
    fn columns_of(&self, wanted: Option<&str>) -> Result<Vec<String>> {
        let mut columns: Vec<String> = Vec::new();
        for column in self.indexes.iter().flat_map(|index| &index.columns) {
            if wanted.is_none_or(|it| it == column) && !columns.contains(column) {
                columns.push(column.clone());
            }
        }
        if !columns.is_empty() {
            return Ok(columns);
        }
        let (table, uri, version) = (self.table, self.table.uri().to_owned(), self.table.version());
        let Some(column) = wanted else {
            let columns = table.searchable_columns();
            return Err(LakeError::NoTextIndex { uri, version, columns });
        };
        let (column, data_type) = (column.to_owned(), table.column_type(column)?);
        Err(match can_be_searched(data_type) {
            true => LakeError::NoIndex { uri, version, column },
            false => LakeError::UnsupportedType {
                column,
                data_type: data_type.to_string(),
                why: "full-text search needs strings or lists of strings".to_owned(),
            },
        })
    }
}

fn is_automatic(query: &TextMatch) -> bool {
    query.fuzziness == Fuzziness::Auto
}

fn is_fuzzy(query: &TextMatch) -> bool {
    query.fuzziness != Fuzziness::Edits(0)
}

/// Collects the matches in `expr`.
fn collect_matches<'a>(expr: &'a TextExpr, all: &mut Vec<&'a TextMatch>) {
    match expr {
        TextExpr::Match(query) => all.push(query),
        TextExpr::MultiMatch(matches) => all.extend(matches),
        TextExpr::Phrase(_) | TextExpr::CombinedFields(_) => {}
        TextExpr::Boost(query) => {
            collect_matches(&query.positive, all);
            collect_matches(&query.negative, all);
        }
        TextExpr::Boolean(query) => {
            for query in query.must.iter().chain(&query.should).chain(&query.must_not) {
                collect_matches(query, all);
            }
        }
    }
}

/// Loads the tokenizer of the full-text index of `column`; Lance's default if there is no index.
async fn tokenizer(dataset: &Dataset, column: &str) -> lance::Result<Box<dyn LanceTokenizer>> {
    for granularity in [DocumentGranularity::Row, DocumentGranularity::ListElement] {
        if let Some(segments) = load_segments(dataset, column, granularity).boxed().await? {
            let details = load_segment_details(dataset, column, &segments).await?;
            return InvertedIndexParams::try_from(&details)?.build();
        }
    }
    InvertedIndexParams::default().build()
}

/// Groups words by the number of edits that automatic fuzziness allows them. Lance's scanner treats automatic fuzziness
/// as zero edits, so the numbers are found here. The words of a group are separated by spaces.
fn by_edits(tokens: &Tokens) -> BTreeMap<u32, String> {
    let mut groups = BTreeMap::<u32, String>::new();
    for at in 0..tokens.len() {
        let word = tokens.get_token(at);
        let group = groups.entry(MatchQuery::auto_fuzziness(word)).or_default();
        if !group.is_empty() {
            group.push(' ');
        }
        group.push_str(word);
    }
    groups
}

/// Returns Lance's form of `query`, which names a column. Automatic edits become zero edits.
fn exactly(query: &TextMatch) -> MatchQuery {
    let edits = match query.fuzziness {
        Fuzziness::Edits(edits) => edits,
        Fuzziness::Auto => 0,
    };
    MatchQuery::new(query.words.clone())
        .with_column(query.column.clone())
        .with_operator(operator(query.all_words))
        .with_fuzziness(Some(edits))
        .with_max_expansions(query.max_expansions)
        .with_prefix_length(query.prefix_length)
        .with_boost(unsigned(query.boost))
}

fn multi_match(mut matches: Vec<MatchQuery>) -> FtsQuery {
    match matches.len() {
        1 => matches.remove(0).into(),
        _ => MultiMatchQuery { match_queries: matches }.into(),
    }
}

fn operator(all_words: bool) -> Operator {
    if all_words { Operator::And } else { Operator::Or }
}

/// Turns -0 into 0, because Lance expects factors without a sign.
fn unsigned(factor: f32) -> f32 {
    factor + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_grouped_by_their_automatic_edits() {
        let mut tokenizer = InvertedIndexParams::default().build().unwrap();
        let mut groups = |words: &str| by_edits(&collect_query_tokens(words, &mut tokenizer));
        let expected = [(0, "ox"), (1, "pull wagon river"), (2, "wooden")];
        let expected = expected.map(|(edits, words)| (edits, words.to_owned()));
        assert_eq!(groups("The Ox pulled wooden wagons to a river"), BTreeMap::from(expected));
        assert_eq!(groups("the of a"), BTreeMap::new());
    }
}
