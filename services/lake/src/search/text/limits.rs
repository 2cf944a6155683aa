//! Limits of full-text queries, and their validation. Pure.
//!
//! A query's cost grows with its words. Lance takes about 16 KiB of memory for each word, repetitions included: 400,000
//! words took 6.5 GB. A fuzzy word counts as the words that it may stand for.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

use super::expr::{Fuzziness, TextBoolean, TextCombined, TextExpr, TextMatch, TextPhrase};

/// Maximum number of words of a query, each a run of letters and digits. Repetitions count too, unless
/// [`bounded_words`] drops them. At 16 KiB each, they take 8 MiB.
const WORDS_MAX: usize = 512;

/// Maximum bytes of a query's words, after [`bounded_words`] has dropped repetitions. Text with few spaces may still be
/// many words to a tokenizer that makes n-grams, or splits Chinese. If there are [`WORDS_MAX`] words, they may have 16
/// bytes on average.
const WORDS_BYTES_MAX: usize = 8 << 10;

/// Up to this many words, repeated words are kept, because a repetition gives a word more weight.
const REPEATED_WORDS_MAX: usize = 64;

/// Maximum number of words of the index that a query's fuzzy words stand for. At 16 KiB each, they take 16 MiB.
pub(crate) const EXPANSIONS_MAX: usize = 1024;

/// Maximum number of edits of a fuzzy word, as in other search engines. With three, most words of an index match a
/// short word.
const EDITS_MAX: u32 = 2;

/// Maximum number of characters of a fuzzy word. Lance compiles the word into an automaton, and fails if the automaton
/// has more than 10,000 states. With two edits, a word of ASCII letters reaches that at a length of 46 to 50.
const FUZZY_CHARS_MAX: usize = 40;

/// Maximum number of other words between two words of a phrase.
const SLOP_MAX: u32 = 1000;

/// The range of the factors by which scores are multiplied. Products of such factors, over [`DEPTH_MAX`] levels, stay
/// finite.
const BOOSTS: RangeInclusive<f32> = 0.0..=1000.0;

/// The range of weights of columns that are combined. Lance refuses weights below 1.
const WEIGHTS: RangeInclusive<f32> = 1.0..=1000.0;

/// Maximum number of queries inside of each other.
const DEPTH_MAX: usize = 8;

/// Maximum number of the parts of a query that search one column: matches, phrases, and columns that are combined.
pub(crate) const LEAVES_MAX: usize = 64;

/// A full-text query that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadText {
    /// The path of the field that is wrong, such as `boolean.must[1].match.words`; empty for the query as a whole.
    pub field: String,
    /// The problem, and how to fix it, as the rest of a sentence that begins with the field.
    pub problem: String,
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "the text query {}", self.problem),
            field => write!(f, "`{field}` {}", self.problem),
        }
    }
}

impl TextExpr {
    /// Checks the query against the limits, and that its matches, phrases and combined columns have letters or digits.
    /// Whether its columns exist and have indexes is checked when it runs.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), BadText> {
        self.check_totals(Totals { needs_letters: true, ..Totals::default() })
    }

    /// Checks the query against the limits alone. Most indexes have no words without letters and digits, so a query for
    /// these finds nothing; an index whose tokenizer keeps them, such as `whitespace`, may have some.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check_limits(&self) -> Result<(), BadText> {
        self.check_totals(Totals::default())
    }

    fn check_totals(&self, mut totals: Totals) -> Result<(), BadText> {
        totals.add(self, FieldPath(""), 1)?;
        let too_many = |what: String| Err(bad(FieldPath(""), what));
        if totals.leaves > LEAVES_MAX {
            let leaves = totals.leaves;
            return too_many(format!(
                "has {leaves} matches, phrases and combined columns; at most {LEAVES_MAX} are searched"
            ));
        }
        if totals.words > WORDS_MAX {
            return too_many(format!(
                "has {} words in all, and {WORDS_MAX} is the most; search for fewer words",
                totals.words
            ));
        }
        if totals.bytes > WORDS_BYTES_MAX {
            return too_many(format!(
                "has {} bytes of words in all, and {WORDS_BYTES_MAX} is the most; search for fewer words",
                totals.bytes
            ));
        }
        if totals.expansions > EXPANSIONS_MAX {
            return too_many(format!(
                "lets its fuzzy words stand for {} words in all, and {EXPANSIONS_MAX} is the most; lower \
                 `max_expansions`",
                totals.expansions
            ));
        }
        Ok(())
    }
}

/// The place of a field in a query.
#[derive(Clone, Copy)]
struct FieldPath<'a>(&'a str);

impl FieldPath<'_> {
    fn join(self, field: &str) -> String {
        match self.0 {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        }
    }
}

fn bad(path: FieldPath<'_>, problem: String) -> BadText {
    BadText { field: path.0.to_owned(), problem }
}

/// The size of a query.
#[derive(Default)]
struct Totals {
    /// Whether words without letters and digits are refused.
    needs_letters: bool,
    leaves: usize,
    words: usize,
    bytes: usize,
    expansions: usize,
}

impl Totals {
    /// Checks `expr`, which is at `path` and inside of `depth - 1` other queries, and adds its size.
    fn add(&mut self, expr: &TextExpr, path: FieldPath<'_>, depth: usize) -> Result<(), BadText> {
        if depth > DEPTH_MAX {
            let problem = format!("is inside of {DEPTH_MAX} other queries; nest them less deeply");
            return Err(bad(path, problem));
        }
        match expr {
            TextExpr::Match(query) => self.add_match(query, FieldPath(&path.join("match"))),
            TextExpr::Phrase(query) => self.add_phrase(query, FieldPath(&path.join("phrase"))),
            TextExpr::Boost(query) => {
                let path = path.join("boost");
                let path = FieldPath(&path);
                self.add(&query.positive, FieldPath(&path.join("positive")), depth + 1)?;
                self.add(&query.negative, FieldPath(&path.join("negative")), depth + 1)?;
                check_number(path, "negative_boost", query.negative_boost, &BOOSTS)
            }
            TextExpr::MultiMatch(matches) => {
                let path = path.join("multi_match.matches");
                if matches.is_empty() {
                    let problem = "is empty; give at least one match".to_owned();
                    return Err(bad(FieldPath(&path), problem));
                }
                let mut numbered = matches.iter().enumerate();
                numbered.try_for_each(|(at, query)| {
                    self.add_match(query, FieldPath(&format!("{path}[{at}]")))
                })
            }
            TextExpr::CombinedFields(query) => {
                self.add_combined(query, FieldPath(&path.join("combined_fields")))
            }
            TextExpr::Boolean(query) => {
                self.add_boolean(query, FieldPath(&path.join("boolean")), depth)
            }
        }
    }

    fn add_match(&mut self, query: &TextMatch, path: FieldPath<'_>) -> Result<(), BadText> {
        self.add_words(path, &query.words, Repeated::Dropped)?;
        check_number(path, "boost", query.boost, &BOOSTS)?;
        match query.fuzziness {
            Fuzziness::Edits(0) => return Ok(()),
            Fuzziness::Edits(edits) if edits > EDITS_MAX => {
                let problem =
                    format!("is {edits}; give 0, 1 or {EDITS_MAX} edits, or automatic ones");
                return Err(bad(FieldPath(&path.join("fuzziness")), problem));
            }
            Fuzziness::Edits(_) | Fuzziness::Auto => {}
        }
        let expansions = query.max_expansions;
        if !(1..=EXPANSIONS_MAX).contains(&expansions) {
            let problem = format!("is {expansions}; give 1 to {EXPANSIONS_MAX}");
            return Err(bad(FieldPath(&path.join("max_expansions")), problem));
        }
        let length = |word: &str| word.chars().count();
        if let Some(long) = words_of(&query.words).map(length).find(|it| *it > FUZZY_CHARS_MAX) {
            let problem = format!(
                "has a word of {long} characters; a fuzzy word has at most {FUZZY_CHARS_MAX}"
            );
            return Err(bad(FieldPath(&path.join("words")), problem));
        }
        self.expansions += expansions_of(query);
        Ok(())
    }

    fn add_phrase(&mut self, query: &TextPhrase, path: FieldPath<'_>) -> Result<(), BadText> {
        self.add_words(path, &query.words, Repeated::Kept)?;
        if query.slop > SLOP_MAX {
            let problem = format!("is {}; give at most {SLOP_MAX}", query.slop);
            return Err(bad(FieldPath(&path.join("slop")), problem));
        }
        Ok(())
    }

    fn add_combined(&mut self, query: &TextCombined, path: FieldPath<'_>) -> Result<(), BadText> {
        let columns = path.join("columns");
        if query.columns.is_empty() {
            return Err(bad(FieldPath(&columns), "is empty; give at least one column".into()));
        }
        let mut seen = HashSet::new();
        for (at, (name, weight)) in query.columns.iter().enumerate() {
            let path = format!("{columns}[{at}]");
            if name.is_empty() {
                return Err(bad(FieldPath(&path), "has no name; name the column".into()));
            }
            if !seen.insert(name) {
                return Err(bad(FieldPath(&path), "is named before; name each column once".into()));
            }
            check_number(FieldPath(&path), "weight", *weight, &WEIGHTS)?;
        }
        self.leaves += query.columns.len() - 1;
        self.add_words(path, &query.words, Repeated::Kept)
    }

    fn add_boolean(
        &mut self,
        query: &TextBoolean,
        path: FieldPath<'_>,
        depth: usize,
    ) -> Result<(), BadText> {
        if query.must.is_empty() && query.should.is_empty() {
            let problem = match query.must_not.is_empty() {
                true => "is empty; give at least one query in `must` or `should`",
                false => "has only `must_not`; say in `must` or `should` what to find",
            };
            return Err(bad(path, problem.into()));
        }
        for (clause, queries) in
            [("must", &query.must), ("should", &query.should), ("must_not", &query.must_not)]
        {
            for (at, expr) in queries.iter().enumerate() {
                self.add(expr, FieldPath(&path.join(&format!("{clause}[{at}]"))), depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_words(
        &mut self,
        path: FieldPath<'_>,
        words: &str,
        repeated: Repeated,
    ) -> Result<(), BadText> {
        let bad_words = |problem| bad(FieldPath(&path.join("words")), problem);
        if self.needs_letters {
            check_letters(words).map_err(bad_words)?;
        }
        let (count, bytes) = match repeated {
            Repeated::Dropped => {
                let bounded = bounded_words(words).map_err(bad_words)?;
                (words_of(&bounded).count(), bounded.len())
            }
            Repeated::Kept => {
                let checked = check_words(words, words_of(words).take(WORDS_MAX + 1).count());
                checked.map_err(bad_words)?;
                (words_of(words).count(), words.len())
            }
        };
        self.leaves += 1;
        self.words += count;
        self.bytes += bytes;
        Ok(())
    }
}

/// Whether a query drops repeated words if it has many words.
enum Repeated {
    Dropped,
    Kept,
}

fn check_number(
    path: FieldPath<'_>,
    field: &str,
    number: f32,
    range: &RangeInclusive<f32>,
) -> Result<(), BadText> {
    if range.contains(&number) {
        return Ok(());
    }
    let problem = format!("is {number}; give a number from {} to {}", range.start(), range.end());
    Err(bad(FieldPath(&path.join(field)), problem))
}

/// Returns the maximum number of words of the index that the fuzzy words of `query` stand for in one column.
pub(crate) fn expansions_of(query: &TextMatch) -> usize {
    match query.fuzziness {
        Fuzziness::Edits(0) => 0,
        Fuzziness::Edits(_) => query.max_expansions,
        // Automatic edits may make two fuzzy matches of one.
        Fuzziness::Auto => 2 * query.max_expansions,
    }
}

/// Returns the words of a text: the runs of letters and digits.
pub(crate) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Checks the words of a match against the limits. Returns them, each once if there are many.
pub(crate) fn bounded_words(words: &str) -> Result<String, String> {
    let bounded = if words.split_whitespace().nth(REPEATED_WORDS_MAX).is_none() {
        words.to_owned()
    } else {
        let mut seen = HashSet::new();
        let distinct = words.split_whitespace().filter(|word| seen.insert(*word));
        // One more than the maximum is enough to find that there are too many.
        distinct.take(WORDS_MAX + 1).collect::<Vec<_>>().join(" ")
    };
    check_words(&bounded, words_of(&bounded).count())?;
    Ok(bounded)
}

/// Checks that a text has a word.
fn check_letters(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("is empty; give words to search for".into());
    }
    if words_of(text).next().is_none() {
        return Err("has no letters or digits; give words to search for".into());
    }
    Ok(())
}

/// Checks a text of `count` words against the limits.
fn check_words(text: &str, count: usize) -> Result<(), String> {
    if count > WORDS_MAX {
        return Err(format!("has more than {WORDS_MAX} different words; search for fewer words"));
    }
    if text.len() > WORDS_BYTES_MAX {
        return Err(format!(
            "has {} bytes of words, and {WORDS_BYTES_MAX} is the most; search for fewer words",
            text.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::text::expr::TextBoost;

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
            "has more than 512 different words; search for fewer words"
        );
        // Words separated by commas count too, because the index splits there.
        let error = bounded_words(&"a,".repeat(1_000_000)).unwrap_err();
        assert!(error.contains("more than 512"), "{error}");
        let error = bounded_words(&"x".repeat(2_000_000)).unwrap_err();
        assert!(error.contains("2000000 bytes of words, and 8192 is the most"), "{error}");
    }

    #[test]
    fn words_without_letters_are_within_the_limits() {
        for words in ["", "  ", " - ", "!!!", "🙂"] {
            for query in [TextExpr::words(words), phrase(words, 0)] {
                assert!(query.check().is_err(), "{query:?}");
                assert_eq!(query.check_limits(), Ok(()), "{query:?}");
            }
        }
        let bad = TextExpr::words("!".repeat(9_000)).check_limits().unwrap_err();
        assert!(bad.problem.contains("9000 bytes of words"), "{bad}");
    }

    fn matching(words: &str) -> TextMatch {
        TextMatch { words: words.into(), ..Default::default() }
    }

    fn fuzzy(words: &str, fuzziness: Fuzziness) -> TextMatch {
        TextMatch { fuzziness, ..matching(words) }
    }

    fn phrase(words: &str, slop: u32) -> TextExpr {
        TextExpr::Phrase(TextPhrase { words: words.into(), slop, column: None })
    }

    fn all_of(must: Vec<TextExpr>) -> TextExpr {
        TextExpr::Boolean(TextBoolean { must, ..Default::default() })
    }

    fn combined(columns: &[(&str, f32)]) -> TextExpr {
        let columns = columns.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        TextExpr::CombinedFields(TextCombined { columns, words: "oak".into(), all_words: true })
    }

    fn boosted(negative: TextExpr, negative_boost: f32) -> TextExpr {
        let positive = Box::new(TextExpr::words("oak"));
        TextExpr::Boost(TextBoost { positive, negative: Box::new(negative), negative_boost })
    }

    #[test]
    fn good_queries_pass() {
        for query in [
            TextExpr::words("oak"),
            TextExpr::words("willow ".repeat(400_000)),
            phrase("by the river", SLOP_MAX),
            TextExpr::Match(fuzzy(&"x".repeat(FUZZY_CHARS_MAX), Fuzziness::Edits(2))),
            TextExpr::Match(TextMatch { boost: 0.0, ..fuzzy("oak", Fuzziness::Auto) }),
            TextExpr::MultiMatch(vec![matching("oak"); LEAVES_MAX]),
            combined(&[("a", 1.0), ("b", 2.5)]),
            boosted(phrase("river", 0), 0.5),
            all_of(vec![TextExpr::words("oak"), phrase("the river", 1)]),
            TextExpr::Boolean(TextBoolean {
                should: vec![TextExpr::words("oak")],
                must_not: vec![boosted(TextExpr::words("ash"), 0.0)],
                must: vec![],
            }),
            (1..DEPTH_MAX).fold(TextExpr::words("oak"), |inner, _| all_of(vec![inner])),
        ] {
            assert_eq!(query.check(), Ok(()), "{query:?}");
        }
    }

    #[test]
    fn the_path_of_what_is_wrong_is_named() {
        let nested = |inner| all_of(vec![TextExpr::words("oak"), boosted(inner, 0.5)]);
        let in_nested = "boolean.must[1].boost.negative";
        let long = "x".repeat(FUZZY_CHARS_MAX + 1);
        let deep = (1..=DEPTH_MAX).fold(TextExpr::words("oak"), |inner, _| all_of(vec![inner]));
        let deep_path = ["boolean.must[0]"; DEPTH_MAX].join(".");
        let many = (0..20).map(|part| TextExpr::words(format!("{part} ").repeat(30)));
        let many = many.collect();
        for (query, field, problem) in [
            (TextExpr::default(), "match.words", "is empty"),
            (TextExpr::words(" - "), "match.words", "has no letters or digits"),
            (nested(TextExpr::words("")), &format!("{in_nested}.match.words"), "is empty"),
            (nested(phrase("  ", 0)), &format!("{in_nested}.phrase.words"), "is empty"),
            (phrase("a b", SLOP_MAX + 1), "phrase.slop", "is 1001; give at most 1000"),
            (phrase(&"a ".repeat(600), 0), "phrase.words", "more than 512"),
            (
                TextExpr::Match(fuzzy("oak", Fuzziness::Edits(3))),
                "match.fuzziness",
                "is 3; give 0, 1 or 2 edits",
            ),
            (
                TextExpr::Match(fuzzy(&format!("oak {long}"), Fuzziness::Auto)),
                "match.words",
                "has a word of 41 characters; a fuzzy word has at most 40",
            ),
            (
                TextExpr::Match(TextMatch {
                    max_expansions: 0,
                    ..fuzzy("oak", Fuzziness::Edits(1))
                }),
                "match.max_expansions",
                "is 0; give 1 to 1024",
            ),
            (
                TextExpr::Match(TextMatch { boost: -1.0, ..matching("oak") }),
                "match.boost",
                "is -1; give a number from 0 to 1000",
            ),
            (
                nested(TextExpr::Match(TextMatch { boost: f32::NAN, ..matching("oak") })),
                &format!("{in_nested}.match.boost"),
                "is NaN",
            ),
            (boosted(TextExpr::words("a"), f32::INFINITY), "boost.negative_boost", "is inf"),
            (TextExpr::MultiMatch(vec![]), "multi_match.matches", "is empty"),
            (
                TextExpr::MultiMatch(vec![matching("a"), matching(" ")]),
                "multi_match.matches[1].words",
                "is empty",
            ),
            (combined(&[]), "combined_fields.columns", "is empty"),
            (combined(&[("a", 1.0), ("", 1.0)]), "combined_fields.columns[1]", "has no name"),
            (combined(&[("a", 1.0), ("a", 2.0)]), "combined_fields.columns[1]", "named before"),
            (
                combined(&[("a", 0.5)]),
                "combined_fields.columns[0].weight",
                "is 0.5; give a number from 1 to 1000",
            ),
            (all_of(vec![]), "boolean", "is empty"),
            (
                TextExpr::Boolean(TextBoolean {
                    must_not: vec![TextExpr::words("a")],
                    ..Default::default()
                }),
                "boolean",
                "has only `must_not`",
            ),
            (deep, &deep_path, "is inside of 8 other queries"),
            (
                all_of(vec![TextExpr::words("a"); LEAVES_MAX + 1]),
                "",
                "has 65 matches, phrases and combined columns; at most 64",
            ),
            (all_of(many), "", "has 600 words in all, and 512 is the most"),
            (
                all_of(vec![TextExpr::words("x".repeat(5000)); 2]),
                "",
                "has 10000 bytes of words in all",
            ),
            (
                all_of(vec![TextExpr::Match(fuzzy("a", Fuzziness::Auto)); 11]),
                "",
                "stand for 1100 words in all, and 1024 is the most; lower `max_expansions`",
            ),
        ] {
            let bad = query.check().unwrap_err();
            assert_eq!(bad.field, *field, "{bad}");
            assert!(bad.problem.contains(problem), "{bad}");
        }
    }
}
