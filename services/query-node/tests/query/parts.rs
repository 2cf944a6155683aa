//! Tests grants that show only some columns or rows of a table. The oracle is another table that has nothing but these
//! columns and rows: a caller under the grant must get the answers and the errors that the oracle's callers get.

mod escapes;
mod hidden_rows;
mod refused;
mod shared_lookups;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use client::query::{
    By, CountRequest, GetRequest, Gotten, GottenRows, LookupOpen, NamedExpression, QueryClient,
    SearchRequest, TakeRequest, Text, Vector, Vectors,
};
use lake::{IndexRequest, VectorIndex};
use query_node::{AccessConfig, QueryConfig, QueryNode};
use tempfile::TempDir;
use wire::Fault;
use wire::query::{OnMissing, OrderBy};

use crate::access::{policy, secret};
use crate::keys::covered;
use crate::lookups::{of_rows, text_keys};
use crate::node::{config, ids, near, serve, serve_with};
use crate::table::{
    FIRST, ROWS, TestTable, address_of, is_live, key, live, rows, tag, text, vector,
};

/// The columns that [`PART`] shows. `tag` is hidden.
const COLUMNS: [&str; 4] = ["id", "key", "text", "vector"];

/// A part of the columns, and of the rows by a hidden column.
const PART: &str = "columns = [\"id\", \"vector\", \"key\", \"text\"]\nrows = \"tag = 'tag-1'\"";

/// Returns whether [`PART`] shows the row with this id.
fn is_shown(id: i64) -> bool {
    is_live(id) && tag(id) == "tag-1"
}

fn shown() -> impl Iterator<Item = i64> + Clone {
    (0..ROWS).filter(|&id| is_shown(id))
}

/// Returns grants of which the first shows `part` of the table `t` to the key `one`, and the second all of it to `two`.
fn grants(part: &str) -> String {
    format!(
        "[[grants]]\nname = \"some\"\nwho = [\"key:one\"]\ntables = [\"t\"]\nmay = [\"read\"]\n{part}\n\
         [[grants]]\nname = \"all\"\nwho = [\"key:two\"]\ntables = [\"*\"]\n\
         may = [\"read\", \"warm\", \"observe\"]\n"
    )
}

/// A node whose grant shows a part of its table `t`, and one whose table `t` is the oracle.
struct Served {
    node: QueryNode,
    /// A caller who sees the part.
    part: QueryClient,
    /// A caller who sees the whole table.
    whole: QueryClient,
    /// A caller of the oracle.
    oracle: QueryClient,
    oracle_node: QueryNode,
    folder: TempDir,
    tables: [TestTable; 2],
}

impl Served {
    /// Serves [`PART`].
    async fn new(is_indexed: bool) -> Self {
        let oracle = TestTable::of(with_columns(&rows(shown()), &COLUMNS)).await;
        Self::serving(PART, TestTable::plain().await, oracle, is_indexed).await
    }

    async fn serving(part: &str, table: TestTable, oracle: TestTable, is_indexed: bool) -> Self {
        for table in [&table, &oracle].into_iter().filter(|_| is_indexed) {
            let column = "vector".into();
            let vector = VectorIndex { column, partitions: Some(16), ..Default::default() };
            table.index(IndexRequest::Vector(vector)).await;
            table.index(IndexRequest::Text { column: "text".into(), positions: true }).await;
            table.index(IndexRequest::Key { column: "key".into(), replace: false }).await;
        }
        let (folder, config) = guarded(&table, part);
        let (node, anonymous) = serve_with(config).await;
        node.ready().await;
        let (oracle_node, oracle_client) = serve(&[("t", &oracle)]).await;
        oracle_node.ready().await;
        let with_key = |name: &str| anonymous.clone().with_token(&secret(name)).unwrap();
        let (part, whole) = (with_key("one"), with_key("two"));
        let tables = [table, oracle];
        Self { node, part, whole, oracle: oracle_client, oracle_node, folder, tables }
    }

    fn policy_file(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    /// Replaces the part that the policy shows.
    async fn show(&self, part: &str) {
        std::fs::write(self.policy_file(), policy(&grants(part))).unwrap();
        self.node.reload_policy().await;
    }
}

/// Returns the configuration of a node that serves `table` under a policy.
fn guarded(table: &TestTable, part: &str) -> (TempDir, QueryConfig) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    std::fs::write(&file, policy(&grants(part))).unwrap();
    let mut config = config(&[("t", table)]);
    config.access = Some(AccessConfig::Policy(file));
    (folder, config)
}

fn with_columns(rows: &RecordBatch, columns: &[&str]) -> RecordBatch {
    let at: Vec<usize> = columns.iter().map(|name| rows.schema().index_of(name).unwrap()).collect();
    rows.project(&at).unwrap()
}

/// Returns rows without their addresses, in which the two tables differ, and without scores.
fn without_added(rows: &RecordBatch) -> RecordBatch {
    let own = |name: &&str| !["_rowaddr", "_rowid", "_score"].contains(name);
    let schema = rows.schema();
    let names: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
    with_columns(rows, &names.into_iter().filter(own).collect::<Vec<_>>())
}

/// Asserts that two callers get the same answer, or the same error.
fn assert_same<T: PartialEq + Debug>(
    part: Result<T, Fault>,
    oracle: Result<T, Fault>,
    context: &str,
) {
    match (part, oracle) {
        (Ok(part), Ok(oracle)) => assert_eq!(part, oracle, "{context}"),
        (Err(mut part), Err(mut oracle)) => {
            for fault in [&mut part, &mut oracle] {
                // The tables differ in their versions.
                fault.metadata.remove("version");
                let words = fault.message.split(' ').scan("", |before, word| {
                    let is_version = std::mem::replace(before, word) == "version";
                    Some(if is_version { "V" } else { word })
                });
                fault.message = words.collect::<Vec<_>>().join(" ");
            }
            assert_eq!(part, oracle, "{context}");
        }
        (part, oracle) => panic!("{context}: {part:?}, but of the oracle {oracle:?}"),
    }
}

/// Searches of every form, with a name for each.
fn searches() -> Vec<(&'static str, SearchRequest)> {
    let base = SearchRequest {
        columns: ["id", "key", "text"].map(str::to_owned).to_vec(),
        // All partitions and candidates, so that the index misses no row.
        ..near(vector(31), 12)
    };
    let wide = |request: SearchRequest| SearchRequest {
        nprobes: 16,
        refine_factor: Some(1000),
        ..request
    };
    let of_key = |id: i64| SearchRequest { by: Some(By::Like(key(id))), ..wide(base.clone()) };
    let by_filter = SearchRequest { by: None, filter: "id < 700".into(), ..base.clone() };
    let ordered = |column: &str, descending| {
        vec![OrderBy { column: column.into(), descending, nulls_first: false }]
    };
    let text = |words: &str| Text { words: words.into(), ..Default::default() };
    let several = |like: &[i64]| {
        let vectors = like.iter().map(|&id| Vector { values: vector(id) }).collect();
        Some(By::Vectors(Vectors { vectors }))
    };
    let expression = |name: &str, sql: &str| NamedExpression { name: name.into(), sql: sql.into() };
    // The last one has no value for the hidden row 80.
    let computed = |request: SearchRequest| SearchRequest {
        expressions: vec![
            expression("twice", "id * 2"),
            expression("length", "length(text)"),
            expression("part", "1000 / (id - 80)"),
        ],
        ..request
    };
    // Hidden rows would be among the nearest: the vectors of 80 and 131 are in the cluster of 31.
    vec![
        ("vector", wide(base.clone())),
        ("exact", SearchRequest { exact: true, ..base.clone() }),
        ("metric", SearchRequest { metric: "cosine".into(), ..base.clone() }),
        ("offset", SearchRequest { offset: 7, ..wide(base.clone()) }),
        ("all", SearchRequest { k: 9_000, exact: true, ..base.clone() }),
        ("default columns", SearchRequest { columns: Vec::new(), ..wide(base.clone()) }),
        ("no columns", SearchRequest { columns: vec!["_rowaddr".into()], ..wide(base.clone()) }),
        (
            "columns in order",
            SearchRequest { columns: vec!["vector".into(), "id".into()], ..wide(base.clone()) },
        ),
        ("filter", SearchRequest { filter: "id < 900".into(), ..wide(base.clone()) }),
        (
            "filter of few rows",
            SearchRequest { filter: "id IN (1, 4, 5, 6, 10)".into(), ..wide(base.clone()) },
        ),
        (
            "filter after",
            SearchRequest { filter: "id < 900".into(), filter_after: true, ..wide(base.clone()) },
        ),
        (
            "bounds",
            SearchRequest { lower_bound: Some(5.0), upper_bound: Some(60.0), ..wide(base.clone()) },
        ),
        ("order", SearchRequest { order_by: ordered("id", true), ..wide(base.clone()) }),
        ("like a shown row", of_key(31)),
        ("like a hidden row", of_key(80)),
        ("like a deleted row", of_key(37)),
        ("like no row", of_key(ROWS + 1)),
        ("filter alone", by_filter.clone()),
        (
            "filter alone, all",
            SearchRequest { k: 9_000, filter: "id >= 0".into(), ..by_filter.clone() },
        ),
        (
            "filter alone, ordered",
            SearchRequest { order_by: ordered("id", true), ..by_filter.clone() },
        ),
        (
            "filter alone, text",
            SearchRequest { filter: format!("key = '{}'", key(80)), ..by_filter.clone() },
        ),
        ("words, all", SearchRequest { by: Some(By::Text(text("oak"))), k: 9_000, ..base.clone() }),
        ("no words", SearchRequest { by: Some(By::Text(text("zebra"))), ..base.clone() }),
        (
            "words and filter",
            SearchRequest {
                by: Some(By::Text(text("oak"))),
                filter: "id < 900".into(),
                k: 9_000,
                ..base.clone()
            },
        ),
        (
            "several vectors",
            SearchRequest {
                by: several(&[31, 80, 1, 37, 31, 500]),
                order_by: ordered("id", false),
                filter: "id < 2500".into(),
                ..wide(base.clone())
            },
        ),
        (
            "several vectors, exact",
            SearchRequest { by: several(&[31, 80]), exact: true, ..computed(base.clone()) },
        ),
        (
            "several vectors and a hidden column",
            SearchRequest { by: several(&[31, 80]), columns: vec!["tag".into()], ..base.clone() },
        ),
        ("expressions", computed(wide(base.clone()))),
        ("expressions and a filter", computed(by_filter.clone())),
        (
            "expressions of words",
            SearchRequest { by: Some(By::Text(text("oak"))), k: 9_000, ..computed(base.clone()) },
        ),
        (
            "an expression of a hidden column",
            SearchRequest { expressions: vec![expression("x", "upper(tag)")], ..base.clone() },
        ),
        (
            "a hidden column with another name",
            SearchRequest { expressions: vec![expression("x", "tag")], ..by_filter },
        ),
        (
            "hybrid",
            SearchRequest {
                fused_with: Some(text("oak")),
                k: 9_000,
                ..SearchRequest { exact: true, ..base }
            },
        ),
    ]
}

/// Returns the rows of a search in an order that does not depend on scores: they differ from those of the oracle, because
/// the index counts the words of hidden rows too.
async fn found(
    client: &QueryClient,
    request: &SearchRequest,
) -> Result<(RecordBatch, bool), Fault> {
    let found = client.search(request.clone()).await?;
    let is_scored = matches!(request.by, Some(By::Text(_))) || request.fused_with.is_some();
    let rows = if is_scored { by_id(&found.rows) } else { found.rows };
    Ok((without_added(&rows), found.exhaustive))
}

fn by_id(rows: &RecordBatch) -> RecordBatch {
    let sorted = arrow_ord::sort::sort_to_indices(&rows["id"], None, None).unwrap();
    let rows = arrow_select::take::take_record_batch(rows, &sorted).unwrap();
    let names: Vec<String> =
        rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let own: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| *name != "_relevance_score").collect();
    with_columns(&rows, &own)
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_find_the_rows_of_the_part() {
    for is_indexed in [false, true] {
        let served = Served::new(is_indexed).await;
        // Twice: the second time, the rows that pass the filters are known.
        for round in 0..2 {
            for (name, request) in searches() {
                let context = format!("{name}, indexed: {is_indexed}, round {round}");
                let part = found(&served.part, &request).await;
                assert_same(part, found(&served.oracle, &request).await, &context);
            }
        }
        // A caller who sees the whole table has its own lists of rows, whatever the part's callers have asked.
        let all = SearchRequest { k: 9_000, ..by_filter("id >= 0") };
        assert_eq!(ids(&served.whole.search(all).await.unwrap().rows).len(), live().count());
    }
}

fn by_filter(filter: &str) -> SearchRequest {
    let columns = vec!["id".into()];
    SearchRequest {
        by: None,
        columns,
        filter: filter.into(),
        k: 10,
        table: "t".into(),
        ..Default::default()
    }
}

fn get_of(column: &str, keys: Vec<String>) -> GetRequest {
    GetRequest { table: "t".into(), keys, key_column: column.into(), ..Default::default() }
}

fn rows_of(gotten: Gotten) -> (RecordBatch, Vec<u32>) {
    let GottenRows::Arrow(rows) = gotten.rows else { panic!("{:?}", gotten.rows) };
    (without_added(&rows), gotten.not_found)
}

async fn lookup_of(client: &QueryClient, open: LookupOpen) -> client::query::Lookup {
    client.lookups().await.unwrap().open(open).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_find_the_rows_of_the_part() {
    for (is_indexed, is_covered) in [(false, false), (true, false), (true, true)] {
        let served = Served::new(is_indexed).await;
        if is_covered {
            let keys = (0..3).map(key).collect();
            served.whole.get(get_of("", keys)).await.unwrap();
            covered(&served.whole).await;
        }
        let keys: Vec<String> = (0..ROWS + 20).step_by(7).map(key).collect();
        // Rows of a text are in the part and outside of it; the first one is hidden.
        let texts: Vec<String> = (0..5).map(text).chain(["no text".into()]).collect();
        for (column, keys) in [("key", keys), ("text", texts)] {
            let context = format!("{column}, indexed: {is_indexed}, covered: {is_covered}");
            let request = get_of(column, keys.clone());
            let part = served.part.get(request.clone()).await.map(rows_of);
            let oracle = served.oracle.get(request).await.map(rows_of);
            assert!(oracle.as_ref().is_ok_and(|(rows, _)| rows.num_rows() > 4), "{context}");
            assert_same(part, oracle, &context);
            let all = GetRequest { all_rows: true, ..get_of(column, keys.clone()) };
            let gotten = async |client: &QueryClient| {
                let gotten = client.get(all.clone()).await?;
                Ok((gotten.row_keys.clone(), rows_of(gotten)))
            };
            let context = format!("{context}, all");
            assert_same(gotten(&served.part).await, gotten(&served.oracle).await, &context);
            for (only_presence, all_rows) in [(false, false), (true, false), (false, true)] {
                let columns = if only_presence { vec![] } else { vec!["id".into(), "key".into()] };
                let open = LookupOpen {
                    table: "t".into(),
                    columns,
                    key_column: column.into(),
                    only_presence,
                    all_rows,
                    ..Default::default()
                };
                let answer = async |client: &QueryClient| {
                    let found = lookup_of(client, open.clone()).await.get(text_keys(&keys)).await?;
                    let rows = found.rows.map(|rows| match rows {
                        GottenRows::Arrow(rows) => without_added(&rows),
                        GottenRows::Json(rows) => panic!("{rows}"),
                    });
                    Ok((rows, found.row_keys, found.not_found))
                };
                let context = format!("{context}, presence: {only_presence}, all: {all_rows}");
                assert_same(answer(&served.part).await, answer(&served.oracle).await, &context);
            }
        }
    }
}

/// The key index has the keys of all rows. A hidden row is like one with another key: the next candidate is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_finds_its_first_shown_row_through_the_key_index() {
    let table = TestTable::plain().await;
    let rule = "rows = \"tag = 'tag-1' AND text != 'oak trees by the river'\"";
    let (_folder, mut config) = guarded(&table, rule);
    config.tables.get_mut("t").unwrap().key = Some("text".into());
    let (node, anonymous) = serve_with(config).await;
    node.ready().await;
    let with_key = |name: &str| anonymous.clone().with_token(&secret(name)).unwrap();
    let (part, whole) = (with_key("one"), with_key("two"));
    let keys: Vec<String> = (0..5).map(text).chain(["no text".into()]).collect();
    let gotten = rows_of(whole.get(get_of("", keys.clone())).await.unwrap());
    assert_eq!((ids(&gotten.0), gotten.1), (vec![0, 1, 2, 3, 4], vec![5]));
    let of_key = |at: i64| (0..ROWS).filter(move |&id| is_shown(id) && id % 5 == at && at != 0);
    let first: Vec<i64> = (0..5).filter_map(|at| of_key(at).next()).collect();
    for is_covered in [false, true] {
        if is_covered {
            covered(&whole).await;
        }
        let gotten = rows_of(part.get(get_of("", keys.clone())).await.unwrap());
        assert_eq!((ids(&gotten.0), gotten.1), (first.clone(), vec![0, 5]), "{is_covered}");
        let open = LookupOpen { table: "t".into(), only_presence: true, ..Default::default() };
        let present = lookup_of(&part, open).await.get(text_keys(&keys)).await.unwrap();
        assert_eq!((present.not_found, present.unproven), (vec![0, 5], vec![]), "{is_covered}");
        let columns = vec!["id".into()];
        let open = LookupOpen { table: "t".into(), all_rows: true, columns, ..Default::default() };
        let all = lookup_of(&part, open).await.get(text_keys(&keys)).await.unwrap();
        let wanted: Vec<i64> = (0..5).flat_map(of_key).collect();
        assert_eq!(ids(&of_rows(all.rows)), wanted, "{is_covered}");
        assert_eq!(all.not_found, [0, 5], "{is_covered}");
        let all = GetRequest { all_rows: true, ..get_of("", keys.clone()) };
        let all = rows_of(part.get(all).await.unwrap());
        assert_eq!((ids(&all.0), all.1), (wanted, vec![0, 5]), "{is_covered}");
    }
}

fn take(addrs: Vec<u64>, on_missing: OnMissing) -> TakeRequest {
    TakeRequest {
        table: "t".into(),
        row_addrs: addrs,
        on_missing: on_missing.into(),
        columns: vec!["id".into(), "_rowaddr".into()],
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_treats_hidden_rows_like_those_that_do_not_exist() {
    let served = Served::new(false).await;
    let every: Vec<u64> = (0..ROWS).map(|id| address_of(id).to_u64()).collect();
    let absent = [address_of(FIRST - 1).to_u64() + 1, u64::MAX];
    let asked: Vec<u64> = every.iter().copied().chain(absent).collect();
    let taken = served.part.take(take(asked.clone(), OnMissing::Skip)).await.unwrap();
    let taken = taken.collect().await.unwrap();
    let found: Vec<i64> = taken.batches.iter().flat_map(ids).collect();
    assert_eq!(found, shown().collect::<Vec<_>>());
    let missing =
        (0..asked.len() as u32).filter(|&at| !is_shown(i64::from(at)) || at >= ROWS as u32);
    assert_eq!(taken.missing, missing.collect::<Vec<_>>());
    // Without a column, too.
    let request = TakeRequest { columns: vec!["_rowaddr".into()], ..take(asked, OnMissing::Skip) };
    let taken = served.part.take(request).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), shown().count());
    // Positions would tell how many rows are hidden.
    let by_offsets = TakeRequest { row_offsets: vec![0], ..take(Vec::new(), OnMissing::Skip) };
    let fault = served.part.take(by_offsets).await.err().unwrap();
    assert!(fault.message.contains("positions of rows are not available"), "{fault}");
    // The error names hidden, deleted and absent addresses alike.
    let hidden = address_of(0).to_u64();
    let deleted = address_of(7).to_u64();
    let some = vec![address_of(1).to_u64(), hidden, deleted, absent[0]];
    let fault = served.part.take(take(some, OnMissing::Error)).await.err().unwrap();
    let text = |addr: u64| format!("{:?}", address::RowAddr::from_u64(addr));
    for addr in [hidden, deleted, absent[0]] {
        assert!(fault.message.contains(&text(addr)), "{} is not in {fault}", text(addr));
    }
    assert!(!fault.message.contains(&text(address_of(1).to_u64())), "{fault}");
    let shown: Vec<u64> = shown().map(|id| address_of(id).to_u64()).collect();
    served.part.take(take(shown, OnMissing::Error)).await.unwrap().collect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_and_descriptions_are_of_the_part() {
    for is_indexed in [false, true] {
        let served = Served::new(is_indexed).await;
        for filter in ["", "id < 900", "id < 0", "text = 'oak trees by the river'", "key IS NULL"] {
            let filter = filter.to_owned();
            let count = CountRequest { table: "t".into(), filter, ..Default::default() };
            let part = served.part.count(count.clone()).await.map(|it| it.rows);
            assert_same(part, served.oracle.count(count).await.map(|it| it.rows), "count");
        }
        let part = served.part.describe("t", 0).await.unwrap();
        let oracle = served.oracle.describe("t", 0).await.unwrap();
        assert_eq!(part.schema, oracle.schema);
        assert_eq!(part.response.rows, shown().count() as u64);
        assert_eq!(part.response.columns, oracle.response.columns);
        assert_eq!(part.response.key_column, oracle.response.key_column);
        let names = |description: &client::query::TableDescription| {
            let indexes = description.response.indexes.iter();
            indexes.map(|it| (it.name.clone(), it.unindexed_rows)).collect::<Vec<_>>()
        };
        assert_eq!(names(&part), names(&oracle));
        // Numbers that count hidden rows are left out.
        let response = &part.response;
        assert_eq!((response.fragments, response.fragment_sizes.len()), (0, 0));
        assert!(response.key_index.is_none());
        let listed = served.part.tables().await.unwrap();
        assert_eq!((listed.len(), listed[0].rows), (1, 0));
        assert_eq!(served.whole.tables().await.unwrap()[0].rows, live().count() as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_may_show_all_rows_of_some_columns_or_some_rows_of_all_columns() {
    let all_rows = TestTable::plain().await;
    let all = (0..ROWS).filter(|&id| is_live(id));
    let id_only = TestTable::of(with_columns(&rows(all), &["id", "text"])).await;
    let columns =
        Served::serving("columns = [\"text\", \"id\", \"nothing\"]", all_rows, id_only, false);
    let columns = columns.await;
    let described = columns.part.describe("t", 0).await.unwrap().response;
    assert_eq!((described.fragments, described.rows), (2, live().count() as u64));
    assert_eq!(columns.part.tables().await.unwrap()[0].rows, live().count() as u64);
    // Filters of any form are allowed if no rows are hidden.
    for filter in ["id < 900", "id % 2 = 0 AND text LIKE 'oak%'", "tag = 'tag-1'"] {
        let request = SearchRequest { k: 9_000, ..by_filter(filter) };
        let part = found(&columns.part, &request).await;
        assert_same(part, found(&columns.oracle, &request).await, filter);
    }
    let changed = by_filter("_row_last_updated_at_version > 0");
    columns.whole.search(changed.clone()).await.unwrap();
    let fault = columns.part.search(changed).await.unwrap_err();
    assert!(fault.message.contains("column"), "hidden columns may have changed: {fault}");
    let request = near(vector(1), 1);
    assert_same(
        found(&columns.part, &request).await,
        found(&columns.oracle, &request).await,
        "vector",
    );

    let some_rows = TestTable::of(rows(shown())).await;
    let part = "rows = \"tag IN ('tag-1') AND id IS NOT NULL\"";
    let some = Served::serving(part, TestTable::plain().await, some_rows, false).await;
    for (name, request) in searches() {
        let part = found(&some.part, &request).await;
        assert_same(part, found(&some.oracle, &request).await, name);
    }
    let request = by_filter("tag = 'tag-0'");
    assert!(ids(&some.part.search(request).await.unwrap().rows).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_whose_condition_is_null_are_hidden() {
    let table = TestTable::nowhere();
    let nullable = |ids: std::ops::Range<i64>| {
        let numbers: Int64Array = ids.clone().map(|id| (id % 3 != 0).then_some(id % 5)).collect();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        let numbers: ArrayRef = Arc::new(numbers);
        RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("n", numbers, true)])
            .unwrap()
    };
    crate::table::write(&table.uri, nullable(0..100)).await;
    for (rule, is_shown) in [
        ("n > 2", (|id: i64| id % 3 != 0 && id % 5 > 2) as fn(i64) -> bool),
        ("NOT n > 2", |id| id % 3 != 0 && id % 5 <= 2),
        ("n IS NULL", |id| id % 3 == 0),
        ("n IN (1, 4) OR id < 10", |id| id < 10 || (id % 3 != 0 && [1, 4].contains(&(id % 5)))),
    ] {
        let (_folder, config) = guarded(&table, &format!("rows = \"{rule}\""));
        let (_node, client) = serve_with(config).await;
        let client = client.with_token(&secret("one")).unwrap();
        let wanted: Vec<i64> = (0..100).filter(|&id| is_shown(id)).collect();
        let found = client.search(SearchRequest { k: 999, ..by_filter("id >= 0") }).await.unwrap();
        assert_eq!(ids(&found.rows), wanted, "{rule}");
        let taken = take((0..100).collect(), OnMissing::Skip);
        let taken = client.take(taken).await.unwrap().collect().await.unwrap();
        assert_eq!(taken.batches.iter().flat_map(ids).collect::<Vec<_>>(), wanted, "{rule}");
        let count = CountRequest { table: "t".into(), ..Default::default() };
        assert_eq!(client.count(count).await.unwrap().rows, wanted.len() as u64, "{rule}");
    }
}

#[test]
fn the_part_hides_some_rows_and_shows_some() {
    assert!(shown().count() > 500 && live().count() > 2 * shown().count());
    assert!(is_shown(31) && !is_shown(80) && is_live(80) && !is_shown(0) && text(0) == text(10));
}
