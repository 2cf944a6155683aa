//! `bireme search` with computed columns, and for several vectors.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::text;
use crate::up::Up;

const KEYS: [&str; 2] = ["n02503517", "n07583197"];

#[test]
fn a_search_of_words_in_a_column_that_has_none_is_an_error_of_usage() {
    let up = Up::start();
    for (column, says) in [
        ("pos", "has no full-text index in version"),
        ("pos", "; in the command, write the URI of table `words` for <words>"),
        ("domain", "full-text search needs strings"),
        ("nope", "no column \"nope\""),
    ] {
        up.names(&["search", "words", "--text", "soup", "--text-column", column], 2, says);
    }
}

#[test]
fn columns_are_computed_and_each_vector_of_a_file_is_searched_for() {
    let up = Up::start();
    let like = ["search", "words", "--like", KEYS[0], "-k", "3"];
    let computed = [
        "--columns",
        "synset",
        "--expression",
        "twice=domain * 2",
        "--expression",
        "far=_distance + 1",
    ];
    let plain = up.json(&like);
    let found = up.json(&[&like[..], &computed].concat());
    for (found, plain) in found.iter().zip(&plain) {
        let mut names: Vec<_> = found.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["_distance", "_rowaddr", "far", "synset", "twice"]);
        assert_eq!(found["synset"], plain["synset"]);
        assert_eq!(found["twice"], plain["domain"].as_i64().unwrap() * 2);
    }
    assert_eq!(found.len(), plain.len());
    let wrong = [&like[..], &["--expression", "a=domain * twice"]].concat();
    up.names(&wrong, 2, "twice");
    up.names(&[&like[..], &["--expression", "domain * 2"]].concat(), 2, "NAME=SQL");

    let vectors = up.json(&["get", "words", KEYS[0], KEYS[1], "--columns", "vector"]);
    let mut lines = String::new();
    for row in &vectors {
        writeln!(lines, "{}", json!({"v": row["vector"]})).unwrap();
    }
    let file = up.folder.path().join("asked.jsonl");
    std::fs::write(&file, &lines).unwrap();
    let several = ["search", "words", "--vectors", text(&file), "-k", "2"];
    let found = up.json(&several);
    let of: Vec<&Value> = found.iter().map(|row| &row["query_index"]).collect();
    assert_eq!(of, [0, 0, 1, 1]);
    assert_eq!([&found[0]["synset"], &found[2]["synset"]], KEYS);
    up.names(&[&several[..], &["--text", "elephant"]].concat(), 2, "--vectors");
    std::fs::write(&file, lines.repeat(51)).unwrap();
    up.names(&several, 2, "has more than 100 vectors; give fewer");
}
