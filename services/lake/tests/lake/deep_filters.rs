//! Grows each construct in [`CONSTRUCTS`] until the filter is refused. Filters that pass are planned and evaluated.

use std::time::{Duration, Instant};

use lake::{
    IndexRequest, LakeError, STACK_BYTES, Table, TextExpr, TextQuery, VectorQuery, build_index,
};

use crate::fixture::{TablePlace, lake, modern_kinds, search_vector, vector, write_with_history};

/// Returns a filter of size `n`.
type Construct = fn(usize) -> String;

fn chain(n: usize, first: &str, next: &str) -> String {
    format!("{first}{}", next.repeat(n))
}

fn nested(n: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(n), close.repeat(n))
}

fn list(n: usize, join: &str, item: fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(join)
}

const CONSTRUCTS: &[(&str, Construct)] = &[
    ("+", |n| chain(n, "id < 1", " + 1")),
    ("-", |n| chain(n, "id < 1", " - id")),
    ("*", |n| chain(n, "id < 1", " * 1")),
    ("/", |n| chain(n, "id < 1", " / 2")),
    ("%", |n| chain(n, "id < id", " % 7")),
    ("<<", |n| chain(n, "id < id", " << 1")),
    ("||", |n| chain(n, "name = name", " || 'x'")),
    ("=", |n| chain(n, "id = 1", " = true")),
    ("<>", |n| chain(n, "id = 1", " <> (id = 2)")),
    ("unary -", |n| format!("id < {}id", nested(n, "- ", "", ""))),
    ("unary - of groups", |n| format!("id < {}", nested(n, "-(", "id", ")"))),
    ("NOT", |n| nested(n, "NOT ", "id = 1", "")),
    ("NOT of groups", |n| nested(n, "NOT (", "id = 1", ")")),
    ("NOT of AND of OR", |n| nested(n, "NOT (id < 3 AND id > 1 OR ", "id = 1", ")")),
    ("IS NULL", |n| chain(n, "id", " IS NULL")),
    ("IS NOT TRUE", |n| chain(n, "id = 1", " IS NOT TRUE")),
    ("NOT NULL", |n| chain(n, "id", " NOT NULL")),
    ("IS DISTINCT FROM", |n| chain(n, "id = 1", " AND id IS DISTINCT FROM 3")),
    ("::", |n| format!("{} = 1", chain(n, "id", "::bigint"))),
    (":: of two", |n| format!("{} = 1", chain(n, "id", "::double::bigint"))),
    ("CAST", |n| format!("{} = 1", nested(n, "CAST(", "id", " AS double)"))),
    ("TRY_CAST", |n| format!("{} = 1", nested(n, "TRY_CAST(", "id", " AS string)"))),
    ("parentheses", |n| nested(n, "(", "id = 1", ")")),
    ("left groups", |n| nested(n, "(", "id = 1", " AND id < 7)")),
    ("right groups", |n| nested(n, "(id = 1 OR ", "id = 2", ")")),
    ("AND in OR in AND", |n| nested(n, "(id = 1 OR id > 7 AND ", "id = 2", ")")),
    ("calls", |n| format!("{} = 'x'", nested(n, "lower(", "name", ")"))),
    ("calls of two", |n| format!("{} = 1", nested(n, "coalesce(1, ", "id", ")"))),
    ("calls beside each other", |n| list(n, " AND ", |k| format!("lower(name) <> '{k}'"))),
    ("coalesce first", |n| format!("{} = 1", nested(n, "coalesce(", "id", ", 1)"))),
    ("ifnull first", |n| format!("{} = 1", nested(n, "ifnull(", "id", ", 1)"))),
    ("nvl first", |n| format!("{} = 1", nested(n, "nvl(", "id", ", 1)"))),
    ("nvl2 first", |n| format!("{} = 1", nested(n, "nvl2(", "id", ", 1, 2)"))),
    ("greatest", |n| format!("{} = 1", nested(n, "greatest(", "id", ", 1)"))),
    ("array_has of few", |n| nested(n, "array_has([true, false, null], ", "id = 1", ")")),
    ("IN of few", |n| chain(n, "id = 1", " IN (true, false, null)")),
    ("= 0.0", |n| nested(n, "(", "id = 1", ")::int::double = 0.0")),
    ("< -0.0", |n| nested(n, "(", "id = 1", ")::int::double < -0.0")),
    ("BETWEEN of zeros", |n| nested(n, "(", "id = 1", ")::int::double BETWEEN -0.0 AND 0.0")),
    ("date_part in itself", |n| {
        format!("{} = 1", nested(n, "date_part('year', to_timestamp(", "id", "))"))
    }),
    ("all that copies", |n| {
        list(n, " OR ", |k| {
            format!("coalesce(id IN ({k}, 1, 2), name BETWEEN 'a' AND 'b') BETWEEN false AND true")
        })
    }),
    ("all that copies, three deep", |n| {
        list(n, " OR ", |k| {
            format!(
                "(id BETWEEN {k} AND 9 BETWEEN false AND true) IN (true, false) IN (false, true)"
            )
        })
    }),
    ("nullif", |n| format!("{} = 1", nested(n, "nullif(", "id", ", 3)"))),
    ("is_valid", |n| nested(n, "is_valid(", "id", ")")),
    ("to_timestamp", |n| format!("{} > now()", nested(n, "to_timestamp(", "id", ")"))),
    ("AND", |n| list(n, " AND ", |k| format!("id <> {k}"))),
    ("OR", |n| list(n, " OR ", |k| format!("id = {k}"))),
    ("OR of AND", |n| list(n, " OR ", |k| format!("id = {k} AND name = 'name {k}'"))),
    ("OR of two columns", |n| list(n, " OR ", |k| format!("id = {k} OR name = '{k}'"))),
    ("AND of OR", |n| list(n, " AND ", |k| format!("(id = {k} OR name = '{k}')"))),
    ("AND of LIKE", |n| list(n, " AND ", |k| format!("name NOT LIKE '%{k}_%'"))),
    ("OR of LIKE", |n| list(n, " OR ", |k| format!("name LIKE '%{k}_%'"))),
    ("OR of NOT", |n| list(n, " OR ", |k| format!("NOT id = {k}"))),
    ("OR of comparisons of sums", |n| list(n, " OR ", |k| format!("id + {k} > {k}"))),
    ("IN", |n| format!("id IN ({})", list(n, ", ", |k| k.to_string()))),
    ("NOT IN of texts", |n| format!("name NOT IN ({})", list(n, ", ", |k| format!("'{k}'")))),
    ("IN of expressions", |n| format!("id IN ({})", list(n, ", ", |k| format!("{k} + 1")))),
    ("IN of columns", |n| format!("id IN ({})", list(n, ", ", |_| "id".into()))),
    ("OR of IN", |n| list(n, " OR ", |k| format!("id IN ({k}, 1, 2, 3, 4)"))),
    ("IN of IN", |n| nested(n, "(id = 1) IN (", "id = 2", ")")),
    ("BETWEEN", |n| chain(n, "id = 1", " BETWEEN false AND true")),
    ("BETWEEN with AND", |n| list(n, " AND ", |k| format!("id BETWEEN {k} AND 9"))),
    ("LIKE", |n| chain(n, "name", " LIKE 'x' IS TRUE")),
    ("a long LIKE", |n| format!("name LIKE '{}'", "%_a".repeat(n))),
    ("array", |n| format!("array_has([{}], id)", list(n, ", ", |k| k.to_string()))),
    ("array of arrays", |n| format!("array_has({}, id)", nested(n, "[", "1", "]"))),
    ("subscripts", |n| chain(n, "id", "[1]")),
    ("subscripts of types", |n| chain(n, "id::int", "[1]")),
    ("fields", |n| chain(n, "id", ".x")),
    ("fields of groups", |n| chain(n, "(id)", ".x")),
    ("DATE", |n| list(n, " AND ", |k| format!("DATE '2020-01-{:02}' < now()", 1 + k % 28))),
    ("a long text", |n| format!("name = '{}'", "x".repeat(n))),
    ("a long number", |n| format!("id < {}", "9".repeat(n))),
    ("a long name", |n| format!("`{}` = 1", "x".repeat(n))),
    ("comments", |n| format!("id = 1 {}", "/* x */ ".repeat(n))),
    ("nested comments", |n| format!("id = 1 {}", nested(n, "/*", "", "*/"))),
    ("CASE", |n| nested(n, "CASE WHEN ", "true", " THEN true ELSE false END")),
    ("subqueries", |n| nested(n, "(SELECT ", "1", ")")),
    ("UNION", |n| chain(n, "id = 1", " UNION SELECT 1")),
    ("EXISTS", |n| nested(n, "EXISTS (", "id = 1", ")")),
    ("ARRAY types", |n| format!("id::{} = 1", nested(n, "Nullable(", "int", ")"))),
    ("STRUCT types", |n| format!("id::{} = 1", nested(n, "STRUCT<a ", "int", ">"))),
    ("INTERVAL", |n| format!("id < {}", nested(n, "INTERVAL ", "'1'", ""))),
    ("COLLATE", |n| chain(n, "name", " COLLATE x")),
    ("AT TIME ZONE", |n| chain(n, "now()", " AT TIME ZONE 'UTC'")),
    ("OVER", |n| chain(n, "lower(name)", " OVER ()")),
    ("->", |n| chain(n, "name", " -> 'x'")),
    ("~", |n| nested(n, "~ ", "id", "")),
    ("PRIOR", |n| nested(n, "PRIOR ", "id", "")),
    ("braces", |n| nested(n, "{", "id", "}")),
    ("lambdas", |n| nested(n, "x -> ", "id", "")),
    ("types read from a text", |n| {
        format!("arrow_cast(id, '{}') = 1", nested(n, "List(", "Int8", ")"))
    }),
    ("JSON paths", |n| format!("json_exists(name, '${}')", ".a".repeat(n))),
    ("JSON path filters", |n| format!("json_exists(name, '$[?{}]')", nested(n, "(", "1", ")"))),
    ("JSON literals", |n| format!("JSONB '{}' = id", nested(n, "[", "", "]"))),
    ("ANY", |n| chain(n, "id = 1", " = ANY (true)")),
    ("MEMBER OF", |n| chain(n, "id = 1", " MEMBER OF (true)")),
];

/// Maximum time for the largest filter, in a development build on a busy machine. A filter that takes longer to plan
/// has exponential cost.
const TOOK_MAX: Duration = Duration::from_secs(20);

/// Returns why `filter` is refused, or `None` if it is not.
async fn refused(table: &Table, filter: &str) -> Option<String> {
    match table.search_filter(filter, 5).await {
        Ok(_) => None,
        Err(LakeError::BadFilter { why, .. }) => Some(why),
        // The filter is well-formed, and fails on the rows: an overflow, or types that are first compared there.
        Err(LakeError::Internal { .. }) => None,
        Err(other) => panic!("{}: {other:?}", &filter[..filter.len().min(100)]),
    }
}

/// Returns whether `why` says that a filter is too large or calls a function that is not allowed.
fn is_for_size(why: &str) -> bool {
    ["is the most", "levels", "has more than", "there is no function", "is not offered"]
        .iter()
        .any(|part| why.contains(part))
}

/// Returns how many bytes of this thread's stack were ever touched.
fn stack_touched_bytes() -> usize {
    let here = 0u8;
    let here = std::ptr::from_ref(&here).addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) =
                (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            is_ours = (from..to).contains(&here);
        } else if is_ours && first == "Rss:" {
            let kib = line.split_whitespace().nth(1).unwrap();
            return kib.parse::<usize>().unwrap() << 10;
        }
    }
    panic!("this thread's stack is not among its mappings")
}

/// Runs `work` on a new thread. Returns its result, how many bytes of the stack it touched, and how long it took.
fn measured<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> (T, usize, Duration) {
    std::thread::scope(|scope| {
        let measured =
            std::thread::Builder::new().stack_size(8 * STACK_BYTES).spawn_scoped(scope, || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let began = Instant::now();
                let done = runtime.block_on(work());
                (done, stack_touched_bytes(), began.elapsed())
            });
        measured.unwrap().join().unwrap()
    })
}

async fn indexed(place: &TablePlace) -> Table {
    write_with_history(&place.uri(), modern_kinds()[0]).await;
    let lake = lake();
    let scalar = IndexRequest::Scalar { column: "id".into() };
    for request in [scalar, IndexRequest::Text { column: "text".into(), positions: false }] {
        build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
    }
    lake.open(&place.uri()).await.unwrap()
}

/// The stack size of the threads on which tasks of Lance and DataFusion run here: half of Rust's default. Filters are
/// evaluated on these threads, but not planned.
const WORKER_STACK_BYTES: usize = 1 << 20;

#[test]
fn the_deepest_filters_are_evaluated_on_small_stacks() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_stack_size(WORKER_STACK_BYTES).enable_all();
    let runtime = runtime.build().unwrap();
    let place = TablePlace::new();
    let table = std::thread::scope(|scope| {
        scope.spawn(|| runtime.block_on(indexed(&place))).join().unwrap()
    });
    for (name, construct) in CONSTRUCTS {
        // Sizes up to the limits of 24 levels and 1,024 terms.
        for n in [3, 4, 7, 11, 15, 22, 23, 1024] {
            let (filter, table) = (construct(n), table.clone());
            let searches = runtime.spawn(async move {
                if refused(&table, &filter).await.is_some() {
                    return false;
                }
                let words = TextQuery {
                    query: TextExpr::words("willow tree"),
                    k: 3,
                    filter: Some(filter.clone()),
                    ..Default::default()
                };
                let _ = table.search_text(&words).await;
                let vector = vector(3);
                let near = VectorQuery { vector, k: 3, filter: Some(filter), ..Default::default() };
                let _ = search_vector(&table, &near).await;
                true
            });
            let passed = runtime.block_on(searches).unwrap();
            if passed && std::env::var_os("SHOW").is_some() {
                println!("{name} of {n}");
            }
        }
    }
}

#[test]
fn every_construct_grows_until_it_is_refused() {
    let place = TablePlace::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let table = &runtime.block_on(indexed(&place));
    let mut deepest = 0;
    for (name, construct) in CONSTRUCTS {
        let mut tried = async |n: usize| {
            let filter = construct(n);
            let (why, touched, took) = measured(async move || refused(table, &filter).await);
            deepest = deepest.max(touched);
            assert!(touched <= STACK_BYTES / 4, "{name} of {n}: {touched} bytes of stack");
            assert!(took < TOOK_MAX, "{name} of {n}: {took:?}");
            if std::env::var_os("SHOW").is_some() {
                println!("{name} of {n}: {} KiB of stack, {took:?}, {why:?}", touched >> 10);
            }
            why.is_some_and(|why| is_for_size(&why))
        };
        runtime.block_on(async {
            let mut passed = 0;
            let mut refused = 1;
            while !tried(refused).await {
                passed = refused;
                refused *= 4;
                assert!(refused <= 1 << 20, "{name} is never refused");
            }
            // The largest filter that passes is the deepest. Its size is found only to within an eighth, which is
            // enough.
            while refused - passed > 1 + passed / 8 {
                let middle = passed.midpoint(refused);
                match tried(middle).await {
                    true => refused = middle,
                    false => passed = middle,
                }
            }
        });
    }
    println!("the deepest filter touched {} KiB of stack", deepest >> 10);
}
