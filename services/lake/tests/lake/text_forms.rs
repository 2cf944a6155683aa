//! Full-text queries of every form, compared with Lance's own search and with the texts themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, AsArray, ListBuilder, RecordBatch, RecordBatchIterator, StringArray, StringBuilder,
};
use arrow::datatypes::{Float32Type, UInt64Type};
use lake::{
    Fuzziness, IndexRequest, LakeError, PlanReason, ScoreHit, Table, TextBoolean, TextBoost,
    TextCombined, TextExpr, TextMatch, TextPhrase, TextQuery, build_index,
};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::inverted::query::{
    BooleanQuery, BoostQuery, CombinedFieldsQuery, FtsQuery, MatchQuery, MultiMatchQuery, Occur,
    Operator, PhraseQuery,
};
use lance_index::scalar::{FullTextSearchQuery, InvertedIndexParams};

use crate::fixture::{PLAIN, TablePlace, lake, rows, write};

pub fn matching(column: &str, words: &str) -> TextMatch {
    TextMatch { column: Some(column.into()), words: words.into(), ..Default::default() }
}

pub fn any_of(column: &str, words: &str) -> TextExpr {
    TextExpr::Match(matching(column, words))
}

fn all_of(column: &str, words: &str) -> TextExpr {
    TextExpr::Match(TextMatch { all_words: true, ..matching(column, words) })
}

fn fuzzy(column: &str, words: &str, fuzziness: Fuzziness) -> TextExpr {
    TextExpr::Match(TextMatch { fuzziness, ..matching(column, words) })
}

pub fn phrase(column: &str, words: &str, slop: u32) -> TextExpr {
    TextExpr::Phrase(TextPhrase { column: Some(column.into()), words: words.into(), slop })
}

pub fn boolean(must: &[TextExpr], should: &[TextExpr], must_not: &[TextExpr]) -> TextExpr {
    let [must, should, must_not] = [must, should, must_not].map(<[TextExpr]>::to_vec);
    TextExpr::Boolean(TextBoolean { must, should, must_not })
}

fn boost(positive: TextExpr, negative: TextExpr, negative_boost: f32) -> TextExpr {
    let [positive, negative] = [positive, negative].map(Box::new);
    TextExpr::Boost(TextBoost { positive, negative, negative_boost })
}

pub fn combined(columns: &[(&str, f32)], words: &str, all_words: bool) -> TextExpr {
    let columns = columns.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    TextExpr::CombinedFields(TextCombined { columns, words: words.into(), all_words })
}

pub fn lance_match(column: &str, words: &str) -> MatchQuery {
    MatchQuery::new(words.to_owned()).with_column(Some(column.to_owned()))
}

fn lance_phrase(column: &str, words: &str, slop: u32) -> FtsQuery {
    PhraseQuery::new(words.to_owned()).with_column(Some(column.to_owned())).with_slop(slop).into()
}

/// Queries, each with Lance's form of the same query.
fn queries() -> Vec<(TextExpr, FtsQuery)> {
    use Occur::{Must, MustNot, Should};
    let of = |column: &str, words: &str| FtsQuery::from(lance_match(column, words));
    let all = |column: &str, words: &str| lance_match(column, words).with_operator(Operator::And);
    vec![
        (any_of("text", "oak"), of("text", "oak")),
        (any_of("text", "willow tree"), of("text", "willow tree")),
        (
            TextExpr::Match(TextMatch { boost: 2.5, ..matching("text", "number 123") }),
            lance_match("text", "number 123").with_boost(2.5).into(),
        ),
        (all_of("text", "tree 123"), all("text", "tree 123").into()),
        // In all columns.
        (
            TextExpr::words("oak name 12"),
            MultiMatchQuery::try_new(
                "oak name 12".into(),
                vec!["name".to_owned(), "text".to_owned()],
            )
            .unwrap()
            .into(),
        ),
        (
            fuzzy("text", "wilow", Fuzziness::Edits(1)),
            lance_match("text", "wilow").with_fuzziness(Some(1)).into(),
        ),
        (
            TextExpr::Match(TextMatch {
                fuzziness: Fuzziness::Edits(2),
                max_expansions: 3,
                prefix_length: 1,
                ..matching("text", "aok 13")
            }),
            lance_match("text", "aok 13")
                .with_fuzziness(Some(2))
                .with_max_expansions(3)
                .with_prefix_length(1)
                .into(),
        ),
        (phrase("text", "oak tree", 0), lance_phrase("text", "oak tree", 0)),
        (phrase("text", "tree oak", 0), lance_phrase("text", "tree oak", 0)),
        (phrase("text", "ash number", 1), lance_phrase("text", "ash number", 1)),
        (
            boost(any_of("text", "oak ash"), all_of("text", "ash tree"), 0.75),
            BoostQuery::new(of("text", "oak ash"), all("text", "ash tree").into(), Some(0.75))
                .into(),
        ),
        (
            boolean(
                &[any_of("text", "tree")],
                &[phrase("text", "ash tree", 0), any_of("text", "17")],
                &[any_of("text", "oak birch")],
            ),
            BooleanQuery::new([
                (Must, of("text", "tree")),
                (Should, lance_phrase("text", "ash tree", 0)),
                (Should, of("text", "17")),
                (MustNot, of("text", "oak birch")),
            ])
            .into(),
        ),
        // Queries of one column inside of others: similar words, several matches, lowered scores.
        (
            boolean(
                &[fuzzy("text", "wilow", Fuzziness::Edits(1))],
                &[boost(any_of("text", "tree"), any_of("text", "601 602"), 0.5)],
                &[all_of("text", "number 603")],
            ),
            BooleanQuery::new([
                (Must, lance_match("text", "wilow").with_fuzziness(Some(1)).into()),
                (Should, BoostQuery::new(of("text", "tree"), of("text", "601 602"), None).into()),
                (MustNot, all("text", "number 603").into()),
            ])
            .into(),
        ),
        (
            boolean(
                &[],
                &[
                    TextExpr::MultiMatch(vec![
                        TextMatch { boost: 2.0, ..matching("text", "602 3") },
                        matching("text", "ash"),
                    ]),
                    phrase("text", "birch number", 1),
                    boolean(&[any_of("text", "tree"), any_of("text", "oak 601")], &[], &[]),
                ],
                &[],
            ),
            BooleanQuery::new([
                (
                    Should,
                    MultiMatchQuery {
                        match_queries: vec![
                            lance_match("text", "602 3").with_boost(2.0),
                            lance_match("text", "ash"),
                        ],
                    }
                    .into(),
                ),
                (Should, lance_phrase("text", "birch number", 1)),
                (
                    Should,
                    BooleanQuery::new([(Must, of("text", "tree")), (Must, of("text", "oak 601"))])
                        .into(),
                ),
            ])
            .into(),
        ),
        // Searches of several columns.
        (
            boolean(
                &[any_of("text", "maple ash")],
                &[any_of("name", "123"), phrase("name", "name 128", 0)],
                &[any_of("name", "42")],
            ),
            BooleanQuery::new([
                (Must, of("text", "maple ash")),
                (Should, of("name", "123")),
                (Should, lance_phrase("name", "name 128", 0)),
                (MustNot, of("name", "42")),
            ])
            .into(),
        ),
        (
            boost(any_of("text", "oak 21"), any_of("name", "21 45"), 0.5),
            BoostQuery::new(of("text", "oak 21"), of("name", "21 45"), None).into(),
        ),
        (
            TextExpr::MultiMatch(vec![
                TextMatch { boost: 3.0, ..matching("name", "123 124") },
                TextMatch { all_words: true, ..matching("text", "birch 124") },
            ]),
            MultiMatchQuery {
                match_queries: vec![
                    lance_match("name", "123 124").with_boost(3.0),
                    all("text", "birch 124"),
                ],
            }
            .into(),
        ),
        (
            combined(&[("name", 2.0), ("text", 1.0)], "maple 123", false),
            CombinedFieldsQuery::try_new("maple 123".into(), vec!["name".into(), "text".into()])
                .and_then(|query| query.try_with_boosts(vec![2.0, 1.0]))
                .unwrap()
                .into(),
        ),
        (
            boolean(&[combined(&[("name", 1.0), ("text", 1.0)], "willow name", true)], &[], &[]),
            BooleanQuery::new([(
                Must,
                CombinedFieldsQuery::try_new(
                    "willow name".into(),
                    vec!["name".into(), "text".into()],
                )
                .unwrap()
                .with_operator(Operator::And)
                .into(),
            )])
            .into(),
        ),
    ]
}

/// Returns what Lance's scanner finds. With `indexed_only`, it leaves out rows that an index does not cover.
pub async fn by_lance(
    dataset: &Dataset,
    query: FtsQuery,
    filter: Option<&str>,
    k: usize,
    indexed_only: bool,
) -> Vec<ScoreHit> {
    let mut scan = dataset.scan();
    scan.project(&["_score"]).unwrap().with_row_address().prefilter(true);
    let search = FullTextSearchQuery::new_query(query).limit(Some(k as i64));
    scan.full_text_search(search).unwrap().limit(Some(k as i64), None).unwrap();
    if let Some(filter) = filter {
        scan.filter(filter).unwrap();
    }
    if indexed_only {
        scan.fast_search();
    }
    let found = scan.try_into_batch().await.unwrap();
    let scores = found["_score"].as_primitive::<Float32Type>().values().iter();
    let addresses = found["_rowaddr"].as_primitive::<UInt64Type>().values().iter();
    let addresses = addresses.map(|addr| RowAddr::from_u64(*addr));
    addresses.zip(scores).map(|(addr, &score)| ScoreHit { addr, score }).collect()
}

/// Asserts that two searches found the same rows with the same scores. The searches may differ in rows that have the
/// score of the last one.
pub fn assert_same(found: &[ScoreHit], expected: &[ScoreHit], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    let distinct: BTreeSet<_> = found.iter().map(|hit| hit.addr).collect();
    assert_eq!(distinct.len(), found.len(), "{context}");
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
    let last = expected.iter().map(|hit| hit.score).min_by(f32::total_cmp).unwrap_or(0.0);
    for hit in found {
        match expected.iter().find(|it| it.addr == hit.addr) {
            Some(same) => assert!(near(hit.score, same.score), "{context}: {hit:?}, {same:?}"),
            None => assert!(near(hit.score, last), "{context}: {hit:?}, but the last is {last}"),
        }
    }
}

/// What [`compare_text`] saw.
#[derive(Debug, Default)]
pub struct ComparedText {
    /// The largest number of rows that a search compared one by one.
    pub fresh: usize,
    /// The reasons of searches that were planned.
    pub planned: BTreeSet<String>,
}

/// Compares full-text searches of every form with Lance's.
pub async fn compare_text(table: &Table, dataset: &Dataset, context: &str) -> ComparedText {
    let mut compared = ComparedText::default();
    for (query, lance) in queries() {
        for (filter, k, indexed_only) in [
            (None, 12, false),
            (None, 2000, false),
            (None, 2000, true),
            (Some("id < 150"), 2000, false),
            (Some("id % 3 = 0"), 12, false),
            (Some("id % 3 = 0"), 2000, false),
        ] {
            let context = format!("{context}, {query:?}, {filter:?}, {k}, {indexed_only}");
            let filter = filter.map(str::to_owned);
            let query = TextQuery { query: query.clone(), k, filter: filter.clone(), indexed_only };
            let expected =
                by_lance(dataset, lance.clone(), filter.as_deref(), k, indexed_only).await;
            let found = table.search_text(&query).await.unwrap();
            assert!(found.hits.is_sorted_by(|a, b| a.score >= b.score), "{context}");
            assert_same(&found.hits, &expected, &context);
            assert!(!indexed_only || found.fresh == 0, "{context}");
            compared.fresh = compared.fresh.max(found.fresh);
            compared.planned.extend(found.planned.map(|reason| reason.to_string()));
        }
    }
    // Lance's scanner treats automatic edits as zero edits, so these searches are compared with planned searches of the
    // same parts.
    for query in [
        fuzzy("text", "wilow tree of oack", Fuzziness::Auto),
        TextExpr::Match(TextMatch {
            fuzziness: Fuzziness::Auto,
            words: "wilow nmae 12".into(),
            ..Default::default()
        }),
    ] {
        let context = format!("{context}, {query:?}");
        let query =
            TextQuery { query, k: 50, filter: Some("id > 20".into()), ..Default::default() };
        let found = table.search_text(&query).await.unwrap();
        compared.planned.extend(found.planned.map(|reason| reason.to_string()));
        assert!(!found.hits.is_empty(), "{context}");
        assert_same(&found.hits, &table.planned_text(&query).await.unwrap(), &context);
    }
    compared
}

/// Texts about trees, rivers and animals.
const TEXTS: [Option<&str>; 10] = [
    Some("An old oak by the river"),
    Some("The river by an old mill"),
    Some("Oaks of the old river valley"),
    Some("An elephant drinks from the river"),
    Some("Elephants and whales are large animals"),
    Some("A whale in the sea"),
    None,
    Some("A river, an oak; a sea"),
    Some("old old old"),
    Some("Sea elephants sleep by the sea"),
];

/// The values of a second column of text.
const TITLES: [&str; 10] =
    ["oak", "mill", "oaks", "elephant", "whale", "whale", "oak", "sea", "age", "seal"];

/// A table of [`TEXTS`] and [`TITLES`], with a list of both. `text` and `title` have full-text indexes, with positions
/// on `text`.
async fn small() -> (TablePlace, Table) {
    let place = TablePlace::new();
    let mut lists = ListBuilder::new(StringBuilder::new());
    for (text, title) in TEXTS.iter().zip(TITLES) {
        lists.append_value([*text, Some(title)]);
    }
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("text", Arc::new(StringArray::from(TEXTS.to_vec())) as ArrayRef, true),
        ("title", Arc::new(StringArray::from(TITLES.to_vec())), true),
        ("both", Arc::new(lists.finish()), true),
    ]);
    write(&place.uri(), &[batch.unwrap()], PLAIN).await;
    for (column, positions) in [("text", true), ("title", false)] {
        let index = IndexRequest::Text { column: column.into(), positions };
        build_index(&lake(), &place.uri(), &index, |_| ()).await.unwrap();
    }
    let table = lake().open(&place.uri()).await.unwrap();
    (place, table)
}

async fn found(table: &Table, query: TextExpr) -> Vec<u32> {
    let query = TextQuery { query, k: 100, filter: None, ..Default::default() };
    let found = table.search_text(&query).await.unwrap();
    assert_eq!(found.planned, None, "{query:?}");
    let mut rows: Vec<u32> = found.hits.iter().map(|hit| hit.addr.offset()).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test]
async fn each_form_finds_the_rows_whose_text_it_describes() {
    let (_place, table) = small().await;
    let indexes = table.indexes().await.unwrap();
    let positions = indexes.iter().map(|index| (index.columns[0].as_str(), index.positions));
    let positions: BTreeSet<_> = positions.collect();
    assert_eq!(positions, BTreeSet::from([("text", Some(true)), ("title", Some(false))]));
    for (query, rows) in [
        (any_of("text", "oak mill"), &[0, 1, 2, 7][..]),
        (all_of("text", "oak old"), &[0, 2]),
        (all_of("text", "the oak"), &[0, 2, 7]),
        (any_of("text", "spruce"), &[]),
        (all_of("text", "oak spruce"), &[]),
        // Only stop words.
        (any_of("text", "the of"), &[]),
        (all_of("text", "the of"), &[]),
        (phrase("text", "old river", 0), &[2]),
        (phrase("text", "old oak", 0), &[0]),
        // "by the" are stop words, which match any two words.
        (phrase("text", "oak by the river", 0), &[0]),
        (phrase("text", "oak river", 2), &[0]),
        (phrase("text", "old mill", 0), &[1]),
        (phrase("text", "elephants", 0), &[3, 4, 9]),
        // The tokenizer finds no words.
        (any_of("text", "!!!"), &[]),
        (all_of("text", "🙂"), &[]),
        (phrase("text", ";", 0), &[]),
        (fuzzy("text", "-", Fuzziness::Auto), &[]),
        (TextExpr::words(""), &[]),
        (TextExpr::words("whales"), &[4, 5]),
        (TextExpr::words("elephant seal"), &[3, 4, 9]),
        (fuzzy("text", "whle", Fuzziness::Edits(1)), &[4, 5]),
        (fuzzy("text", "whle", Fuzziness::Edits(0)), &[]),
        (fuzzy("text", "Whle", Fuzziness::Auto), &[4, 5]),
        (fuzzy("text", "old oac", Fuzziness::Auto), &[0, 1, 2, 7, 8]),
        (
            TextExpr::Match(TextMatch {
                all_words: true,
                fuzziness: Fuzziness::Auto,
                ..matching("text", "the oldd oacs")
            }),
            &[0, 2],
        ),
        (boolean(&[any_of("text", "river")], &[], &[any_of("text", "oak")]), &[1, 3]),
        (boolean(&[], &[any_of("text", "mill"), any_of("title", "seal")], &[]), &[1, 9]),
        (boolean(&[any_of("title", "oak")], &[any_of("text", "sea")], &[]), &[0, 2, 6]),
        (
            boolean(
                &[boolean(&[], &[phrase("text", "old oak", 0), any_of("text", "sea")], &[])],
                &[],
                &[any_of("title", "whale"), all_of("text", "sea elephants")],
            ),
            &[0, 7],
        ),
        (boost(any_of("text", "oak"), any_of("text", "sea"), 1.0), &[0, 2, 7]),
        (combined(&[("text", 1.0), ("title", 1.0)], "mill seal", false), &[1, 9]),
        // All words must occur, each in any of the columns.
        (combined(&[("text", 1.0), ("title", 1.0)], "whale animal", true), &[4]),
        (combined(&[("text", 1.0), ("title", 1.0)], "seal sleep", true), &[9]),
    ] {
        assert_eq!(found(&table, query.clone()).await, rows, "{query:?}");
    }
    let best = async |query| {
        let query = TextQuery { query, k: 1, filter: None, ..Default::default() };
        table.search_text(&query).await.unwrap().hits[0].addr.offset()
    };
    assert_eq!(best(boost(any_of("text", "oak river"), any_of("text", "old"), 0.9)).await, 7);
    let title = TextMatch { boost: 100.0, ..matching("title", "sea") };
    assert_eq!(best(TextExpr::MultiMatch(vec![matching("text", "sea"), title])).await, 7);
    assert_eq!(best(any_of("text", "sea")).await, 9);
}

#[tokio::test]
async fn queries_that_can_not_run_are_refused_with_a_sentence() {
    let (place, table) = small().await;
    let refused = async |table: &Table, query: TextExpr| {
        let query = TextQuery { query, k: 5, filter: None, ..Default::default() };
        let error = table.search_text(&query).await.unwrap_err();
        assert!(!matches!(error, LakeError::Internal { .. }), "{error}");
        error.to_string()
    };
    let only_phrase = TextPhrase { words: "old oak".into(), ..Default::default() };
    let auto_in_all = TextExpr::Match(TextMatch {
        words: "oak".into(),
        fuzziness: Fuzziness::Auto,
        ..Default::default()
    });
    let in_all = TextExpr::words("oak");
    let fuzzy_oak = TextMatch { fuzziness: Fuzziness::Edits(1), ..matching("text", "oak") };
    for (query, says) in [
        (phrase("title", "old oak", 0), "\"title\" in version 3 has no positions of words, which"),
        (phrase("title", "old oak", 0), "--text title --positions`"),
        (phrase("both", "old oak", 0), "column \"both\" has no full-text index in version 3"),
        (phrase("nope", "old oak", 0), "no column \"nope\""),
        (TextExpr::Phrase(only_phrase), "name the text column: one of \"text\", \"title\""),
        (combined(&[("text", 1.0), ("nope", 1.0)], "oak", false), "no column \"nope\""),
        (boolean(&[any_of("text", "a")], &[], &[any_of("both", "b")]), "\"both\" has no full-text"),
        (boolean(&[], &[], &[any_of("text", "oak")]), "`boolean` has only `must_not`"),
        (fuzzy("text", "oak", Fuzziness::Edits(3)), "`match.fuzziness` is 3"),
        (boolean(&[auto_in_all], &[], &[]), "automatic edits searches several columns inside"),
        (boolean(&vec![in_all; 40], &[], &[]), "searches 80 columns, counted for each"),
        (
            TextExpr::Match(TextMatch { max_expansions: 600, column: None, ..fuzzy_oak }),
            "stand for 1200 words, counted for each column, and 1024 is the most",
        ),
    ] {
        let said = refused(&table, query).await;
        assert!(said.contains(says) && !said.contains('\n'), "{said}");
    }
    // Columns that split text into words in different ways can't be combined.
    let mut dataset = Dataset::open(&place.uri()).await.unwrap();
    let whitespace = InvertedIndexParams::default().base_tokenizer("whitespace".into());
    let indexes = table.indexes().await.unwrap();
    let name = indexes.iter().find(|index| index.columns == ["title"]).unwrap().name.clone();
    let create =
        dataset.create_index(&["title"], IndexType::Inverted, Some(name), &whitespace, true);
    create.await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let said = refused(&table, combined(&[("text", 1.0), ("title", 1.0)], "oak", false)).await;
    assert!(said.contains("share the same tokenizer"), "{said}");
}

#[tokio::test]
async fn a_phrase_in_lists_is_planned_and_fresh_rows_are_found() {
    let (place, _table) = small().await;
    let index = IndexRequest::Text { column: "both".into(), positions: true };
    build_index(&lake(), &place.uri(), &index, |_| ()).await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let search = async |table: &Table, query: TextExpr| {
        let query = TextQuery { query, k: 100, filter: None, ..Default::default() };
        let found = table.search_text(&query).await.unwrap();
        let mut rows: Vec<_> = found.hits.iter().map(|hit| hit.addr).collect();
        rows.sort_unstable();
        (rows, found.planned)
    };
    let at = |offset| RowAddr::new(0, offset);
    let first = search(&table, phrase("both", "old oak", 0)).await;
    assert_eq!(first, (vec![at(0)], Some(PlanReason::ListsOfText)));
    let batch = lake().open(&place.uri()).await.unwrap();
    let batch = batch.take(&[at(0), at(4)], &["text", "title", "both"].map(str::to_owned)).await;
    write_more(&place.uri(), batch.unwrap()).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let fresh_oak = RowAddr::new(1, 0);
    let oaks = (vec![at(0), fresh_oak], None);
    assert_eq!(search(&table, phrase("text", "old oak", 0)).await, oaks);
    let both = boolean(&[phrase("text", "old oak", 0)], &[], &[any_of("title", "whale")]);
    assert_eq!(search(&table, both).await, oaks);
    // In fresh rows, fuzzy words must be there exactly.
    let (rows, _) = search(&table, fuzzy("text", "oac", Fuzziness::Auto)).await;
    assert_eq!(rows, [at(0), at(2), at(7)]);
    let (rows, _) = search(&table, fuzzy("text", "oak", Fuzziness::Auto)).await;
    assert_eq!(rows, [at(0), at(2), at(7), fresh_oak]);
}

#[tokio::test]
async fn automatic_edits_stem_the_words_once_in_fresh_rows() {
    let place = TablePlace::new();
    let batch = |texts: [&str; 2]| {
        let texts = Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([("text", texts, true)]).unwrap()
    };
    write(&place.uri(), &[batch(["A disease of the oak", "An oak"])], PLAIN).await;
    let index = IndexRequest::Text { column: "text".into(), positions: false };
    build_index(&lake(), &place.uri(), &index, |_| ()).await.unwrap();
    write_more(&place.uri(), batch(["Oaks with the disease", "Oaks"])).await;
    let table = lake().open(&place.uri()).await.unwrap();
    // The stem of "disease" is "diseas", and the stem of that is "disea".
    let disease = || fuzzy("text", "disease", Fuzziness::Auto);
    let both_words = TextExpr::Match(TextMatch {
        all_words: true,
        fuzziness: Fuzziness::Auto,
        ..matching("text", "oaks disease")
    });
    let without = boolean(&[any_of("text", "oak")], &[], &[disease()]);
    for (query, offset, can_be_planned) in
        [(disease(), 0, true), (both_words, 0, true), (without, 1, false)]
    {
        let query = TextQuery { query, k: 100, filter: None, ..Default::default() };
        let found = table.search_text(&query).await.unwrap();
        assert_eq!(found.planned, None, "{query:?}");
        let rows: BTreeSet<_> = found.hits.iter().map(|hit| hit.addr).collect();
        let expected = [RowAddr::new(0, offset), RowAddr::new(1, offset)];
        assert_eq!(rows, BTreeSet::from(expected), "{query:?}");
        if can_be_planned {
            let planned = table.planned_text(&query).await.unwrap();
            assert_same(&found.hits, &planned, &format!("{query:?}"));
        }
    }
}

async fn write_more(uri: &str, batch: RecordBatch) {
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::open(uri).await.unwrap().append(reader, None).await.unwrap();
}

#[tokio::test]
async fn the_longest_words_can_be_fuzzy() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 30)], PLAIN).await;
    let index = IndexRequest::Text { column: "text".into(), positions: false };
    build_index(&lake(), &place.uri(), &index, |_| ()).await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let distinct: String = ('a'..='z').chain('0'..='9').chain('A'..='D').collect();
    let chinese: String = ('一'..).take(40).collect();
    let mixed: String = distinct.chars().take(20).chain(chinese.chars().take(20)).collect();
    for word in ["ab".repeat(20), "a".repeat(40), distinct, chinese, mixed] {
        assert_eq!(word.chars().count(), 40);
        for fuzziness in [Fuzziness::Edits(2), Fuzziness::Auto] {
            let query = TextQuery {
                query: fuzzy("text", &word, fuzziness),
                k: 5,
                filter: None,
                ..Default::default()
            };
            assert_eq!(table.search_text(&query).await.unwrap().hits, [], "{word}");
        }
    }
}
