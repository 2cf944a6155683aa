//! Tests the check of a filter's tokens with the parser and the planners that it protects: every filter that passes the
//! check is parsed, planned and evaluated without a panic, within the stack, and in seconds.

use std::time::{Duration, Instant};

use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;
use lake::LakeError;

use crate::fixture::{TablePlace, lake, modern_kinds, write_with_history};

/// Maximum time for a filter that passes, in a development build on a busy machine.
const TOOK_MAX: Duration = Duration::from_secs(30);

fn one_of<'a>(rng: &mut StdRng, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

/// The type of an expression.
#[derive(Clone, Copy)]
enum ExprType {
    Truth,
    Number,
    Text,
}

use ExprType::{Number, Text, Truth};

/// Returns a random expression of about `size` operators, mostly of type `of`.
fn expression(rng: &mut StdRng, size: usize, of: ExprType) -> String {
    let of = match rng.random_range(0..60) {
        0 => [Truth, Number, Text][rng.random_range(0..3)],
        _ => of,
    };
    if size == 0 {
        return operand(rng, of).to_owned();
    }
    match rng.random_range(0..12) {
        0 => format!("({})", expression(rng, size - 1, of)),
        1 => copied(rng, size - 1, of),
        2 => {
            let cast = one_of(rng, &["CAST", "TRY_CAST", "cast"]);
            let from = [of, Number][rng.random_range(0..2)];
            format!("{cast}({} AS {})", expression(rng, size - 1, from), type_of(rng, of))
        }
        3 => {
            let from = [of, Number][rng.random_range(0..2)];
            format!("({})::{}", expression(rng, size - 1, from), type_of(rng, of))
        }
        _ => match of {
            Truth => truth(rng, size - 1),
            Number => number(rng, size - 1),
            Text => text(rng, size - 1),
        },
    }
}

fn operand(rng: &mut StdRng, of: ExprType) -> &'static str {
    match of {
        Truth => one_of(
            rng,
            &["TRUE", "false", "NULL", "id = 3", "name = 'name-7'", "text IS NULL", "added > 3"],
        ),
        Number => one_of(
            rng,
            &["id", "`id`", "1", "0", "0.0", "-0.0", "1.5", "-3", "NULL", "added", "pi()"],
        ),
        Text => one_of(rng, &["name", "text", "'x'", "'name-7'", "\"text\"", "''", "NULL", "'%'"]),
    }
}

fn type_of(rng: &mut StdRng, of: ExprType) -> &'static str {
    match of {
        Truth => "boolean",
        Number => {
            one_of(rng, &["int", "bigint", "double", "float", "tinyint unsigned", "decimal(10, 2)"])
        }
        Text => "string",
    }
}

/// Returns a call whose arguments the optimiser copies.
fn copied(rng: &mut StdRng, size: usize, of: ExprType) -> String {
    let name = one_of(rng, &["coalesce", "nullif", "nvl", "ifnull", "greatest", "least"]);
    let left = rng.random_range(0..=size);
    format!("{name}({}, {})", expression(rng, left, of), expression(rng, size - left, of))
}

fn truth(rng: &mut StdRng, size: usize) -> String {
    let left = rng.random_range(0..=size);
    let right = size - left;
    let of = [Number, Text, Truth][rng.random_range(0..3)];
    match rng.random_range(0..12) {
        0..=4 => {
            let join = one_of(rng, &["AND", "OR"]);
            format!("{} {join} {}", expression(rng, left, Truth), expression(rng, right, Truth))
        }
        5 | 6 => {
            let operators = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM"];
            let operator = one_of(rng, &operators);
            format!("({}) {operator} ({})", expression(rng, left, of), expression(rng, right, of))
        }
        7 => format!("NOT {}", expression(rng, size, Truth)),
        8 => {
            let tests = ["IS NULL", "IS NOT NULL", "NOT NULL"];
            format!("({}) {}", expression(rng, size, of), one_of(rng, &tests))
        }
        9 => {
            let (not, low, high) = (one_of(rng, &["", "NOT "]), right / 2, right - right / 2);
            let (value, low) = (expression(rng, left, of), expression(rng, low, of));
            format!("({value}) {not}BETWEEN ({low}) AND ({})", expression(rng, high, of))
        }
        10 => {
            let items = (0..rng.random_range(1..6)).map(|_| expression(rng, right / 6, of));
            let items = items.collect::<Vec<_>>().join(", ");
            format!("({}) {}IN ({items})", expression(rng, left, of), one_of(rng, &["", "NOT "]))
        }
        _ => {
            let like = one_of(rng, &["LIKE", "NOT ILIKE"]);
            let pattern = one_of(rng, &["'%a_'", "'x'", "''", "'%\\_%' ESCAPE '\\'"]);
            format!("{} {like} {pattern}", expression(rng, size, Text))
        }
    }
}

fn number(rng: &mut StdRng, size: usize) -> String {
    let left = rng.random_range(0..=size);
    match rng.random_range(0..4) {
        0 | 1 => {
            let operator = one_of(rng, &["+", "-", "*", "/", "%"]);
            format!(
                "{} {operator} {}",
                expression(rng, left, Number),
                expression(rng, size - left, Number)
            )
        }
        2 => format!("- {}", expression(rng, size, Number)),
        _ => match rng.random_bool(0.5) {
            true => {
                let name = one_of(rng, &["length", "octet_length", "ascii"]);
                format!("{name}({})", expression(rng, size, Text))
            }
            false => {
                let name = one_of(rng, &["abs", "trunc", "signum", "sqrt", "round"]);
                format!("{name}({})", expression(rng, size, Number))
            }
        },
    }
}

fn text(rng: &mut StdRng, size: usize) -> String {
    match rng.random_range(0..4) {
        0 => {
            let left = rng.random_range(0..=size);
            format!("{} || {}", expression(rng, left, Text), expression(rng, size - left, Text))
        }
        1 => format!("left({}, 3)", expression(rng, size, Text)),
        2 => format!(
            "left({}, {})",
            expression(rng, size / 2, Text),
            expression(rng, size / 2, Number)
        ),
        _ => {
            let name = one_of(rng, &["lower", "upper", "btrim", "reverse", "initcap"]);
            format!("{name}({})", expression(rng, size, Text))
        }
    }
}

/// Returns `filter` with some of its tokens removed, duplicated, swapped or replaced.
fn damaged(rng: &mut StdRng, filter: &str) -> String {
    let mut words: Vec<_> = filter.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..words.len());
        let other = rng.random_range(0..words.len());
        match rng.random_range(0..4) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[other]),
            2 => words.swap(at, other),
            _ => {
                let any = [
                    "(",
                    ")",
                    "[",
                    "]",
                    ",",
                    " NOT ",
                    " AND ",
                    " CASE ",
                    " SELECT ",
                    "'",
                    "$1",
                    "N'x'",
                    ".x",
                    "::",
                    " IN (",
                    " INTERVAL '1 day' ",
                    " AT TIME ZONE 'UTC'",
                    "--",
                    "/*",
                    "?",
                    ":",
                    "{",
                    "->",
                    " EXISTS ",
                    " OVER ()",
                    " ANY(",
                    "*",
                    "\u{e9}",
                    "`",
                ];
                words[at] = one_of(rng, &any);
            }
        }
        if words.is_empty() {
            return String::new();
        }
    }
    words.concat()
}

#[test]
fn fuzz_filters() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = TablePlace::new();
    let table = runtime.block_on(async {
        write_with_history(&place.uri(), modern_kinds()[0]).await;
        lake().open(&place.uri()).await.unwrap()
    });
    let (mut passed, mut refused, mut failed) = (0, 0, 0);
    fuzz::cases("fuzz_filters", 1500, |rng| {
        let size = 1 << rng.random_range(0..7);
        let size = rng.random_range(0..size);
        let filter = expression(rng, size, Truth);
        let filter = if rng.random_bool(0.3) { damaged(rng, &filter) } else { filter };
        let began = Instant::now();
        match runtime.block_on(table.search_filter(&filter, 5)) {
            Ok(_) => passed += 1,
            Err(LakeError::BadFilter { .. }) => refused += 1,
            // Some errors depend on the rows' values, such as an overflow.
            Err(LakeError::Internal { .. } | LakeError::Unsupported { .. }) => failed += 1,
            Err(other) => panic!("{filter}: {other:?}"),
        }
        assert!(began.elapsed() < TOOK_MAX, "{filter}: {:?}", began.elapsed());
    });
    println!("{passed} passed, {refused} were refused, {failed} failed on the rows");
    assert!(passed > 300 || std::env::var_os("BIREME_FUZZ_CASE").is_some(), "{passed} passed");
}
