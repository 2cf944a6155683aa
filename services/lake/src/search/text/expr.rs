//! Full-text queries: what the text of a row has to match, and how it is scored.

/// A full-text query.
#[derive(Clone, Debug, PartialEq)]
pub enum TextExpr {
    /// Matches rows that have any, or all, of its words.
    Match(TextMatch),
    /// Matches rows that have its words one after the other.
    Phrase(TextPhrase),
    /// Matches the rows of one query. Rows that another query matches too get lower scores.
    Boost(TextBoost),
    /// Matches the rows that any of these queries matches. A row that several of them match has the best of its scores.
    MultiMatch(Vec<TextMatch>),
    /// Matches rows that have any, or all, of its words, in several columns that are scored as if they were one
    /// (BM25F).
    CombinedFields(TextCombined),
    /// Combines queries.
    Boolean(TextBoolean),
}

/// Words to search for in one column, or in all that have a full-text index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextMatch {
    /// The column; all that have a full-text index if `None`. A row then has the score of its best column.
    pub column: Option<String>,
    /// The words. The index's tokenizer decides on case, stems and stop words, unless `fuzziness` is a number of edits
    /// above 0.
    pub words: String,
    /// Whether a row must have all words, rather than any of them.
    pub all_words: bool,
    /// The maximum difference between one of the words and a word of the text that it matches.
    pub fuzziness: Fuzziness,
    /// Maximum number of words of the index that fuzzy words stand for.
    pub max_expansions: usize,
    /// The number of characters at the beginning of a word that must be equal, if words are fuzzy.
    pub prefix_length: u32,
    /// The factor by which the score is multiplied.
    pub boost: f32,
}

/// The maximum difference at which two words still match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzziness {
    /// At most this number of characters are inserted, deleted or replaced. If it is not 0, words are compared with the
    /// words of the index as they are written: Lance neither converts them to lower case nor stems them.
    Edits(u32),
    /// No edit in words of up to 2 characters, at most one in words of up to 5, otherwise at most two. Characters are
    /// counted in the form that the index's tokenizer gives to the word.
    Auto,
}

/// Words that follow each other in one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextPhrase {
    /// The column; may be `None` if only one has a full-text index.
    pub column: Option<String>,
    /// The words.
    pub words: String,
    /// Maximum number of other words between two words of the phrase.
    pub slop: u32,
}

/// A query whose matches get lower scores if another query matches them too.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBoost {
    /// The query whose rows are found.
    pub positive: Box<TextExpr>,
    /// The query whose rows get lower scores.
    pub negative: Box<TextExpr>,
    /// The part of the score by `negative` that is subtracted.
    pub negative_boost: f32,
}

/// Words to search for in several columns as if they were one.
#[derive(Clone, Debug, PartialEq)]
pub struct TextCombined {
    /// The columns, each with its weight.
    pub columns: Vec<(String, f32)>,
    /// The words.
    pub words: String,
    /// Whether a row must have all words, rather than any of them.
    pub all_words: bool,
}

/// A combination of queries. At least one of `must` and `should` is not empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextBoolean {
    /// Queries that a row must match. Their scores are added.
    pub must: Vec<TextExpr>,
    /// Queries whose scores are added if they match. Without `must`, a row must match at least one of them.
    pub should: Vec<TextExpr>,
    /// Queries that a row must not match.
    pub must_not: Vec<TextExpr>,
}

impl TextExpr {
    /// Returns the query that matches rows that have any of the `words`, in any column with a full-text index.
    pub fn words(words: impl Into<String>) -> Self {
        Self::Match(TextMatch { words: words.into(), ..Default::default() })
    }
}

impl Default for TextExpr {
    fn default() -> Self {
        Self::Match(TextMatch::default())
    }
}

impl TextMatch {
    /// The maximum number of words that fuzzy words stand for, unless a query sets another. This is Lance's default.
    pub const MAX_EXPANSIONS: usize = 50;
}

impl Default for TextMatch {
    fn default() -> Self {
        Self {
            column: None,
            words: String::new(),
            all_words: false,
            fuzziness: Fuzziness::Edits(0),
            max_expansions: Self::MAX_EXPANSIONS,
            prefix_length: 0,
            boost: 1.0,
        }
    }
}

impl TextBoost {
    /// The part of the score that is subtracted, unless a query sets another. This is Lance's default.
    pub const NEGATIVE_BOOST: f32 = 0.5;
}
