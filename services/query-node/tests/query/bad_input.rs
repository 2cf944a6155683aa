use client::query::{
    By, GetRequest, SearchRequest, TakeRequest, Text, TextBoolean, TextKind, TextMatch, TextQuery,
};
use lake::IndexRequest;
use wire::{Fault, Reason};

use crate::node::{any_of, by, ids, near, of, phrase, serve, served, text_of, words};
use crate::table::{TestTable, rows, vector};

#[track_caller]
fn assert_fault(fault: Fault, reason: Reason, says: &[&str]) {
    assert_eq!(fault.reason, reason, "{fault}");
    for part in says {
        assert!(fault.message.contains(part), "`{fault}` doesn't say `{part}`");
    }
    assert!(!fault.message.contains('\n'), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_search_gets_one_error_that_names_what_is_at_fault() {
    let (_table, _node, client) = served().await;
    let good = || near(vector(1), 5);
    let with = |change: fn(&mut SearchRequest)| {
        let mut request = good();
        change(&mut request);
        request
    };
    let nan = {
        let mut vector = vector(1);
        vector[3] = f32::NAN;
        vector
    };
    let cases: Vec<(SearchRequest, Reason, &[&str])> = vec![
        (with(|r| r.table = "absent".into()), Reason::TableNotFound, &["`absent`", "there is t"]),
        (with(|r| r.version = 999), Reason::VersionNotFound, &["no version 999"]),
        (with(|r| r.k = 0), Reason::BadArgument, &["`k` is 0", "1 to 10000"]),
        (with(|r| r.k = 10_001), Reason::BadArgument, &["`k` is 10001"]),
        (with(|r| r.columns = vec!["idd".into()]), Reason::ColumnNotFound, &["idd", "\"id\""]),
        (with(|r| r.columns = vec!["id".into(); 2]), Reason::BadArgument, &["`id` twice"]),
        (
            with(|r| r.columns = vec!["_rowaddr".into(); 2]),
            Reason::BadArgument,
            &["`_rowaddr` twice"],
        ),
        (with(|r| r.vector_column = "x".into()), Reason::ColumnNotFound, &["\"x\""]),
        (with(|r| r.vector_column = "text".into()), Reason::BadVector, &["\"text\""]),
        (with(|r| r.filter = "id <".into()), Reason::BadFilter, &["id <"]),
        (with(|r| r.filter = "nope = 1".into()), Reason::BadFilter, &["nope"]),
        (with(|r| r.refine_factor = Some(30_000)), Reason::BadArgument, &["at most 20000"]),
        (near(vec![1.0; 3], 5), Reason::BadVector, &["has 3 dimensions", "`vector` has 80"]),
        (near(vec![], 5), Reason::BadVector, &["has 0 dimensions"]),
        (near(nan, 5), Reason::BadVector, &["NaN at position 3"]),
        (words("  ", 5), Reason::BadArgument, &["`text.words` is empty"]),
        (words(" ; ", 5), Reason::BadArgument, &["`text.words` has no letters or digits"]),
        (
            by(By::Text(text_of(TextKind::Boolean(TextBoolean::default()))), 5),
            Reason::BadArgument,
            &["`text.query.boolean` is empty"],
        ),
        (
            by(By::Text(Text { words: "oak".into(), ..text_of(must(phrase("oak"))) }), 5),
            Reason::BadArgument,
            &["`text.words` is set beside `query`"],
        ),
        (
            by(By::Text(text_of(must(any_of(" ")))), 5),
            Reason::BadArgument,
            &["`text.query.boolean.must[1].match.words` is empty"],
        ),
        (
            with(|r| r.fused_with = Some(text_of(must(TextQuery { kind: None })))),
            Reason::BadArgument,
            &["`fused_with.query.boolean.must[1]` has no form; give match, phrase"],
        ),
        (
            by(By::Text(text_of(must(in_column("id")))), 5),
            Reason::UnsupportedType,
            &["column \"id\""],
        ),
        (
            by(By::Text(text_of(must(in_column("key")))), 5),
            Reason::NoIndex,
            &["column \"key\" has no full-text index", "--text key`"],
        ),
        (
            by(By::Text(text_of(must(in_column("txet")))), 5),
            Reason::ColumnNotFound,
            &["\"txet\"", "did you mean \"text\"?"],
        ),
        (by(By::Like("none".into()), 5), Reason::KeyNotFound, &["`none`", "`key`"]),
        (like("7777", "id"), Reason::KeyNotFound, &["`7777`", "`id`"]),
        (like("7", "nope"), Reason::ColumnNotFound, &["nope"]),
        (with(|r| r.by = None), Reason::BadArgument, &["`by` is missing"]),
        (
            with(|r| r.key_column = "key".into()),
            Reason::BadArgument,
            &["`key_column` applies only"],
        ),
        (
            SearchRequest { nprobes: 4, ..words("oak", 5) },
            Reason::BadArgument,
            &["`nprobes` applies only to searches by `vector`, `vectors` or `like`"],
        ),
        (
            SearchRequest { refine_factor: Some(0), ..words("oak", 5) },
            Reason::BadArgument,
            &["`refine_factor` applies only"],
        ),
        (
            SearchRequest { fused_with: fused("oak"), ..words("oak", 5) },
            Reason::BadArgument,
            &["`fused_with` applies only to searches by `vector` or `like`"],
        ),
        (
            with(|r| r.text_weight = Some(1.0)),
            Reason::BadArgument,
            &["`text_weight` applies only to searches with `fused_with`"],
        ),
        (
            with(|r| r.fused_with = fused(" ")),
            Reason::BadArgument,
            &["`fused_with.words` is empty"],
        ),
        (
            SearchRequest { text_weight: Some(-1.0), ..with(|r| r.fused_with = fused("oak")) },
            Reason::BadArgument,
            &["`text_weight` is -1", "at least 0"],
        ),
        (
            SearchRequest {
                by: None,
                filter: "id < 5".into(),
                vector_column: "vector".into(),
                ..good()
            },
            Reason::BadArgument,
            &["`vector_column` applies only"],
        ),
    ];
    let bad = cases.len() as u64;
    for (request, reason, says) in cases {
        assert_fault(client.search(request).await.unwrap_err(), reason, says);
    }
    assert_eq!(client.search(good()).await.unwrap().rows.num_rows(), 5);
    let status = client.status().await.unwrap();
    assert_eq!((status.requests, status.errors), (bad + 1, bad));
}

/// A boolean query that has `query` as its second part.
fn must(query: TextQuery) -> TextKind {
    TextKind::Boolean(TextBoolean { must: vec![any_of("oak"), query], ..Default::default() })
}

fn in_column(column: &str) -> TextQuery {
    of(TextKind::Match(TextMatch {
        words: "oak".into(),
        column: column.into(),
        ..Default::default()
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phrase_needs_positions_and_the_error_says_how_to_get_them() {
    let table = TestTable::plain().await;
    table.index(IndexRequest::Text { column: "text".into(), positions: false }).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    for query in [phrase("oak trees"), of(must(phrase("oak trees")))] {
        let request = by(By::Text(text_of(query.kind.unwrap())), 5);
        let fault = client.search(request).await.unwrap_err();
        assert_eq!(fault.metadata["column"], "text");
        assert_fault(fault, Reason::NoIndex, &["has no positions", "--text text --positions`"]);
    }
    let matching = of(must(any_of("tree")));
    let request = by(By::Text(text_of(matching.kind.unwrap())), 5);
    assert_eq!(client.search(request).await.unwrap().rows.num_rows(), 5);
}

fn fused(words: &str) -> Option<Text> {
    Some(Text { words: words.into(), ..Default::default() })
}

fn like(key: &str, key_column: &str) -> SearchRequest {
    SearchRequest { key_column: key_column.into(), ..by(By::Like(key.into()), 5) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_for_likeness_says_what_the_table_lacks() {
    let plain = TestTable::plain().await;
    let vectors = rows(0..3).schema().index_of("vector").unwrap();
    let mut wordy = rows(0..3);
    wordy.remove_column(vectors);
    let wordy = TestTable::of(wordy).await;
    let (_node, client) = serve(&[("t", &plain), ("wordy", &wordy)]).await;
    let fault = client.search(like("8", "")).await.unwrap_err();
    assert_fault(fault, Reason::NoIndex, &["no key column", "--key-column"]);
    assert_eq!(ids(&client.search(like("8", "id")).await.unwrap().rows)[0], 8);
    for request in [like("1", "id"), near(vector(1), 5)] {
        let request = SearchRequest { table: "wordy".into(), ..request };
        let fault = client.search(request).await.unwrap_err();
        assert_fault(fault, Reason::NoIndex, &["`wordy` has no vector column", "an index"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_gets_and_takes_are_refused() {
    let (_table, _node, client) = served().await;
    let get = |keys: Vec<String>, key_column: &str| GetRequest {
        table: "t".into(),
        keys,
        key_column: key_column.into(),
        ..Default::default()
    };
    let fault = client.get(get(vec![], "")).await.unwrap_err();
    assert_fault(fault, Reason::BadArgument, &["`keys` is empty"]);
    let fault = client.get(get(vec!["x".into(); 10_001], "")).await.unwrap_err();
    assert_fault(fault, Reason::BadArgument, &["10001 keys", "10000"]);
    let fault = client.get(get(vec!["x".into()], "id")).await.unwrap_err();
    assert_fault(fault, Reason::BadArgument, &["\"x\"", "\"id\""]);
    let fault = client.get(get(vec!["x".into()], "nope")).await.unwrap_err();
    assert_fault(fault, Reason::ColumnNotFound, &["nope"]);
    let take = |row_addrs: Vec<u64>| TakeRequest {
        table: "t".into(),
        row_addrs,
        columns: vec!["id".into()],
        ..Default::default()
    };
    let fault = client.take(take(vec![])).await.err().unwrap();
    assert_fault(fault, Reason::BadArgument, &["`row_addrs` is empty"]);
    let fault = client.take(take(vec![0; 1_000_001])).await.err().unwrap();
    assert_fault(fault, Reason::BadArgument, &["1000001 addresses"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_over_is_told_as_such() {
    let (_table, _node, client) = served().await;
    let hurried = client.with_timeout(std::time::Duration::from_micros(300));
    let fault = hurried.search(near(vector(1), 5)).await.unwrap_err();
    assert_fault(fault, Reason::DeadlineExceeded, &["allow more time"]);
}
