//! Attacks with filters, words and requests that would cost too much.
//!
//! Tests rows 4, 5 and 6 of the table of attacks, and that an error shows a bad filter only once (row 14).

use std::collections::BTreeMap;
use std::time::Duration;

use client::query::{
    By, GetRequest, QueryClient, SearchRequest, Text, TextBoolean, TextKind, TextMatch, TextPhrase,
    TextQuery, Vector,
};
use tokio::runtime::Runtime;
use wire::{Fault, Reason};

use super::cluster::{Cluster, PATIENCE, Settings};
use super::good_caller::GoodCaller;
use super::growth::{Outcome, until_refused};
use super::report::held;

/// The limit on a query node's resident memory with the sample, in MiB: its caches, Lance's buffers, and what a
/// development build adds to both. Without the defences, the attacks took gigabytes.
const RESIDENT_MIB_MAX: u64 = 1024;

/// A cluster with a caller who behaves, and one who doesn't.
struct Attack {
    cluster: Cluster,
    good: GoodCaller,
    runtime: Runtime,
    client: QueryClient,
}

impl Attack {
    fn begin() -> Self {
        let cluster = Cluster::start(&Settings::default());
        let good = GoodCaller::start(&cluster);
        let runtime = Runtime::new().unwrap();
        let client = connected(&runtime, &cluster);
        Self { cluster, good, runtime, client }
    }

    fn search(&self, request: SearchRequest) -> Result<usize, Fault> {
        let found = self.runtime.block_on(self.client.search(request))?;
        Ok(found.rows.num_rows())
    }

    /// Checks that the node is alive and within its memory limit, that it answers probes, and that it always answered
    /// the good caller. Returns the peak of its resident memory, in MiB.
    fn end(self) -> u64 {
        let seen = self.good.stop();
        assert!(seen.answered > 0 && seen.refused.is_empty(), "{seen:?}");
        self.cluster.assert_healthy();
        let peak_mib = self.cluster.query.peak_mib();
        assert!(peak_mib <= RESIDENT_MIB_MAX, "{peak_mib} MiB were resident");
        peak_mib
    }
}

fn connected(runtime: &Runtime, cluster: &Cluster) -> QueryClient {
    let endpoint = cluster.query.endpoint.parse().unwrap();
    runtime.block_on(QueryClient::connect(&endpoint)).unwrap().with_timeout(PATIENCE)
}

fn by_filter(filter: impl Into<String>) -> SearchRequest {
    let columns = vec!["synset".into()];
    SearchRequest {
        table: "words".into(),
        filter: filter.into(),
        k: 3,
        columns,
        ..Default::default()
    }
}

fn by_words(words: impl Into<String>) -> SearchRequest {
    let by = Some(By::Text(Text { words: words.into(), ..Default::default() }));
    SearchRequest { by, ..by_filter("") }
}

/// A function that returns a full-text query of size `n`.
type ConstructText = fn(usize) -> TextQuery;

/// Full-text queries that grow with `n`. Each is answered while it is small, and refused once it has grown too large.
const TEXT_QUERIES: &[(&str, ConstructText)] = &[
    ("levels", |n| (0..n).fold(matching("animal", 0), |inner, _| all_of(vec![inner]))),
    ("clauses", |n| all_of((0..n).map(|k| matching(&format!("w{k}"), 0)).collect())),
    ("phrases", |n| {
        let phrase =
            TextPhrase { words: "an animal of the sea".into(), slop: 900, ..Default::default() };
        all_of(vec![TextQuery { kind: Some(TextKind::Phrase(phrase)) }; n])
    }),
    ("fuzzy matches", |n| all_of((0..n).map(|_| matching("animals of the seas", 2)).collect())),
    ("letters of a fuzzy word", |n| matching(&"e".repeat(n), 2)),
    ("edits", |n| matching("animal", n as u32)),
];

fn matching(words: &str, fuzziness: u32) -> TextQuery {
    let matching = TextMatch { words: words.into(), fuzziness, ..Default::default() };
    TextQuery { kind: Some(TextKind::Match(matching)) }
}

fn all_of(must: Vec<TextQuery>) -> TextQuery {
    let boolean = TextBoolean { must, ..Default::default() };
    TextQuery { kind: Some(TextKind::Boolean(boolean)) }
}

/// A function that returns a filter of size `n`.
type Construct = fn(usize) -> String;

fn chain(n: usize, first: &str, next: &str) -> String {
    format!("{first}{}", next.repeat(n))
}

fn nested(n: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(n), close.repeat(n))
}

fn list(n: usize, join: &str, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(join)
}

/// Constructs of filters. A filter is answered while its construct is small, and refused once it has grown too large.
/// `lake` tests more constructs, and the stack that they need.
const CONSTRUCTS: &[(&str, Construct)] = &[
    ("domain < 1 + 1 + …", |n| chain(n, "domain < 1", " + 1")),
    ("NOT NOT …", |n| nested(n, "NOT ", "domain = 1", "")),
    ("NOT (NOT (…", |n| nested(n, "NOT (", "domain = 1", ")")),
    ("- - …", |n| format!("domain < {}domain", nested(n, "- ", "", ""))),
    ("lower(lower(…", |n| format!("{} = 'x'", nested(n, "lower(", "gloss", ")"))),
    ("coalesce(coalesce(…", |n| format!("{} = 'x'", nested(n, "coalesce(", "gloss", ", 'x')"))),
    ("a::bigint::bigint…", |n| format!("{} = 1", chain(n, "domain", "::bigint"))),
    ("CAST(CAST(…", |n| format!("{} = 1", nested(n, "CAST(", "domain", " AS double)"))),
    ("((…))", |n| nested(n, "(", "domain = 1", ")")),
    ("(a OR (b OR (…", |n| nested(n, "(domain = 1 OR ", "domain = 2", ")")),
    ("a OR b OR …", |n| list(n, " OR ", |k| format!("domain = {k}"))),
    ("a AND b AND …", |n| list(n, " AND ", |k| format!("domain <> {k}"))),
    ("LIKE OR LIKE OR …", |n| list(n, " OR ", |k| format!("gloss LIKE '%{k}_%'"))),
    ("a long LIKE", |n| format!("gloss LIKE '{}'", "%_a".repeat(n))),
    ("IN (…)", |n| format!("domain IN ({})", list(n, ", ", |k| k.to_string()))),
    ("IN (…) IN (…)…", |n| chain(n, "domain = 1", " IN (true, false, null)")),
    ("BETWEEN … BETWEEN …", |n| chain(n, "domain = 1", " BETWEEN false AND true")),
    ("IS NULL IS NULL…", |n| chain(n, "domain", " IS NULL")),
    ("IS NOT TRUE…", |n| chain(n, "domain = 1", " IS NOT TRUE")),
    ("a || b || …", |n| chain(n, "gloss = gloss", " || 'x'")),
    ("array_has([…])", |n| format!("array_has([{}], domain)", list(n, ", ", |k| k.to_string()))),
    ("a long text", |n| format!("gloss = '{}'", "x".repeat(n))),
];

/// Constructs that are refused whatever their size. Large ones would overflow the stack, hang, or take gigabytes.
const NOT_OFFERED: &[(&str, Construct)] = &[
    ("CASE", |n| nested(n, "CASE WHEN ", "true", " THEN true ELSE false END")),
    ("subqueries", |n| nested(n, "(SELECT ", "1", ")")),
    ("UNION", |n| chain(n, "domain = 1", " UNION SELECT 1")),
    ("INTERVAL", |n| format!("domain < {}", nested(n, "INTERVAL ", "'1'", ""))),
    ("AT TIME ZONE", |n| chain(n, "now()", " AT TIME ZONE 'UTC'")),
    ("COLLATE", |n| chain(n, "gloss", " COLLATE x")),
    ("types", |n| format!("domain::{} = 1", nested(n, "Nullable(", "int", ")"))),
    ("types in texts", |n| {
        format!("arrow_cast(domain, '{}') = 1", nested(n, "List(", "Int8", ")"))
    }),
    ("JSON", |n| format!("JSONB '{}' = domain", nested(n, "[", "", "]"))),
    ("JSON paths", |n| format!("json_exists(gloss, '$[?{}]')", nested(n, "(", "1", ")"))),
    ("~", |n| nested(n, "~ ", "domain", "")),
    ("parameters", |n| chain(n, "domain = $1", " + $1")),
];

fn outcome(found: Result<usize, Fault>) -> Outcome {
    match found {
        Ok(_) => Outcome::Answered,
        Err(fault) if fault.reason == Reason::BadFilter => Outcome::Refused(fault.message),
        Err(fault) => panic!("{:?}: {fault}", fault.reason),
    }
}

#[test]
fn row_4_every_construct_of_a_filter_grows_until_it_is_refused() {
    let attack = Attack::begin();
    let mut bounds = BTreeMap::new();
    for (name, construct) in CONSTRUCTS {
        let ask = |size| outcome(attack.search(by_filter(construct(size))));
        assert_eq!(ask(1), Outcome::Answered, "{name}");
        let (size, why) = until_refused(name, 1 << 20, ask);
        let is_for_size =
            ["is the most", "levels", "has more than"].iter().any(|it| why.contains(it));
        assert!(is_for_size, "{name} of {size}: {why}");
        bounds.insert(*name, size);
        attack.cluster.query.assert_alive();
    }
    for (name, construct) in NOT_OFFERED {
        for size in [1, 50, 1000, 20_000] {
            let found = outcome(attack.search(by_filter(construct(size))));
            assert!(matches!(found, Outcome::Refused(_)), "{name} of {size}");
        }
    }
    let (sums, nots) = (bounds["domain < 1 + 1 + …"], bounds["NOT NOT …"]);
    let (ors, count) = (bounds["a OR b OR …"], CONSTRUCTS.len());
    let peak_mib = attack.end();
    let seen = format!(
        "{count} constructs refused by size (sums from {sums} terms, NOT from {nots}, OR from {ors}), {} by kind; {peak_mib} MiB at most",
        NOT_OFFERED.len()
    );
    held(4, "deep and long filters", &seen);
}

#[test]
fn row_5_words_without_end_are_counted_before_they_are_searched() {
    let attack = Attack::begin();
    let once = attack.search(by_words("animal")).unwrap();
    assert_eq!(attack.search(by_words("animal ".repeat(400_000))).unwrap(), once);
    let search = |request: SearchRequest| match attack.search(request) {
        Ok(_) => Outcome::Answered,
        Err(fault) if fault.reason == Reason::BadArgument => Outcome::Refused(fault.message),
        Err(fault) => panic!("{:?}: {fault}", fault.reason),
    };
    let ask = |words: String| search(by_words(words));
    let (words, why) =
        until_refused("different words", 1 << 20, |n| ask(list(n, " ", |k| format!("w{k}"))));
    assert!(why.contains("different words"), "{why}");
    let (letters, _) = until_refused("a long word", 1 << 20, |n| ask("x".repeat(n)));
    for words in ["a,".repeat(1_000_000), "動物".repeat(300_000), "a\u{300} ".repeat(500_000)] {
        ask(words);
    }
    let mut bounds = Vec::new();
    for (name, query) in TEXT_QUERIES {
        let (size, why) = until_refused(name, 1 << 12, |n| {
            let text = Text { query: Some(query(n)), ..Default::default() };
            let by = Some(By::Text(text));
            search(SearchRequest { by, ..by_filter("") })
        });
        assert!(why.starts_with("`text.query"), "{name} of {size}: {why}");
        bounds.push(format!("{name} {size}"));
    }
    let (peak_mib, bounds) = (attack.end(), bounds.join(", "));
    let seen = format!(
        "400,000 repeated words cost as much as one; refused from {words} different words or {letters} bytes; of other \
         forms: {bounds}; {peak_mib} MiB at most"
    );
    held(5, "a text search of any number of words", &seen);
}

#[test]
fn row_6_costly_functions_are_refused_and_late_work_does_not_pile_up() {
    let attack = Attack::begin();
    for filter in [
        "levenshtein(gloss, gloss) < 3",
        "levenshtein(repeat(gloss, 1000), reverse(gloss)) < 3",
        "length(lpad(gloss, 5000000)) < 0",
        "length(rpad(gloss, 5000000, 'x')) < 0",
        "length(repeat(gloss, 1000000)) < 0",
        "length(replace(gloss, 'e', gloss)) < 0",
        "length(translate(gloss, 'abc', gloss)) < 0",
        "array_length(array_repeat(1, 1000000000)) < 0",
        "array_length(range(1, 1000000000)) < 0",
        "length(array_to_string(generate_series(1, 100000000), ',')) < 0",
        "regexp_like(gloss, '(a|aa)+{1000}{1000}')",
        "gloss ~ '(a|aa)+$'",
        "gloss SIMILAR TO '(a|aa)+'",
        "gloss LIKE gloss",
        "contains_tokens(gloss, gloss)",
        "length(to_char(now(), '%c%c%c')) < 0",
    ] {
        let found = outcome(attack.search(by_filter(filter)));
        assert!(matches!(found, Outcome::Refused(_)), "{filter}");
    }
    // Send the costliest allowed filters. Most of the callers don't wait for the answer.
    let costly =
        list(40, " OR ", |k| format!("lower(upper(gloss)) = '{k}' OR gloss LIKE '%a_{k}%b_%'"));
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    attack.runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..400u64 {
            let timeout = Duration::from_millis([5, 20, 200, 20_000][number as usize % 4]);
            let client = attack.client.clone().with_timeout(timeout);
            let request = match number % 2 {
                0 => by_filter(costly.clone()),
                _ => SearchRequest {
                    by: Some(By::Like("n02503517".into())),
                    nprobes: u32::MAX,
                    ..by_filter(costly.clone())
                },
            };
            tasks.spawn(async move { client.search(request).await.map(|_| ()) });
        }
        while let Some(done) = tasks.join_next().await {
            let outcome = match done.unwrap() {
                Ok(()) => "answered".to_owned(),
                Err(fault) => fault.reason.as_str().to_owned(),
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    });
    let expected = ["answered", "DEADLINE_EXCEEDED", "OVERLOADED", "CANCELLED"];
    assert!(outcomes.keys().all(|it| expected.contains(&it.as_str())), "{outcomes:?}");
    attack.cluster.query.assert_answers_probes();
    assert!(attack.search(by_filter("domain >= 0")).unwrap() > 0);
    let peak_mib = attack.end();
    let seen = format!(
        "refused by name; 400 costly searches with deadlines from 5 ms to 20 s: {outcomes:?}; {peak_mib} MiB at most"
    );
    held(6, "filters that compute for minutes or make gigabytes", &seen);
}

#[test]
fn row_14_what_a_caller_sends_is_shown_once_and_shortened() {
    let attack = Attack::begin();
    let fault = attack.search(by_filter("domian = 'a rare text'")).unwrap_err();
    assert_eq!(fault.message.matches("a rare text").count(), 1, "{fault}");
    assert!(fault.metadata.values().all(|value| !value.contains("a rare text")), "{fault:?}");
    let forged = "\n2026-01-01T00:00:00Z ERROR forged \u{1b}[31m\r\n";
    let long = "x".repeat(3_000_000);
    let text = |by| SearchRequest { by: Some(by), ..by_filter("") };
    let strange: Vec<SearchRequest> = vec![
        by_filter(format!("gloss = 3 AND {forged}")),
        by_filter(format!("`{long}` = 3")),
        by_filter(format!("`{}` = 3", &long[..200_000])),
        SearchRequest { table: format!("{forged}{long}"), ..by_filter("domain = 1") },
        SearchRequest { columns: vec![format!("{forged}{long}")], ..by_filter("domain = 1") },
        SearchRequest { columns: vec!["synset".into(); 500_000], ..by_filter("domain = 1") },
        text(By::Like(format!("{forged}{long}"))),
        text(By::Like(forged.into())),
        text(By::Vector(Vector { values: vec![1.0; 1_000_000] })),
        text(By::Text(Text { words: "animal".into(), column: long.clone(), query: None })),
        SearchRequest { vector_column: long.clone(), ..text(By::Like("n02503517".into())) },
        SearchRequest { key_column: long.clone(), ..text(By::Like("n02503517".into())) },
        SearchRequest { k: u32::MAX, ..by_filter("domain = 1") },
        SearchRequest { refine_factor: Some(u32::MAX), ..text(By::Like("n02503517".into())) },
    ];
    let count = strange.len();
    for (number, request) in strange.into_iter().enumerate() {
        let fault = attack.search(request).unwrap_err();
        assert!(fault.message.len() <= 4096, "{number}: {} bytes", fault.message.len());
        assert!(!fault.message.contains(char::is_control), "{number}: {fault}");
        assert_ne!(fault.reason, Reason::Internal, "{number}: {fault}");
        assert_ne!(fault.reason, Reason::NodeUnavailable, "{number}: {fault}");
    }
    let get = |keys: Vec<String>| GetRequest { table: "words".into(), keys, ..Default::default() };
    for keys in [vec![long; 3], vec!["n02503517".into(); 100_000]] {
        let fault = attack.runtime.block_on(attack.client.get(get(keys))).unwrap_err();
        assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    }
    let log = attack.cluster.query.log();
    assert!(!log.contains("\n2026-01-01T00:00:00Z ERROR forged"), "{log}");
    assert!(!log.contains('\u{1b}') && log.len() < 1 << 20, "{} bytes of log", log.len());
    // Search all partitions, with and without a filter. An `nprobes` above the number of partitions searches all of
    // them.
    for filter in ["", "domain >= 0"] {
        let by = Some(By::Like("n02503517".into()));
        let found = attack.search(SearchRequest { by, nprobes: u32::MAX, ..by_filter(filter) });
        assert_eq!(found.unwrap(), 3, "{filter}");
    }
    let peak_mib = attack.end();
    let seen = format!(
        "{count} strange requests: each shown once, shortened, on one line; {peak_mib} MiB at most"
    );
    held(14, "a bad filter and other input in errors and logs", &seen);
}
