//! The full-text query in the body of a `query` call, in all its forms. Pure.

use serde::Deserialize;
use serde_json::Value;
use wire::query::text_query::Kind;
use wire::query::{
    Text, TextBoolean, TextBoost, TextColumn, TextCombinedFields, TextMatch, TextMultiMatch,
    TextPhrase, TextQuery,
};

use super::json_body::or_default;
use crate::error::{QueryError, Result};

/// A query: an object with one key, which names its form.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Node {
    Match(MatchBody),
    Phrase(PhraseBody),
    Boost(BoostBody),
    MultiMatch(MultiMatchBody),
    CombinedFields(CombinedFieldsBody),
    Boolean(BooleanBody),
}

#[derive(Debug, Deserialize)]
struct MatchBody {
    column: Option<String>,
    terms: String,
    #[serde(default, deserialize_with = "or_default")]
    operator: Operator,
    /// The number of edits; null for a number that depends on the word.
    #[serde(default = "no_edits")]
    fuzziness: Option<u32>,
    #[serde(default, deserialize_with = "or_default")]
    max_expansions: u32,
    #[serde(default, deserialize_with = "or_default")]
    prefix_length: u32,
    boost: Option<f32>,
}

fn no_edits() -> Option<u32> {
    Some(0)
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
enum Operator {
    #[default]
    #[serde(alias = "OR", alias = "or")]
    Or,
    #[serde(alias = "AND", alias = "and")]
    And,
}

#[derive(Debug, Deserialize)]
struct PhraseBody {
    column: Option<String>,
    terms: String,
    #[serde(default, deserialize_with = "or_default")]
    slop: u32,
}

#[derive(Debug, Deserialize)]
struct BoostBody {
    positive: Box<Node>,
    negative: Box<Node>,
    negative_boost: Option<f32>,
}

/// Newer clients also send `match_queries`, which says more. The other fields are then ignored.
#[derive(Debug, Deserialize)]
struct MultiMatchBody {
    match_queries: Option<Vec<MatchBody>>,
    #[serde(default, deserialize_with = "or_default")]
    query: String,
    #[serde(default, deserialize_with = "or_default")]
    columns: Vec<String>,
    boost: Option<Vec<f32>>,
}

#[derive(Debug, Deserialize)]
struct CombinedFieldsBody {
    query: String,
    columns: Vec<String>,
    boost: Option<Vec<f32>>,
    #[serde(default, deserialize_with = "or_default")]
    operator: Operator,
}

#[derive(Debug, Deserialize)]
struct BooleanBody {
    #[serde(default, deserialize_with = "or_default")]
    must: Vec<Node>,
    #[serde(default, deserialize_with = "or_default")]
    should: Vec<Node>,
    #[serde(default, deserialize_with = "or_default")]
    must_not: Vec<Node>,
}

/// Words as Namespace clients send them, and LanceDB's clients in versions of the protocol below 0.3.0.
#[derive(Debug, Deserialize)]
struct PlainBody {
    query: String,
    #[serde(default)]
    columns: Option<Vec<String>>,
}

/// Parses a full-text query.
///
/// # Errors
/// `BadRequest` if it has none of the forms.
pub fn text_of(query: Value) -> Result<Text> {
    let unreadable = |error: serde_json::Error| QueryError::BadRequest {
        field: "full_text_query",
        problem: format!("has an unknown form: {error}"),
    };
    let mut query = query;
    for name in ["string_query", "structured_query"] {
        if let Some(inner) = query.get_mut(name).filter(|inner| !inner.is_null()) {
            query = inner.take();
            break;
        }
    }
    if query.get("query").is_some_and(Value::is_string) {
        return Ok(plain(serde_json::from_value(query).map_err(unreadable)?));
    }
    let node = query.get_mut("query").map(Value::take).unwrap_or_default();
    let node: Node = serde_json::from_value(node).map_err(unreadable)?;
    Ok(Text { query: Some(node.into()), ..Default::default() })
}

/// Makes a query of words, or of a phrase if they are in double quotes.
fn plain(PlainBody { query, columns }: PlainBody) -> Text {
    let mut columns = columns.unwrap_or_default();
    let phrase = query.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    if columns.len() < 2 {
        let column = columns.pop().unwrap_or_default();
        return match phrase {
            Some(words) => {
                let phrase = TextPhrase { words: words.to_owned(), column, slop: 0 };
                Text { query: Some(kind(Kind::Phrase(phrase))), ..Default::default() }
            }
            None => Text { words: query, column, query: None },
        };
    }
    let of_columns = match phrase {
        // No form searches several columns for a phrase by the best score, so the scores are added.
        Some(words) => {
            let phrase = |column| {
                kind(Kind::Phrase(TextPhrase { words: words.to_owned(), column, slop: 0 }))
            };
            let should = columns.into_iter().map(phrase).collect();
            Kind::Boolean(TextBoolean { should, ..Default::default() })
        }
        None => {
            let of_column =
                |column| TextMatch { words: query.clone(), column, ..Default::default() };
            let matches = columns.into_iter().map(of_column).collect();
            Kind::MultiMatch(TextMultiMatch { matches })
        }
    };
    Text { query: Some(kind(of_columns)), ..Default::default() }
}

fn kind(kind: Kind) -> TextQuery {
    TextQuery { kind: Some(kind) }
}

impl From<Node> for TextQuery {
    fn from(node: Node) -> Self {
        kind(match node {
            Node::Match(body) => Kind::Match(body.into()),
            Node::Phrase(PhraseBody { column, terms, slop }) => {
                Kind::Phrase(TextPhrase { words: terms, column: column.unwrap_or_default(), slop })
            }
            Node::Boost(BoostBody { positive, negative, negative_boost }) => {
                Kind::Boost(Box::new(TextBoost {
                    positive: Some(Box::new((*positive).into())),
                    negative: Some(Box::new((*negative).into())),
                    negative_boost,
                }))
            }
            Node::MultiMatch(body) => Kind::MultiMatch(body.into()),
            Node::CombinedFields(CombinedFieldsBody { query, columns, boost, operator }) => {
                let mut weights = boost.unwrap_or_default().into_iter();
                let column = |name| TextColumn { name, weight: weights.next() };
                Kind::CombinedFields(TextCombinedFields {
                    words: query,
                    columns: columns.into_iter().map(column).collect(),
                    all_words: operator == Operator::And,
                })
            }
            Node::Boolean(BooleanBody { must, should, must_not }) => {
                let all = |nodes: Vec<Node>| nodes.into_iter().map(TextQuery::from).collect();
                Kind::Boolean(TextBoolean {
                    must: all(must),
                    should: all(should),
                    must_not: all(must_not),
                })
            }
        })
    }
}

impl From<MatchBody> for TextMatch {
    fn from(body: MatchBody) -> Self {
        Self {
            words: body.terms,
            column: body.column.unwrap_or_default(),
            all_words: body.operator == Operator::And,
            fuzziness: body.fuzziness.unwrap_or(0),
            fuzziness_auto: body.fuzziness.is_none(),
            max_expansions: body.max_expansions,
            prefix_length: body.prefix_length,
            boost: body.boost,
        }
    }
}

impl From<MultiMatchBody> for TextMultiMatch {
    fn from(MultiMatchBody { match_queries, query, columns, boost }: MultiMatchBody) -> Self {
        if let Some(matches) = match_queries {
            return Self { matches: matches.into_iter().map(TextMatch::from).collect() };
        }
        let mut boosts = boost.unwrap_or_default().into_iter();
        let one = |column| TextMatch {
            words: query.clone(),
            column,
            boost: boosts.next(),
            ..Default::default()
        };
        Self { matches: columns.into_iter().map(one).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind_of(query: Value) -> Kind {
        text_of(query).unwrap().query.unwrap().kind.unwrap()
    }

    #[test]
    fn plain_words_have_several_spellings() {
        let words = |column: &str| Text {
            words: "big dog".into(),
            column: column.into(),
            ..Default::default()
        };
        assert_eq!(text_of(json!({"query": "big dog", "columns": []})).unwrap(), words(""));
        assert_eq!(text_of(json!({"query": "big dog", "columns": ["t"]})).unwrap(), words("t"));
        let namespace = json!({"string_query": {"query": "big dog", "columns": null}});
        assert_eq!(text_of(namespace).unwrap(), words(""));
        let phrase = kind_of(json!({"query": "\"big dog\"", "columns": ["t"]}));
        assert!(matches!(phrase, Kind::Phrase(it) if it.words == "big dog" && it.column == "t"));
        let both = kind_of(json!({"query": "dog", "columns": ["t", "u"]}));
        let Kind::MultiMatch(both) = both else { panic!("{both:?}") };
        let both: Vec<_> = both.matches.iter().map(|it| (&*it.words, &*it.column)).collect();
        assert_eq!(both, [("dog", "t"), ("dog", "u")]);
        let phrases = kind_of(json!({"query": "\"big dog\"", "columns": ["t", "u"]}));
        assert!(matches!(phrases, Kind::Boolean(it) if it.should.len() == 2));
    }

    #[test]
    fn a_match_has_all_of_its_fields() {
        let of = |more: Value| {
            let mut body = json!({"column": null, "terms": "dog", "operator": "Or"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            match kind_of(json!({"query": {"match": body}})) {
                Kind::Match(it) => it,
                other => panic!("{other:?}"),
            }
        };
        let plain = of(json!({"fuzziness": 0, "boost": 1.0, "max_expansions": 50}));
        assert_eq!((plain.words.as_str(), plain.column.as_str()), ("dog", ""));
        assert_eq!((plain.fuzziness, plain.fuzziness_auto, plain.all_words), (0, false, false));
        assert!(of(json!({"fuzziness": null})).fuzziness_auto);
        assert!(!of(json!({})).fuzziness_auto);
        let nulls = json!({"operator": null, "max_expansions": null, "prefix_length": null});
        assert_eq!(of(nulls), of(json!({})));
        let fuzzy = of(json!({"fuzziness": 2, "prefix_length": 1, "operator": "And"}));
        assert_eq!((fuzzy.fuzziness, fuzzy.prefix_length, fuzzy.all_words), (2, 1, true));
    }

    #[test]
    fn queries_of_queries_keep_their_parts() {
        let word = |terms: &str| json!({"match": {"column": "t", "terms": terms}});
        let boolean =
            json!({"boolean": {"must": [word("a")], "should": [], "must_not": [word("b")]}});
        let Kind::Boolean(boolean) = kind_of(json!({"structured_query": {"query": boolean}}))
        else {
            panic!();
        };
        assert_eq!((boolean.must.len(), boolean.should.len(), boolean.must_not.len()), (1, 0, 1));
        let nulls = json!({"boolean": {"must": null, "should": [word("a")], "must_not": null}});
        assert!(
            matches!(kind_of(json!({"query": nulls})), Kind::Boolean(it) if it.must.is_empty())
        );
        let phrase = json!({"phrase": {"terms": "a b", "column": null, "slop": null}});
        assert!(matches!(kind_of(json!({"query": phrase})), Kind::Phrase(it) if it.slop == 0));
        let boost = json!({"boost": {"positive": word("a"), "negative": word("b"), "negative_boost": 0.25}});
        let Kind::Boost(boost) = kind_of(json!({"query": boost})) else { panic!() };
        assert_eq!(boost.negative_boost, Some(0.25));
        let old =
            json!({"multi_match": {"query": "a", "columns": ["t", "u"], "boost": [1.0, 2.0]}});
        let Kind::MultiMatch(old) = kind_of(json!({"query": old})) else { panic!() };
        assert_eq!(
            old.matches.iter().map(|it| it.boost).collect::<Vec<_>>(),
            [Some(1.0), Some(2.0)]
        );
        let new = json!({"multi_match": {"query": "a", "columns": [], "match_queries": [
            {"terms": "a", "column": "t", "operator": "And"}]}});
        let Kind::MultiMatch(new) = kind_of(json!({"query": new})) else { panic!() };
        assert!(new.matches.len() == 1 && new.matches[0].all_words);
        for wrong in [json!({}), json!({"query": {"mtch": {}}}), json!({"query": 3}), json!(7)] {
            let error = text_of(wrong).unwrap_err().to_string();
            assert!(error.contains("has an unknown form"), "{error}");
        }
    }
}
