//! Look-ups of all rows of each key, compared with a scan by Lance. `keys.rs` compares random histories of tables.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use bytesize::ByteSize;
use client::query::{
    Append, GetRequest, GottenRows, Keys, Lookup, LookupOpen, QueryClient, append_columns, keys_of,
};
use futures::stream::{self, TryStreamExt};
use lake::IndexRequest;
use lance::Dataset;
use query_node::{QueryConfig, QueryNode};
use wire::query::RowFormat;
use wire::{Fault, Reason};

use crate::keys::{covered, get, with_metrics};
use crate::lookups::{of_rows, text_keys};
use crate::node::{addresses, config, ids, names, serve_with};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, key};

/// The rows of each key: their addresses and ids.
type RowsOfKeys<K> = HashMap<K, BTreeSet<(u64, i64)>>;

/// Opens a Lookup stream for all rows of keys.
pub async fn all_rows(client: &QueryClient, key_column: &str) -> Lookup {
    let columns = ["id", "_rowaddr"].map(str::to_owned).to_vec();
    let key_column = key_column.to_owned();
    let table = "t".to_owned();
    let open = LookupOpen { table, columns, key_column, all_rows: true, ..Default::default() };
    client.lookups().await.unwrap().open(open).await.unwrap()
}

/// Asserts that a look-up of `keys`, encoded as `encoded`, returns all rows of each.
pub async fn check_all_rows<K: Eq + Hash>(
    lookup: &Lookup,
    encoded: Keys,
    keys: &[K],
    of_keys: &RowsOfKeys<K>,
    context: &str,
) {
    let answer = lookup.get(encoded).await.unwrap();
    let rows = of_rows(answer.rows);
    let got = answer.row_keys.into_iter().zip(addresses(&rows).into_iter().zip(ids(&rows)));
    let rows_of = |(at, key)| of_keys.get(key).into_iter().flatten().map(move |&row| (at, row));
    let expected: Vec<_> = (0..).zip(keys).flat_map(rows_of).collect();
    assert_eq!(got.collect::<Vec<_>>(), expected, "{context}");
    let absent = (0..).zip(keys).filter(|(_, key)| !of_keys.contains_key(key));
    assert_eq!(answer.not_found, absent.map(|(at, _)| at).collect::<Vec<u32>>(), "{context}");
}

/// Returns the rows of each key of the columns `key` and `id`, by Lance's own scan.
async fn by_hand(table: &TestTable) -> (RowsOfKeys<String>, RowsOfKeys<i64>) {
    let dataset = Dataset::open(&table.uri).await.unwrap();
    let mut scanner = dataset.scan();
    scanner.project(&["key", "id"]).unwrap().with_row_address();
    let rows = scanner.try_into_batch().await.unwrap();
    let addrs = rows["_rowaddr"].as_primitive::<UInt64Type>().values();
    let (mut of_keys, mut of_ids) = (RowsOfKeys::new(), RowsOfKeys::new());
    let keys = rows["key"].as_string::<i32>().iter();
    for ((key, id), &addr) in keys.zip(rows["id"].as_primitive::<Int64Type>().values()).zip(addrs) {
        of_ids.entry(*id).or_default().insert((addr, *id));
        if let Some(key) = key {
            of_keys.entry(key.to_owned()).or_default().insert((addr, *id));
        }
    }
    (of_keys, of_ids)
}

/// Asserts that all rows of keys are found, by the table's own key and by another column. Some keys are in no row, and
/// some are listed twice.
async fn check(client: &QueryClient, table: &TestTable, context: &str) {
    let (of_keys, of_ids) = by_hand(table).await;
    let numbers: Vec<i64> = (0..ROWS + 50).chain([5, 2_005, 5]).collect();
    let texts: Vec<String> = numbers.iter().map(|&id| key(id)).collect();
    let by_key = all_rows(client, "key").await;
    check_all_rows(&by_key, text_keys(&texts), &texts, &of_keys, context).await;
    let by_id = all_rows(client, "id").await;
    let integers: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
    check_all_rows(&by_id, keys_of(&integers).unwrap(), &numbers, &of_ids, context).await;
    check_get(client, &texts, &of_keys, context).await;
}

/// Asserts that a Get of all rows of `keys` returns them.
async fn check_get(
    client: &QueryClient,
    keys: &[String],
    of_keys: &RowsOfKeys<String>,
    context: &str,
) {
    let columns = vec!["id".to_owned()];
    let request = GetRequest { table: "t".into(), keys: keys.to_vec(), columns, ..every_row() };
    let answer = client.get(request).await.unwrap();
    let GottenRows::Arrow(rows) = answer.rows else { panic!("{context}: not Arrow") };
    let got = answer.row_keys.into_iter().zip(addresses(&rows).into_iter().zip(ids(&rows)));
    let rows_of = |(at, key)| of_keys.get(key).into_iter().flatten().map(move |&row| (at, row));
    let expected: Vec<_> = (0..).zip(keys).flat_map(rows_of).collect();
    assert_eq!(got.collect::<Vec<_>>(), expected, "{context}");
    let absent = (0..).zip(keys).filter(|(_, key)| !of_keys.contains_key(*key));
    assert_eq!(answer.not_found, absent.map(|(at, _)| at).collect::<Vec<u32>>(), "{context}");
}

fn every_row() -> GetRequest {
    GetRequest { all_rows: true, ..Default::default() }
}

async fn serve(table: &TestTable, key_index: ByteSize) -> (QueryNode, QueryClient) {
    let mut config: QueryConfig = with_metrics(config(&[("t", table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    config.key_index = key_index;
    serve_with(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rows_are_found_with_and_without_the_key_index() {
    for is_indexed in [true, false] {
        let table = TestTable::plain().await;
        if is_indexed {
            table.index(IndexRequest::Scalar { column: "key".into() }).await;
            table.index(IndexRequest::Scalar { column: "id".into() }).await;
        }
        // Each of these rows has its key once more, or twice more.
        table.append(0..500).await;
        table.append(300..900).await;
        let (node, client) = serve(&table, ByteSize::mib(64)).await;
        check(&client, &table, "without a run").await;
        covered(&client).await;
        let in_table = metric(&node, "bireme_query_keys_total{via=\"table\"}").await;
        check(&client, &table, "with all runs").await;
        let by_id = (ROWS + 53) as f64;
        let after = metric(&node, "bireme_query_keys_total{via=\"table\"}").await;
        assert_eq!(after, in_table + by_id, "the table's own key needs only the key index");
        table.append(800..1_000).await;
        table.delete("id % 7 = 3").await;
        node.refresh().await;
        check(&client, &table, "with all runs, after an append and a delete").await;
        drop(node);
        let (_node, client) = serve(&table, ByteSize::b(0)).await;
        check(&client, &table, "without a key index").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_no_run_covers_are_found_too() {
    for is_indexed in [true, false] {
        let table = TestTable::plain().await;
        if is_indexed {
            table.index(IndexRequest::Scalar { column: "key".into() }).await;
        }
        // The run of the first files takes 36 KiB, and building it 82 KiB more, as that of the next ones would.
        let (node, client) = serve(&table, ByteSize::kib(120)).await;
        get(&client, &[key(0)]).await;
        covered(&client).await;
        table.append(0..ROWS).await;
        node.refresh().await;
        let index = client.describe("t", 0).await.unwrap().response.key_index.unwrap();
        assert_eq!((index.runs, index.missing_rows), (1, ROWS as u64), "{index:?}");
        check(&client, &table, "with a run of the first files").await;
    }
}

/// A table in which `counts[n]` rows have the key `mn`.
async fn with_counts(counts: &[usize]) -> TestTable {
    let keys = counts.iter().enumerate().flat_map(|(n, &count)| vec![format!("m{n}"); count]);
    let keys: StringArray = keys.map(Some).collect();
    let ids = Int64Array::from_iter_values(0..keys.len() as i64);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("key", Arc::new(keys))];
    TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await
}

#[track_caller]
fn assert_too_large(fault: &Fault, says: &str) {
    assert_eq!(fault.reason, Reason::TooLarge, "{fault}");
    assert!(fault.message.contains(says), "`{fault}` doesn't say `{says}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_rows_are_refused_with_the_key() {
    let table = with_counts(&[10_001, 10_000, 10_000, 10_000, 10_000, 10_000, 9_999, 9_998]).await;
    for key_index in [ByteSize::mib(64), ByteSize::b(0)] {
        let (_node, client) = serve(&table, key_index).await;
        get(&client, &["m1".to_owned()]).await;
        if key_index.as_u64() > 0 {
            covered(&client).await;
        }
        let lookup = all_rows(&client, "key").await;
        let keys = |of: &[i32]| text_keys(&of.iter().map(|n| format!("m{n}")).collect::<Vec<_>>());
        let rows_of = async |of: &[i32]| lookup.get(keys(of)).await.map(|it| it.row_keys.len());
        // Batches that share a look-up share no error.
        let (over, most, all, other) = tokio::join!(
            rows_of(&[7, 0]),
            rows_of(&[1]),
            rows_of(&[1, 2, 3, 4, 5, 6, 7]),
            rows_of(&[6, 7])
        );
        let says = "key `m0` in column `key` has more than 10000 rows; read them by a filter";
        assert_too_large(&over.unwrap_err(), says);
        assert_eq!(most.unwrap(), 10_000);
        let says = "the keys of a batch have more than 65536 rows, most of them key `m";
        assert_too_large(&all.unwrap_err(), says);
        assert_eq!(other.unwrap(), 19_997);
        assert_eq!(rows_of(&[1, 2, 3, 4, 5, 6]).await.unwrap(), 59_999);
        let get = async |of: &[i32]| {
            let keys = of.iter().map(|n| format!("m{n}")).collect();
            let request = GetRequest { table: "t".into(), keys, ..every_row() };
            client.get(request).await.map(|it| it.row_keys.len())
        };
        let says = "key `m0` in column `key` has more than 10000 rows; read them by a filter";
        assert_too_large(&get(&[0]).await.unwrap_err(), says);
        assert_eq!(get(&[1]).await.unwrap(), 10_000);
        // The look-up ends as soon as there are too many rows: these keys have 100 million.
        let says = "the keys of a batch have more than 65536 rows, most of them key `m1`";
        assert_too_large(&rows_of(&[1; 10_000]).await.unwrap_err(), says);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_has_a_row_for_each_match() {
    let counts = [0, 1, 3, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 17];
    let table = with_counts(&counts).await;
    let (_node, client) = serve(&table, ByteSize::mib(64)).await;
    let lookup = all_rows(&client, "key").await;
    // Together the matches are more than a look-up returns.
    let asked: Vec<Option<usize>> =
        (0..20).map(|at| (at % 6 != 5).then_some(at * 3 % 13)).collect();
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter(asked.iter().map(|it| it.map(|n| format!("m{n}")))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..asked.len() as i64));
    let columns = [("number", numbers, false), ("who", texts, true)];
    let input = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let appends: Arc<[Append]> =
        [Append { lookup: lookup.clone(), on: "who".into(), counts: Arc::default() }].into();
    let joined: Vec<RecordBatch> =
        append_columns(stream::iter([Ok(input.clone())]), appends).try_collect().await.unwrap();
    assert!(joined.iter().all(|batch| batch.num_rows() <= 1024));
    assert_eq!(names(&joined[0]), ["number", "who", "id", "_rowaddr"]);
    let got = joined.iter().flat_map(|batch| {
        let numbers = batch["number"].as_primitive::<Int64Type>().values().iter().copied();
        let ids = batch["id"].as_primitive::<Int64Type>().iter();
        numbers.zip(ids).collect::<Vec<_>>()
    });
    let expected = (0..).zip(&asked).flat_map(|(number, key)| {
        let (start, count) = match key {
            Some(key) if *key < counts.len() => (counts[..*key].iter().sum(), counts[*key]),
            _ => (0, 0),
        };
        let ids: Vec<Option<i64>> = match count {
            0 => vec![None],
            count => (start..start + count).map(|id| Some(id as i64)).collect(),
        };
        ids.into_iter().map(move |id| (number, id))
    });
    assert_eq!(got.collect::<Vec<_>>(), expected.collect::<Vec<_>>());

    let both = || Append { lookup: lookup.clone(), on: "who".into(), counts: Arc::default() };
    let appends: Arc<[Append]> = [both(), both()].into();
    let refused: Result<Vec<_>, Fault> =
        append_columns(stream::iter([Ok(input)]), appends).try_collect().await;
    let fault = refused.unwrap_err();
    assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    assert!(fault.message.contains("from one table at a time"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn null_is_no_key_and_rows_may_be_json() {
    let table = with_counts(&[2, 1]).await;
    let (_node, client) = serve(&table, ByteSize::mib(64)).await;
    let json = LookupOpen {
        table: "t".into(),
        columns: vec!["id".into()],
        all_rows: true,
        format: RowFormat::Json.into(),
        ..Default::default()
    };
    let streams = client.lookups().await.unwrap();
    let lookup = streams.open(json.clone()).await.unwrap();
    let keys: ArrayRef = Arc::new(StringArray::from(vec![None, Some("m1"), Some("x"), Some("m0")]));
    let batch = RecordBatch::try_from_iter_with_nullable([("k", keys, true)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let answer = lookup.get(Keys::Arrow(writer.into_inner().unwrap().into())).await.unwrap();
    assert_eq!((answer.row_keys, answer.not_found), (vec![1, 3, 3], vec![0, 2]));
    let Some(GottenRows::Json(lines)) = answer.rows else { panic!() };
    let expected = "{\"id\":2}\n{\"id\":0}\n{\"id\":1}\n";
    assert_eq!(lines, expected);
    let request = GetRequest {
        table: "t".into(),
        keys: ["m1", "x", "m0"].map(str::to_owned).to_vec(),
        columns: vec!["id".into()],
        format: RowFormat::Json.into(),
        ..every_row()
    };
    // On a stream, each answer is compared with its own request.
    let some = GetRequest { keys: vec!["m1".into()], all_rows: false, ..request.clone() };
    let none = GetRequest { keys: vec!["x".into(); 2], ..request.clone() };
    let requests = futures::stream::iter([request.clone(), some, none, request.clone()]);
    let answers = client.get_stream(requests, RowFormat::Json).await.unwrap();
    let answers: Vec<_> = answers.try_collect().await.unwrap();
    let answers = answers.into_iter().map(|it| (it.row_keys, it.not_found)).collect::<Vec<_>>();
    let all = || (vec![0, 2, 2], vec![1]);
    assert_eq!(answers, [all(), (vec![], vec![]), (vec![], vec![0, 1]), all()]);
    let answer = client.get(request).await.unwrap();
    assert_eq!((answer.row_keys, answer.not_found), all());
    let GottenRows::Json(lines) = answer.rows else { panic!() };
    let without_addrs = lines.lines().map(|line| line.split(",\"_rowaddr\"").next().unwrap());
    assert_eq!(without_addrs.map(|line| format!("{line}}}\n")).collect::<String>(), expected);
    let presence = LookupOpen { only_presence: true, columns: Vec::new(), ..json };
    let fault = streams.open(presence).await.err().unwrap();
    assert_eq!(fault.reason, Reason::BadArgument);
    assert!(fault.message.contains("`all_rows` is set, but `only_presence`"), "{fault}");
}
