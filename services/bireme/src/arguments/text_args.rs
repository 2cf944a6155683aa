//! The flags of a full-text search.

use clap::{Args, ValueHint};
use client::query::{
    Text, TextBoolean, TextKind, TextMatch, TextMultiMatch, TextPhrase, TextQuery,
};

use crate::error::{CliError, Result};

/// The heading in `--help` of the flags that say which text a row has to have.
pub const TEXT: &str = "Text (alone, or with --like or --vector as a hybrid search)";

/// The text query of a command line.
#[derive(Clone, Debug, Default, Args)]
pub struct TextArgs {
    /// The rows that match any of these words best
    #[arg(long, value_name = "WORDS", value_hint = ValueHint::Other, help_heading = TEXT)]
    text: Option<String>,
    /// Rows must have all of these words (repeatable)
    #[arg(long, value_name = "WORDS", value_hint = ValueHint::Other, help_heading = TEXT)]
    must: Vec<String>,
    /// Rows must have these words, one after the other (repeatable); the index needs positions (`bireme
    /// index --positions`)
    #[arg(long, value_name = "WORDS", value_hint = ValueHint::Other, help_heading = TEXT)]
    phrase: Vec<String>,
    /// Rows must have none of these words (repeatable)
    #[arg(long, value_name = "WORDS", value_hint = ValueHint::Other, help_heading = TEXT)]
    #[arg(requires = "words")]
    must_not: Vec<String>,
    /// Rows must have all words of --text
    #[arg(long, help_heading = TEXT, requires = "text")]
    all_words: bool,
    /// Edits at which a word of --text or --must still matches: 0, 1, 2, or auto by its length
    #[arg(long, value_name = "EDITS", value_parser = parse_fuzzy, help_heading = TEXT)]
    #[arg(requires = "words")]
    fuzzy: Option<Fuzzy>,
    /// Other words that may be between two words of --phrase [default: 0]
    #[arg(long, value_name = "WORDS", requires = "phrase", help_heading = TEXT)]
    slop: Option<u32>,
    /// A text column to search (repeatable) [default: all with an index]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other, requires = "words")]
    #[arg(help_heading = TEXT)]
    text_column: Vec<String>,
}

/// The number of edits by which a row's word may differ from a word of the query and still match.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fuzzy {
    Edits(u32),
    Auto,
}

fn parse_fuzzy(text: &str) -> std::result::Result<Fuzzy, String> {
    match text {
        "auto" => Ok(Fuzzy::Auto),
        "0" | "1" | "2" => Ok(Fuzzy::Edits(text.parse().unwrap_or_default())),
        _ => Err("give 0, 1, 2 or auto".into()),
    }
}

impl TextArgs {
    /// Whether any flag asks for text.
    pub fn is_given(&self) -> bool {
        self.text.is_some() || !self.must.is_empty() || !self.phrase.is_empty()
    }

    /// Refuses --fuzzy if it would have no effect. clap can't: --phrase alone satisfies `requires = "words"`.
    pub fn check(&self) -> Result<()> {
        if self.fuzzy.is_some() && self.text.is_none() && self.must.is_empty() {
            let problem = "--fuzzy applies to the words of --text and --must, not to those of --phrase; leave it out";
            return Err(CliError::usage(problem));
        }
        Ok(())
    }

    /// Whether --text-column is given.
    pub fn has_columns(&self) -> bool {
        !self.text_column.is_empty()
    }

    /// Returns the query, if there is one. If `column` is given, it is searched in addition to those of --text-column.
    pub fn query(mut self, column: Option<String>) -> Option<Text> {
        self.text_column.extend(column);
        if !self.is_given() {
            return None;
        }
        let is_plain = self.must.is_empty()
            && self.phrase.is_empty()
            && self.must_not.is_empty()
            && !self.all_words
            && matches!(self.fuzzy, None | Some(Fuzzy::Edits(0)))
            && self.text_column.len() <= 1;
        if is_plain {
            let column = self.text_column.pop().unwrap_or_default();
            return self.text.map(|words| Text { words, column, query: None });
        }
        let fuzzy = self.fuzzy.unwrap_or(Fuzzy::Edits(0));
        let should = self.text.iter().map(|words| self.matching(words, self.all_words, fuzzy));
        let mut should: Vec<_> = should.collect();
        let must = self.must.iter().map(|words| self.matching(words, true, fuzzy));
        let phrases = self.phrase.iter().map(|words| self.following(words));
        let mut must: Vec<_> = must.chain(phrases).collect();
        let must_not = self.must_not.iter();
        let must_not = must_not.map(|words| self.matching(words, false, Fuzzy::Edits(0)));
        let must_not: Vec<_> = must_not.collect();
        let query = match (must.len(), should.len(), must_not.len()) {
            (1, 0, 0) => must.remove(0),
            (0, 1, 0) => should.remove(0),
            _ => of(TextKind::Boolean(TextBoolean { must, should, must_not })),
        };
        Some(Text { query: Some(query), ..Default::default() })
    }

    /// Matches `words` in the columns. A row has the score of its best column.
    fn matching(&self, words: &str, all_words: bool, fuzzy: Fuzzy) -> TextQuery {
        let matching = |column: &str| TextMatch {
            words: words.to_owned(),
            column: column.to_owned(),
            all_words,
            fuzziness: if let Fuzzy::Edits(edits) = fuzzy { edits } else { 0 },
            fuzziness_auto: fuzzy == Fuzzy::Auto,
            ..Default::default()
        };
        match self.text_column.as_slice() {
            [] => of(TextKind::Match(matching(""))),
            [column] => of(TextKind::Match(matching(column))),
            columns => {
                let matches = columns.iter().map(|column| matching(column)).collect();
                of(TextKind::MultiMatch(TextMultiMatch { matches }))
            }
        }
    }

    /// Matches `words` one after the other in any of the columns.
    fn following(&self, words: &str) -> TextQuery {
        let slop = self.slop.unwrap_or(0);
        let phrase = |column: &str| {
            let (words, column) = (words.to_owned(), column.to_owned());
            of(TextKind::Phrase(TextPhrase { words, column, slop }))
        };
        match self.text_column.as_slice() {
            [] => phrase(""),
            [column] => phrase(column),
            columns => {
                let should = columns.iter().map(|column| phrase(column)).collect();
                of(TextKind::Boolean(TextBoolean { should, ..Default::default() }))
            }
        }
    }
}

fn of(kind: TextKind) -> TextQuery {
    TextQuery { kind: Some(kind) }
}
