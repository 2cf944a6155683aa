//! Converts full-text queries to their domain type, and checks them.

use lake::{
    BadText, Fuzziness, TextBoolean, TextBoost, TextCombined, TextExpr, TextMatch, TextPhrase,
};
use wire::query::text_query::Kind;
use wire::query::{self, Text, TextQuery};

use crate::error::{QueryError, Result};

/// Validates the full-text query of the field `field`. Words without letters and digits are refused, but not if
/// `is_plain` (the request was sent over plain HTTP): LanceDB searches for them, and mostly finds nothing.
///
/// # Errors
/// `BadText`, with the path of the field that is wrong.
pub fn validate_text(field: &'static str, text: Text, is_plain: bool) -> Result<TextExpr> {
    let check = if is_plain { TextExpr::check_limits } else { TextExpr::check };
    let Some(query) = text.query else {
        let query =
            TextMatch { words: text.words, column: column(text.column), ..TextMatch::default() };
        let query = TextExpr::Match(query);
        // Only the words of such a query can be invalid.
        check(&query).map_err(|bad| at(format!("{field}.words"), bad.problem))?;
        return Ok(query);
    };
    for (name, value) in [("words", &text.words), ("column", &text.column)] {
        if !value.is_empty() {
            let problem = "is set beside `query`; set it inside of the query instead";
            return Err(at(format!("{field}.{name}"), problem.into()));
        }
    }
    let field = format!("{field}.query");
    let query = converted(query, &field)?;
    check(&query).map_err(|BadText { field: path, problem }| match path.as_str() {
        "" => at(field, problem),
        path => at(format!("{field}.{path}"), problem),
    })?;
    Ok(query)
}

/// Converts the query at `path`. The limit on the nesting of messages bounds the recursion.
fn converted(query: TextQuery, path: &str) -> Result<TextExpr> {
    let all = |queries: Vec<TextQuery>, clause: &str| {
        let numbered = queries.into_iter().enumerate();
        let each =
            numbered.map(|(at, query)| converted(query, &format!("{path}.boolean.{clause}[{at}]")));
        each.collect::<Result<Vec<_>>>()
    };
    Ok(match query.kind {
        None => {
            let problem =
                "has no form; give match, phrase, boost, multi_match, combined_fields or boolean";
            return Err(at(path.to_owned(), problem.into()));
        }
        Some(Kind::Match(query)) => TextExpr::Match(matching(query, &format!("{path}.match"))?),
        Some(Kind::Phrase(query)) => TextExpr::Phrase(TextPhrase {
            column: column(query.column),
            words: query.words,
            slop: query.slop,
        }),
        Some(Kind::Boost(query)) => {
            let part = |query: Option<Box<TextQuery>>, name: &str| {
                let path = format!("{path}.boost.{name}");
                match query {
                    Some(query) => converted(*query, &path).map(Box::new),
                    None => Err(at(path, "is missing; give a query".into())),
                }
            };
            TextExpr::Boost(TextBoost {
                positive: part(query.positive, "positive")?,
                negative: part(query.negative, "negative")?,
                negative_boost: query.negative_boost.unwrap_or(TextBoost::NEGATIVE_BOOST),
            })
        }
        Some(Kind::MultiMatch(query)) => {
            let numbered = query.matches.into_iter().enumerate();
            let each = numbered
                .map(|(at, query)| matching(query, &format!("{path}.multi_match.matches[{at}]")));
            TextExpr::MultiMatch(each.collect::<Result<_>>()?)
        }
        Some(Kind::CombinedFields(query)) => TextExpr::CombinedFields(TextCombined {
            columns: query
                .columns
                .into_iter()
                .map(|column| (column.name, column.weight.unwrap_or(1.0)))
                .collect(),
            words: query.words,
            all_words: query.all_words,
        }),
        Some(Kind::Boolean(query)) => TextExpr::Boolean(TextBoolean {
            must: all(query.must, "must")?,
            should: all(query.should, "should")?,
            must_not: all(query.must_not, "must_not")?,
        }),
    })
}

fn matching(query: query::TextMatch, path: &str) -> Result<TextMatch> {
    let fuzziness = match (query.fuzziness_auto, query.fuzziness) {
        (false, edits) => Fuzziness::Edits(edits),
        (true, 0) => Fuzziness::Auto,
        (true, edits) => {
            let problem = format!("is {edits} beside `fuzziness_auto`; set one of the two");
            return Err(at(format!("{path}.fuzziness"), problem));
        }
    };
    let max_expansions = match query.max_expansions {
        0 => TextMatch::MAX_EXPANSIONS,
        expansions => expansions as usize,
    };
    Ok(TextMatch {
        column: column(query.column),
        words: query.words,
        all_words: query.all_words,
        fuzziness,
        max_expansions,
        prefix_length: query.prefix_length,
        boost: query.boost.unwrap_or(1.0),
    })
}

fn column(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

fn at(field: String, problem: String) -> QueryError {
    QueryError::BadText { field, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(words: &str, column: &str) -> Text {
        Text { words: words.into(), column: column.into(), query: None }
    }

    fn of(kind: Kind) -> TextQuery {
        TextQuery { kind: Some(kind) }
    }

    fn matches(words: &str) -> query::TextMatch {
        query::TextMatch { words: words.into(), ..Default::default() }
    }

    fn all_of(must: Vec<TextQuery>) -> TextQuery {
        of(Kind::Boolean(query::TextBoolean { must, ..Default::default() }))
    }

    fn validated(query: TextQuery) -> Result<TextExpr> {
        validate_text("text", Text { query: Some(query), ..Default::default() }, false)
    }

    #[test]
    fn messages_become_queries_with_their_defaults() {
        let expected =
            TextMatch { column: Some("t".into()), words: "oak".into(), ..Default::default() };
        assert_eq!(
            validate_text("text", plain("oak", "t"), false).unwrap(),
            TextExpr::Match(expected)
        );
        let query = of(Kind::Match(query::TextMatch {
            words: "oak".into(),
            all_words: true,
            fuzziness_auto: true,
            max_expansions: 7,
            prefix_length: 2,
            boost: Some(0.0),
            ..Default::default()
        }));
        let expected = TextExpr::Match(TextMatch {
            column: None,
            words: "oak".into(),
            all_words: true,
            fuzziness: Fuzziness::Auto,
            max_expansions: 7,
            prefix_length: 2,
            boost: 0.0,
        });
        assert_eq!(validated(query).unwrap(), expected);
        let negative = Some(Box::new(of(Kind::Phrase(query::TextPhrase {
            words: "by the sea".into(),
            column: "t".into(),
            slop: 2,
        }))));
        let positive = Some(Box::new(all_of(vec![of(Kind::MultiMatch(query::TextMultiMatch {
            matches: vec![matches("oak"), matches("ash")],
        }))])));
        let query = query::TextBoost { positive, negative, negative_boost: None };
        let matching = |words: &str| TextMatch { words: words.into(), ..Default::default() };
        let both = TextExpr::MultiMatch(vec![matching("oak"), matching("ash")]);
        let expected = TextExpr::Boost(TextBoost {
            positive: Box::new(TextExpr::Boolean(TextBoolean {
                must: vec![both],
                ..Default::default()
            })),
            negative: Box::new(TextExpr::Phrase(TextPhrase {
                column: Some("t".into()),
                words: "by the sea".into(),
                slop: 2,
            })),
            negative_boost: 0.5,
        });
        assert_eq!(validated(of(Kind::Boost(Box::new(query)))).unwrap(), expected);
        let column = |name: &str, weight| query::TextColumn { name: name.into(), weight };
        let query = of(Kind::CombinedFields(query::TextCombinedFields {
            words: "oak".into(),
            columns: vec![column("t", None), column("u", Some(2.0))],
            all_words: false,
        }));
        let expected = TextExpr::CombinedFields(TextCombined {
            columns: vec![("t".into(), 1.0), ("u".into(), 2.0)],
            words: "oak".into(),
            all_words: false,
        });
        assert_eq!(validated(query).unwrap(), expected);
    }

    #[test]
    fn the_path_of_what_is_wrong_is_named() {
        let said = |query| validated(query).unwrap_err().to_string();
        let begins = |query, beginning: &str| {
            let said = said(query);
            assert!(said.starts_with(beginning), "{said}");
        };
        let both = query::TextMatch { fuzziness: 1, fuzziness_auto: true, ..matches("oak") };
        let both = || of(Kind::Match(both.clone()));
        begins(TextQuery { kind: None }, "`text.query` has no form; give match, phrase, ");
        begins(both(), "`text.query.match.fuzziness` is 1 beside `fuzziness_auto`");
        begins(all_of(vec![]), "`text.query.boolean` is empty; ");
        let deep = all_of(vec![of(Kind::Match(matches("oak"))), both()]);
        begins(deep, "`text.query.boolean.must[1].match.fuzziness` is 1 ");
        let empty = all_of(vec![all_of(vec![TextQuery { kind: None }])]);
        begins(empty, "`text.query.boolean.must[0].boolean.must[0]` has no form");
        let blank = of(Kind::MultiMatch(query::TextMultiMatch {
            matches: vec![matches("oak"), matches(" ")],
        }));
        begins(blank, "`text.query.multi_match.matches[1].words` is empty; give words");
        let boost = query::TextBoost {
            positive: Some(Box::new(of(Kind::Match(matches("oak"))))),
            ..Default::default()
        };
        begins(of(Kind::Boost(Box::new(boost))), "`text.query.boost.negative` is missing");
        begins(
            all_of((0..70).map(|_| of(Kind::Match(matches("oak")))).collect()),
            "`text.query` has 70 matches, phrases and combined columns; at most 64",
        );
        let beside = Text { query: Some(both()), ..plain("oak", "") };
        let said = validate_text("fused_with", beside, false).unwrap_err().to_string();
        assert!(said.starts_with("`fused_with.words` is set beside `query`; "), "{said}");
        let said = validate_text("fused_with", plain(" -", ""), false).unwrap_err().to_string();
        assert_eq!(said, "`fused_with.words` has no letters or digits; give words to search for");
        assert_eq!(validate_text("text", plain(" -", ""), true).unwrap(), TextExpr::words(" -"));
    }
}
