//! Searches by words, and by words and vectors together.

use std::collections::HashMap;

use client::query::{
    By, SearchRequest, Text, TextBoolean, TextBoost, TextColumn, TextCombinedFields, TextKind,
    TextMatch, TextMultiMatch,
};
use lake::{Metric, VectorIndexKind};

use crate::node::{
    addresses, any_of, assert_true, by, ids, near, numbers, of, phrase, serve, served, text_of,
    words,
};
use crate::table::{ROWS, TestTable, is_live, live, text, vector};

#[tokio::test(flavor = "multi_thread")]
async fn words_find_the_rows_that_have_them() {
    let (_table, _node, client) = served().await;
    let answer = client.search(words("willow", 1000)).await.unwrap();
    let mut found = ids(&answer.rows);
    found.sort_unstable();
    assert_eq!(found, live().filter(|&id| text(id).contains("willow")).collect::<Vec<_>>());
    assert!(numbers(&answer.rows, "_score").iter().is_sorted_by(|a, b| a >= b));
    assert_true(&answer.rows);
    let filter = "id % 2 = 0".to_owned();
    let answer = client.search(SearchRequest { filter, ..words("willow", 7) }).await.unwrap();
    assert_eq!(answer.rows.num_rows(), 7);
    assert!(ids(&answer.rows).iter().all(|id| id % 2 == 0));
    let nothing = client.search(words("zebra", 7)).await.unwrap();
    assert_eq!(nothing.rows.num_rows(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_queries_of_every_form_find_the_rows_that_they_describe() {
    let (_table, _node, client) = served().await;
    let fuzzy = TextMatch { words: "wilow".into(), fuzziness: 1, ..Default::default() };
    let all_words = TextMatch { words: "river oak".into(), all_words: true, ..Default::default() };
    let auto = TextMatch { words: "The Alderr".into(), fuzziness_auto: true, ..Default::default() };
    let alder = TextMatch { words: "alder".into(), column: "text".into(), ..Default::default() };
    let boost = TextBoost {
        positive: Some(Box::new(any_of("oak maple"))),
        negative: Some(Box::new(any_of("maple"))),
        negative_boost: None,
    };
    let combined = TextCombinedFields {
        words: "river birch".into(),
        columns: vec![TextColumn { name: "text".into(), weight: Some(2.0) }],
        all_words: true,
    };
    let boolean = TextBoolean {
        must: vec![any_of("river")],
        should: vec![phrase("alder trees")],
        must_not: vec![any_of("oak birch maple")],
    };
    let nested = TextBoolean {
        should: vec![of(TextKind::Boolean(boolean.clone())), phrase("oak trees by the river")],
        ..Default::default()
    };
    type Has = fn(&str) -> bool;
    let cases: Vec<(TextKind, Has)> = vec![
        (TextKind::Match(fuzzy), |text| text.contains("willow")),
        (TextKind::Match(all_words), |text| text.contains("oak")),
        (TextKind::Match(auto), |text| text.contains("alder")),
        (TextKind::MultiMatch(TextMultiMatch { matches: vec![alder] }), |text| {
            text.contains("alder")
        }),
        (phrase("willow trees").kind.unwrap(), |text| text.contains("willow")),
        (phrase("trees willow").kind.unwrap(), |_| false),
        (TextKind::Boost(Box::new(boost)), |text| text.contains("oak") || text.contains("maple")),
        (TextKind::CombinedFields(combined), |text| text.contains("birch")),
        (TextKind::Boolean(boolean), |text| text.contains("willow") || text.contains("alder")),
        (TextKind::Boolean(nested), |text| !text.contains("birch") && !text.contains("maple")),
    ];
    for (kind, has) in cases {
        for (filter, passes) in [("", 1), ("id % 4 = 0", 4)] {
            let context = format!("{kind:?}, {filter}");
            let request = SearchRequest {
                filter: filter.into(),
                explain: true,
                ..by(By::Text(text_of(kind.clone())), 5000)
            };
            let answer = client.search(request).await.unwrap();
            assert_true(&answer.rows);
            let scores = numbers(&answer.rows, "_score");
            assert!(scores.iter().is_sorted_by(|a, b| a >= b), "{context}");
            let mut found = ids(&answer.rows);
            found.sort_unstable();
            let expected = live().filter(|id| id % passes == 0 && has(&text(*id)));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{context}");
            let search = answer.stages.iter().find(|stage| stage.name == "search").unwrap();
            assert!(search.detail.contains("from the full-text index"), "{}", search.detail);
        }
    }
    // In the boolean query, rows that match the phrase come first. In the boost query, rows that match `negative` come
    // last.
    let first = |kind: TextKind| {
        let request = by(By::Text(text_of(kind)), 1);
        async { text(ids(&client.search(request).await.unwrap().rows)[0]) }
    };
    let boolean = TextBoolean {
        must: vec![any_of("river")],
        should: vec![phrase("alder trees")],
        ..Default::default()
    };
    assert!(first(TextKind::Boolean(boolean)).await.contains("alder"));
    let boost = TextBoost {
        positive: Some(Box::new(any_of("oak maple"))),
        negative: Some(Box::new(any_of("maple"))),
        negative_boost: Some(0.9),
    };
    assert!(first(TextKind::Boost(Box::new(boost))).await.contains("oak"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_search_fuses_the_ranks_of_two_searches() {
    let (_table, _node, client) = served().await;
    let words = Text { words: "oak".into(), ..Default::default() };
    let boolean = TextBoolean {
        must: vec![phrase("oak trees")],
        must_not: vec![any_of("birch")],
        ..Default::default()
    };
    let boolean = text_of(TextKind::Boolean(boolean));
    for (seed, filter, weight, text) in [
        (3, "", None, &words),
        (40, "id < 200", Some(0.5), &words),
        (7, "", Some(0.0), &words),
        (9, "id > 100", Some(2.0), &boolean),
    ] {
        let k = 20;
        let near = SearchRequest { filter: filter.into(), ..near(vector(seed), k) };
        let words = SearchRequest { filter: filter.into(), ..by(By::Text(text.clone()), k) };
        let rows = async |request| addresses(&client.search(request).await.unwrap().rows);
        let (nearest, best) = (rows(near.clone()).await, rows(words).await);
        let mut expected: HashMap<u64, f32> = HashMap::new();
        for (ranking, weight) in [(&nearest, 1.0), (&best, weight.unwrap_or(1.0))] {
            for (at, addr) in ranking.iter().enumerate() {
                *expected.entry(*addr).or_default() += weight / (61 + at) as f32;
            }
        }
        let mut expected: Vec<_> = expected.into_iter().collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        expected.truncate(k as usize);
        let hybrid = SearchRequest {
            fused_with: Some(text.clone()),
            text_weight: weight,
            explain: true,
            ..near
        };
        let found = client.search(hybrid).await.unwrap();
        assert_true(&found.rows);
        let scores = numbers(&found.rows, "_relevance_score");
        let fused: Vec<_> = addresses(&found.rows).into_iter().zip(scores).collect();
        assert_eq!(fused, expected);
        let searches: Vec<_> = found.stages.iter().filter(|it| it.name == "search").collect();
        let [by_vector, by_words] = searches[..] else { panic!("{:?}", found.stages) };
        assert!(!by_vector.detail.contains("full-text"), "{}", by_vector.detail);
        assert!(by_words.detail.contains("from the full-text index"), "{}", by_words.detail);
        assert!(by_words.detail.ends_with(", at the same time"), "{}", by_words.detail);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_rows_that_the_index_does_not_cover_are_found_without_a_plan() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    table.append(ROWS..ROWS + 40).await;
    table.delete("id % 10 = 7").await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let willows = |from: i64, to: i64| {
        let of_words = move |id: &i64| is_live(*id) && text(*id).contains("willow");
        (from..to).filter(of_words)
    };
    for (filter, indexed_only, expected, said) in [
        (
            "",
            false,
            willows(0, ROWS + 40).collect::<Vec<_>>(),
            ", and 36 rows that it does not cover",
        ),
        ("", true, willows(0, ROWS).collect(), ""),
        (
            "id > 3010",
            false,
            willows(3011, ROWS + 40).collect(),
            ", and 26 rows that it does not cover; 26 rows of the version pass the filter, by a scan",
        ),
        (
            "id < 50",
            false,
            willows(0, 50).collect(),
            "; 45 rows of the version pass the filter, by a scan",
        ),
    ] {
        let filter = filter.to_owned();
        let request =
            SearchRequest { filter, indexed_only, explain: true, ..words("willow", 5000) };
        let answer = client.search(request).await.unwrap();
        let mut found = ids(&answer.rows);
        found.sort_unstable();
        assert_eq!(found, expected);
        let search = answer.stages.iter().find(|stage| stage.name == "search").unwrap();
        let candidates = format!("{} candidates, from the full-text index{said}", found.len());
        assert_eq!(search.detail, candidates);
    }
}
