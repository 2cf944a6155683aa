//! Vector searches with filters of which scalar indexes answer a part: their candidates are compared with a plain model
//! of the rows, and with searches that know the list of rows that pass.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int32Array, ListArray, RecordBatch,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
use lake::{
    CandidateSearch, Candidates, IndexRequest, Lake, LakeOptions, Metric, Table, VectorIndex,
    VectorIndexKind, VectorQuery, VectorRoute, Widened, build_index,
};
use lance::Dataset;
use lance::dataset::UpdateBuilder;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};
use predicate::Evaluator;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{DIMENSION, PLAIN, STABLE_IDS, TableKind, TablePlace, lake, vector, write};

/// Numbers of rows of the table, before and after its indexes are built.
const INDEXED: i32 = 2_400;
const ROWS: i32 = 2_500;

/// The columns of numbers, in the order of [`values`], each with the kind of its index.
const COLUMNS: [(&str, Option<(IndexType, BuiltinIndexType)>); 4] = [
    ("topic", Some((IndexType::Bitmap, BuiltinIndexType::Bitmap))),
    ("day", Some((IndexType::BTree, BuiltinIndexType::BTree))),
    ("size", Some((IndexType::ZoneMap, BuiltinIndexType::ZoneMap))),
    ("price", None),
];

/// The values of a row.
type Values = [Option<i32>; 4];

fn values(id: i32) -> Values {
    let mut random = StdRng::seed_from_u64(id as u64 + 77);
    let mut below = |end: i32| (!random.random_ratio(1, 12)).then(|| random.random_range(0..end));
    // Zone maps find ranges of rows if the values grow with the rows.
    [below(10), below(30), below(100).map(|it| it + id / 10), below(1_000)]
}

fn labels(id: i32) -> Vec<Option<i64>> {
    (1..=6).filter(|label| id % (label + 1) == 0).map(|label| Some(label.into())).collect()
}

fn rows(ids: std::ops::Range<i32>) -> RecordBatch {
    let floats = ids.clone().flat_map(|id| vector(id as usize));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let floats = Arc::new(Float32Array::from_iter_values(floats));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, floats, None);
    let lists = ids.clone().map(|id| Some(labels(id)));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let id: ArrayRef = Arc::new(Int32Array::from_iter_values(ids.clone()));
    let mut columns = vec![("id", id, false)];
    for (at, (name, _)) in COLUMNS.into_iter().enumerate() {
        let array = Int32Array::from_iter(ids.clone().map(|id| values(id)[at]));
        columns.push((name, Arc::new(array), true));
    }
    columns.push(("labels", Arc::new(lists), true));
    columns.push(("vector", Arc::new(vectors), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A table whose indexes cover all rows if `is_covered`. Otherwise no index covers the rows that were added last, and
/// some indexes cover fewer rows than others.
struct Indexed {
    place: TablePlace,
    is_covered: bool,
    /// The values of its live rows, by id.
    rows: HashMap<i32, Values>,
}

async fn build_scalar(uri: &str, column: &str, (kind, name): (IndexType, BuiltinIndexType)) {
    let params = match kind {
        IndexType::ZoneMap => {
            let zones = serde_json::json!({ "rows_per_zone": 100 });
            ScalarIndexParams::for_builtin(name).with_params(&zones)
        }
        _ => ScalarIndexParams::for_builtin(name),
    };
    let mut dataset = Dataset::open(uri).await.unwrap();
    dataset.create_index(&[column], kind, None, &params, false).await.unwrap();
}

async fn append(uri: &str, ids: std::ops::Range<i32>) {
    let batch = rows(ids);
    let reader = arrow::array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::open(uri).await.unwrap().append(reader, None).await.unwrap();
}

async fn indexed(kind: TableKind, is_covered: bool) -> Indexed {
    let place = TablePlace::new();
    let uri = place.uri();
    write(&uri, &[rows(0..900), rows(900..1_800)], kind).await;
    let [topic, others @ ..] = COLUMNS;
    if is_covered {
        append(&uri, 1_800..INDEXED).await;
    }
    build_scalar(&uri, topic.0, topic.1.unwrap()).await;
    build_scalar(&uri, "labels", (IndexType::LabelList, BuiltinIndexType::LabelList)).await;
    if !is_covered {
        append(&uri, 1_800..INDEXED).await;
    }
    for (column, kind) in others.into_iter().filter_map(|(column, kind)| Some((column, kind?))) {
        build_scalar(&uri, column, kind).await;
    }
    let vectors = VectorIndex {
        column: "vector".into(),
        kind: VectorIndexKind::IvfPq,
        metric: Metric::L2,
        partitions: Some(8),
        sub_vectors: Some(8),
        ..Default::default()
    };
    build_index(&lake(), &uri, &IndexRequest::Vector(vectors), |_| ()).await.unwrap();
    let mut rows: HashMap<_, _> = (0..INDEXED).map(|id| (id, values(id))).collect();
    if !is_covered {
        append(&uri, INDEXED..ROWS).await;
        rows.extend((INDEXED..ROWS).map(|id| (id, values(id))));
        let dataset = Arc::new(Dataset::open(&uri).await.unwrap());
        let update = UpdateBuilder::new(dataset).update_where("id % 50 = 3").unwrap();
        update.set("topic", "3").unwrap().build().unwrap().execute().await.unwrap();
        rows.iter_mut().filter(|(id, _)| *id % 50 == 3).for_each(|(_, row)| row[0] = Some(3));
    }
    Dataset::open(&uri).await.unwrap().delete("id % 10 = 7").await.unwrap();
    rows.retain(|id, _| id % 10 != 7);
    Indexed { place, is_covered, rows }
}

/// Says whether a row fulfils a condition; `None` if a null leaves it open.
type IsTrue = Box<dyn Fn(&Values) -> Option<bool>>;

/// A condition, as text and as a function.
struct Condition {
    text: String,
    is_true: IsTrue,
}

fn condition(random: &mut StdRng, columns: &[usize], depth: usize) -> Condition {
    let column = columns[random.random_range(0..columns.len())];
    let (name, end) = (COLUMNS[column].0, [10, 30, 340, 1_000][column]);
    let (a, b) = (random.random_range(0..end), random.random_range(0..end));
    let of = move |values: &Values| values[column];
    match random.random_range(0..if depth > 0 { 9 } else { 6 }) {
        0 => Condition {
            text: format!("{name} < {a}"),
            is_true: Box::new(move |values| Some(of(values)? < a)),
        },
        1 => Condition {
            text: format!("{name} >= {a}"),
            is_true: Box::new(move |values| Some(of(values)? >= a)),
        },
        2 => Condition {
            text: format!("{name} != {a}"),
            is_true: Box::new(move |values| Some(of(values)? != a)),
        },
        3 => Condition {
            text: format!("{name} IN ({a}, {b}, 7, 8)"),
            is_true: Box::new(move |values| of(values).map(|it| [a, b, 7, 8].contains(&it))),
        },
        4 => Condition {
            text: format!("{name} IS NULL"),
            is_true: Box::new(move |values| Some(of(values).is_none())),
        },
        5 => Condition {
            text: format!("{name} BETWEEN {} AND {}", a.min(b), a.max(b)),
            is_true: Box::new(move |values| Some((a.min(b)..=a.max(b)).contains(&of(values)?))),
        },
        6 => {
            let inner = condition(random, columns, depth - 1);
            let is_true = inner.is_true;
            Condition {
                text: format!("NOT ({})", inner.text),
                is_true: Box::new(move |values| is_true(values).map(|it| !it)),
            }
        }
        7 => {
            let pair =
                (condition(random, columns, depth - 1), condition(random, columns, depth - 1));
            let text = format!("({} OR {})", pair.0.text, pair.1.text);
            let (left, right) = (pair.0.is_true, pair.1.is_true);
            let or = move |values: &Values| match (left(values), right(values)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            };
            Condition { text, is_true: Box::new(or) }
        }
        _ => and(condition(random, columns, depth - 1), condition(random, columns, depth - 1)),
    }
}

fn and(left: Condition, right: Condition) -> Condition {
    let text = format!("{} AND {}", left.text, right.text);
    let (left, right) = (left.is_true, right.is_true);
    let and = move |values: &Values| match (left(values), right(values)) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    Condition { text, is_true: Box::new(and) }
}

fn query(filter: &str, k: usize, seed: usize, indexed_only: bool) -> VectorQuery {
    VectorQuery {
        vector: vector(1_000_000 + seed),
        k,
        nprobes: Some(1),
        filter: Some(filter.into()),
        checks_candidates: true,
        checked_row_bytes: 200,
        indexed_only,
        ..Default::default()
    }
}

/// Returns the search if its candidates are those that scalar indexes leave.
async fn narrowed(table: &Table, query: &VectorQuery) -> Option<CandidateSearch> {
    match table.open_route(query).await.unwrap() {
        VectorRoute::Candidates(search) => search.is_narrowed().then_some(*search),
        VectorRoute::Direct(_) => None,
        VectorRoute::Planned(reason) => panic!("planned: {reason}"),
    }
}

async fn ids(table: &Table, rows: &[RowAddr]) -> Vec<i32> {
    let read = table.take(rows, &["id".into()]).await.unwrap();
    read["id"].as_primitive::<Int32Type>().values().to_vec()
}

/// Evaluates the predicate of `search` for `rows`, as an I/O node does.
async fn passes(table: &Table, search: &CandidateSearch, rows: &[RowAddr]) -> Vec<bool> {
    let predicate = &search.filter.predicate;
    let read = table.take(rows, &predicate.columns).await.unwrap();
    let types: Vec<_> = read.columns().iter().map(|it| it.data_type()).collect();
    let passing = Evaluator::new(&predicate.steps, &types).unwrap().passing(read.columns());
    let mut passes = vec![false; rows.len()];
    passing.unwrap().into_iter().for_each(|row| passes[row as usize] = true);
    passes
}

/// The rows that a search returns: those that the index found, nearest first, and those that are still to be scored.
#[derive(Debug)]
struct Found {
    near: Vec<(RowAddr, f32)>,
    scored: Vec<RowAddr>,
    checked: usize,
}

/// Runs a search as a query node does.
async fn run(table: &Table, query: &VectorQuery, mut search: CandidateSearch) -> Found {
    let mut known: HashMap<RowAddr, bool> = HashMap::new();
    loop {
        let Candidates { hits, .. } = table.candidates(query, &search).await.unwrap();
        let found = hits.iter().map(|hit| hit.addr).chain(search.to_score.iter().copied());
        let new: Vec<_> = found.filter(|addr| !known.contains_key(addr)).collect();
        assert!(!search.is_exceeded(known.len() + new.len()));
        let passes = passes(table, &search, &new).await;
        search.filter.record(new.len(), passes.iter().filter(|it| **it).count());
        known.extend(new.into_iter().zip(passes));
        let near: Vec<_> = hits.iter().filter(|hit| known[&hit.addr]).collect();
        match search.next(hits.len(), near.len(), known.len()) {
            Widened::Enough => {
                let near = near.iter().take(query.k).map(|hit| (hit.addr, hit.distance)).collect();
                let scored = search.to_score.iter().copied().filter(|addr| known[addr]).collect();
                return Found { near, scored, checked: known.len() };
            }
            Widened::Further => {}
            Widened::Costly => panic!("a scan of {} rows is cheaper", search.filter.scan_rows),
        }
    }
}

async fn misses(lake: &Lake) -> u64 {
    lake.cache_use().await.iter().find(|cache| cache.name == "filter").unwrap().misses
}

#[tokio::test]
async fn what_indexes_leave_and_passes_is_what_the_filter_selects() {
    for (seed, (kind, is_covered)) in
        [(PLAIN, true), (PLAIN, false), (STABLE_IDS, true), (STABLE_IDS, false)]
            .into_iter()
            .enumerate()
    {
        let indexed = Box::pin(indexed(kind, is_covered)).await;
        Box::pin(check_conjunctions(&indexed, seed as u64)).await;
        Box::pin(check_chosen(&indexed)).await;
    }
}

async fn check_conjunctions(indexed: &Indexed, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let lake = lake();
    let table = lake.open(&indexed.place.uri()).await.unwrap();
    let all = indexed.rows.len() * 2;
    let (mut sizes, mut searches) = (BTreeSet::new(), 0);
    for round in 0..40 {
        // A part that an index answers, a part on a column without an index, and at times a third part on any columns.
        let mut filter =
            and(condition(&mut random, &[0, 1, 2], 0), condition(&mut random, &[3], 1));
        if random.random_bool(0.6) {
            filter = and(condition(&mut random, &[0, 1, 2, 3], 2), filter);
        }
        let text = &filter.text;
        let context = format!("seed {seed}, covered {}, `{text}`", indexed.is_covered);
        let pass = indexed.rows.iter().filter(|(_, row)| (filter.is_true)(row) == Some(true));
        let pass: BTreeSet<i32> = pass.map(|(id, _)| *id).collect();
        let every = query(text, all, round, false);
        // Lance's planner may see that no row passes, or that an index answers the whole filter.
        let Some(search) = narrowed(&table, &every).await else { continue };
        searches += 1;
        let found = run(&table, &every, search).await;
        assert_eq!(found.near, [], "{context}");
        let scored: BTreeSet<i32> = ids(&table, &found.scored).await.into_iter().collect();
        assert_eq!(scored, pass, "{context}");
        sizes.insert(scored.len() / 100);

        // With `indexed_only`, the index is searched, up to the last of its partitions.
        let near = query(text, all, round, true);
        let search = narrowed(&table, &near).await.unwrap_or_else(|| panic!("{context}"));
        let found = run(&table, &near, search).await;
        let addrs: Vec<_> = found.near.iter().map(|(addr, _)| *addr).collect();
        let found: BTreeSet<i32> = ids(&table, &addrs).await.into_iter().collect();
        assert!(found.is_subset(&pass), "{context}: {found:?}, not {pass:?}");
        let uncovered: Vec<_> = pass.difference(&found).collect();
        let is_fresh = |id: &&i32| **id >= INDEXED || **id % 50 == 3;
        assert!(!indexed.is_covered || uncovered.is_empty(), "{context}: {uncovered:?}");
        assert!(uncovered.iter().all(is_fresh), "{context}: {uncovered:?}");

        // A search for the nearest rows finds those that a search with the list finds.
        let few = query(text, 5, round, true);
        let search = narrowed(&table, &few).await.unwrap_or_else(|| panic!("{context}"));
        let found = run(&table, &few, search).await.near;
        // Another lake makes the list, so that this one does not know it.
        let listed = crate::fixture::lake().open(&indexed.place.uri()).await.unwrap();
        let direct = VectorQuery { checks_candidates: false, ..few };
        let VectorRoute::Direct(search) = listed.open_route(&direct).await.unwrap() else {
            panic!("{context}: not direct");
        };
        let expected = search.hits.await.unwrap();
        assert_eq!(found.len(), expected.len(), "{context}");
        for ((addr, distance), hit) in found.iter().zip(&expected) {
            assert!(*addr == hit.addr || *distance == hit.distance, "{context}: {found:?}");
        }
    }
    assert!(searches > 30 && sizes.len() > 3, "{searches}, {sizes:?}");
}

async fn check_chosen(indexed: &Indexed) {
    let lake = lake();
    let table = lake.open(&indexed.place.uri()).await.unwrap();
    let rows = &indexed.rows;
    let left = async |filter: &str| {
        let search = narrowed(&table, &query(filter, 5, 1, false)).await;
        search.map(|search| search.filter.scan_rows as usize)
    };
    let count = |is_left: fn(&Values) -> bool| rows.values().filter(|row| is_left(row)).count();
    let before = misses(&lake).await;
    let of_topic = left("topic = 5 AND price < 10").await.unwrap();
    if indexed.is_covered {
        assert_eq!(of_topic, count(|row| row[0] == Some(5)));
    } else {
        // All rows of the fragments that the index does not cover are left too.
        assert!(of_topic > count(|row| row[0] == Some(5)) + 500);
    }
    // The list is shared, although the filters differ.
    let shared = left("price > 990 AND topic = 5").await.unwrap();
    assert_eq!((shared, misses(&lake).await), (of_topic, before + 1));
    // A query of the index for other values has a list of its own.
    let several = left("topic IN (5, 6) AND price < 10").await.unwrap();
    assert!(several > of_topic);
    assert_eq!(misses(&lake).await, before + 2);
    // A zone map leaves whole zones, of which the filter selects the rows.
    let zones = left("size < 20 AND price < 500").await.unwrap();
    assert!(zones >= count(|row| row[2].is_some_and(|size| size < 20)) && zones < rows.len());
    // A part that I/O nodes can't evaluate is left to an index that covers everything.
    let has = |label: i32| format!("array_has_any(labels, [{label}]) AND price < 500");
    let labelled = left(&has(4)).await;
    assert_eq!(labelled.is_some(), indexed.is_covered);
    if let Some(labelled) = labelled {
        assert_eq!(labelled, rows.keys().filter(|id| *id % 5 == 0).count());
        let every = query(&has(4), rows.len(), 1, false);
        let search = narrowed(&table, &every).await.unwrap();
        let found = run(&table, &every, search).await;
        let expected =
            |(id, row): &(&i32, &Values)| *id % 5 == 0 && row[3].is_some_and(|price| price < 500);
        assert_eq!(found.scored.len(), rows.iter().filter(expected).count());
        // For rows that the index did not find, the whole filter would have to be evaluated, and it has no predicate.
        assert!(table.predicate(&has(4), 3, 200).await.unwrap().is_none());
    }
    let whole = table.predicate("topic = 5 AND price < 10", 3, 200).await.unwrap().unwrap();
    assert_eq!(whole.columns, ["topic", "price"]);
    // Without memory for lists, each search would ask the indexes again.
    let small = Lake::new(LakeOptions { index_cache_bytes: 0, ..LakeOptions::default() });
    let without = small.open(&indexed.place.uri()).await.unwrap();
    let near = query("topic = 5 AND price < 10", 5, 1, false);
    assert!(narrowed(&without, &near).await.is_none());
    // The part that no index answers has no predicate.
    assert!(left("topic = 5 AND price % 2 = 0").await.is_none());
    // No row is left.
    let none = query("topic = 99 AND price < 10", 5, 1, false);
    if indexed.is_covered {
        let search = narrowed(&table, &none).await.unwrap();
        assert_eq!((search.filter.scan_rows, search.segments), (0, 0));
        let found = run(&table, &none, search).await;
        assert_eq!((found.near, found.scored, found.checked), (vec![], vec![], 0));
        let only = VectorQuery { indexed_only: true, ..none };
        let search = narrowed(&table, &only).await.unwrap();
        assert_eq!(run(&table, &only, search).await.checked, 0);
    }
    // If few rows are left, each is compared. If many are left, only the nearest are.
    let few = query("topic = 5 AND day = 3 AND price IS NOT NULL", 5, 1, false);
    let search = narrowed(&table, &few).await.unwrap();
    assert_eq!(search.segments == 0, indexed.is_covered);
    let many = query("topic > 1 AND price IS NOT NULL", 5, 1, false);
    let search = narrowed(&table, &many).await.unwrap();
    assert!(search.segments > 0);
    let left = search.filter.scan_rows as usize;
    assert!(run(&table, &many, search).await.checked < left / 4);
    // Once the list is known, it is used.
    table.make_list("topic > 1 AND price IS NOT NULL").await.unwrap();
    assert!(narrowed(&table, &many).await.is_none());
}
