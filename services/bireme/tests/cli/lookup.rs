//! `bireme lookup`, and the loads of `bireme bench get` on streams.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use crate::up::Up;
use crate::{sample, text};

fn parquet(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let batches: Vec<_> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let texts = cast(&rows[column], &DataType::Utf8).unwrap();
    texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn columns_are_appended_in_the_order_of_the_files_rows() {
    let up = Up::start();
    let truth = parquet(&sample());
    let (synsets, glosses) = (texts(&truth, "synset"), texts(&truth, "gloss"));
    // The file has more rows than one batch. Every seventh row has no key, and every fifth has a key that no row of the
    // table has.
    let rows = 5_000;
    let key = |row: usize| match (row % 7, row % 5) {
        (0, _) => None,
        (_, 0) => Some(format!("absent-{row}")),
        _ => Some(synsets[row * 13 % synsets.len()].clone().unwrap()),
    };
    let line = |row: usize| serde_json::json!({"number": row, "who": key(row)}).to_string();
    let keys = up.folder.path().join("keys.jsonl");
    std::fs::write(&keys, (0..rows).map(|row| line(row) + "\n").collect::<String>()).unwrap();
    let output = up.folder.path().join("joined.parquet");
    let files = ["--keys", text(&keys), "--output", text(&output)];
    let lookup = |more: &[&'static str]| [&["lookup", "words"], &files[..], more].concat();

    up.names(&lookup(&[]), 2, "no column `synset` of keys; they have `number`, `who`");
    up.names(&lookup(&["--on", "number"]), 2, "has integers, but the key column is of type Utf8");
    up.names(&lookup(&["--on", "who", "--columns", "nope"]), 2, "nope");
    up.names(&["lookup", "nope", files[0], files[1], files[2], files[3]], 3, "nope");
    assert!(!output.exists(), "nothing is left of a look-up that failed");
    let on_who = lookup(&["--on", "who", "--columns", "gloss,domain"]);
    let done: Value = up.json(&on_who).remove(0);
    let has_key = |row: &usize| !row.is_multiple_of(7);
    assert_eq!(done["rows"], rows);
    assert_eq!(done["keys"], (0..rows).filter(has_key).count());
    assert_eq!(done["keys_found"], (0..rows).filter(has_key).filter(|row| row % 5 != 0).count());
    up.names(&on_who, 2, "joined.parquet exists");
    // A link that leads nowhere is refused before the node is asked: it serves no such table.
    let link = up.folder.path().join("link.parquet");
    symlink(up.folder.path().join("nothing"), &link).unwrap();
    let to_link = ["lookup", "nope", "--keys", text(&keys), "--output", text(&link)];
    up.names(&to_link, 2, "link.parquet exists");
    let csv = ["lookup", "words", "--keys", text(&keys), "--output", "joined.csv", "--on", "who"];
    up.names(
        &csv,
        2,
        "joined.csv: the rows are written as Parquet; give a name that ends in .parquet",
    );

    let joined = parquet(&output);
    let schema = joined.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["number", "who", "gloss", "domain"]);
    assert_eq!(joined.num_rows(), rows);
    let (numbers, found) = (joined["number"].as_primitive::<Int64Type>(), texts(&joined, "gloss"));
    for row in 0..rows {
        assert_eq!(numbers.value(row), row as i64);
        let is_found = row % 7 != 0 && row % 5 != 0;
        let expected = is_found.then(|| glosses[row * 13 % synsets.len()].clone()).flatten();
        assert_eq!(found[row], expected, "row {row}");
    }
}

#[test]
fn keys_of_csv_are_read_as_the_type_of_the_key_column() {
    let up = Up::start();
    let keys = up.folder.path().join("keys.csv");
    std::fs::write(&keys, "who\n00123\n\"\"\n0456\n").unwrap();
    let output = up.folder.path().join("joined.parquet");
    let lookup = ["lookup", "words", "--keys", text(&keys), "--on", "who"];
    let done: Value = up.json(&[&lookup[..], &["--output", text(&output)]].concat()).remove(0);
    assert_eq!((&done["rows"], &done["keys"]), (&3.into(), &2.into()));
    let expected = ["00123", "0456"].map(|key| Some(key.to_owned()));
    assert_eq!(texts(&parquet(&output), "who"), [&expected[..1], &[None], &expected[1..]].concat());
}

#[test]
fn a_row_is_repeated_for_each_match_if_all_are_wanted() {
    let up = Up::start();
    let truth = parquet(&sample());
    let (synsets, kinds) = (texts(&truth, "synset"), texts(&truth, "pos"));
    let wanted = [kinds[0].as_deref(), Some("nowhere"), None, kinds[77].as_deref()];
    let line = |of: &Option<&str>| serde_json::json!({ "of": of }).to_string() + "\n";
    let keys = up.folder.path().join("keys.jsonl");
    std::fs::write(&keys, wanted.iter().map(line).collect::<String>()).unwrap();
    let output = up.folder.path().join("joined.parquet");
    let files = ["--keys", text(&keys), "--output", text(&output)];
    let by = ["--on", "of", "--key-column", "pos", "--columns", "synset", "--all-rows"];
    let done: Value = up.json(&[&["lookup", "words"], &files[..], &by].concat()).remove(0);
    let joined = parquet(&output);
    let got = texts(&joined, "of").into_iter().zip(texts(&joined, "synset"));
    let expected = wanted.iter().flat_map(|of| {
        let has_it = |(_, kind): &(_, &Option<String>)| of.is_some() && kind.as_deref() == *of;
        let matches = synsets.iter().zip(&kinds).filter(has_it).map(|(synset, _)| synset.clone());
        let mut matches: Vec<_> = matches.collect();
        if matches.is_empty() {
            matches.push(None);
        }
        matches.into_iter().map(|synset| (of.map(str::to_owned), synset))
    });
    let expected: Vec<_> = expected.collect();
    assert!(expected.len() > 10);
    assert_eq!(got.collect::<Vec<_>>(), expected);
    assert_eq!(done["rows"], expected.len());
    assert_eq!((&done["keys"], &done["keys_found"]), (&3.into(), &2.into()));
}

#[test]
fn a_load_on_streams_is_counted_in_keys() {
    let up = Up::start();
    let bench = |more: &[&str]| {
        let load = ["bench", "get", "words", "--requests", "300", "--keys", "16"];
        up.json(&[&load[..], more].concat()).remove(0)
    };
    for distribution in ["uniform", "zipfian", "sequential"] {
        let report = bench(&["--streams", "2", "--distribution", distribution]);
        assert_eq!(report["rows"], 300 * 16, "{report}");
        assert_eq!(report["missing_rows"], 0, "{report}");
    }
    for streams in [&["--streams", "1"][..], &[]] {
        let missing = [streams, &["--distribution", "missing"]].concat();
        let report = bench(&missing);
        assert_eq!((&report["rows"], &report["missing_rows"]), (&0.into(), &(300 * 16).into()));
    }
}

#[test]
fn messages_without_work_are_answered_one_by_one() {
    let up = Up::start();
    for by in [&["--streams", "2"][..], &[], &["--rate", "500", "--poisson"]] {
        let load = [&["bench", "empty", "--requests", "300"], by].concat();
        let report = up.json(&load).remove(0);
        let sent = report["requests"].as_u64().unwrap();
        assert_eq!((&report["rows"], &report["errors"]), (&0.into(), &serde_json::json!({})));
        // With `--poisson`, requests are due at random times, so their number is random too.
        let expected = if by.contains(&"--poisson") { 200..400 } else { 300..301 };
        assert!(expected.contains(&sent), "{report}");
    }
    up.names(&["bench", "empty", "--poisson"], 2, "--rate");
}
