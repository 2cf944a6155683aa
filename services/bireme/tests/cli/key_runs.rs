//! `bireme index --key-runs`: the files of key indexes beside a table, and how nodes use them.

use std::path::PathBuf;

use crate::{bireme, folder, json, names, run, sample, text};

struct Runs {
    _folder: tempfile::TempDir,
    table: PathBuf,
}

impl Runs {
    fn ingested() -> Self {
        let folder = folder();
        let table = folder.path().join("words");
        run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
        Self { _folder: folder, table }
    }

    /// Returns what `--key-runs` reports.
    fn write(&self) -> serde_json::Value {
        json(&["index", "--table", text(&self.table), "--key-runs"]).remove(0)
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.table.join("_bireme/keys")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    }
}

#[test]
fn runs_are_written_with_the_key_and_again_only_where_data_is_new() {
    let runs = Runs::ingested();
    let made = json(&["index", "--table", text(&runs.table), "--key", "synset"]);
    assert_eq!(made.len(), 2, "the BTREE and the runs");
    assert_eq!((&made[0]["kind"], &made[1]["index"]), (&"BTree".into(), &"key_runs".into()));
    assert_eq!((&made[1]["rows"], &made[1]["runs_written"]), (&6927.into(), &1.into()));
    let [file] = runs.files().try_into().unwrap();
    assert_eq!(made[1]["bytes"], std::fs::metadata(&file).unwrap().len());

    let again = runs.write();
    assert_eq!((&again["column"], &again["runs_written"]), (&"synset".into(), &0.into()));
    assert_eq!(again["version"], made[1]["version"], "no new version was made");
    run(&["ingest", text(&sample()), "--table", text(&runs.table), "--mode", "append"]);
    let appended = runs.write();
    assert_eq!((&appended["runs"], &appended["runs_written"]), (&2.into(), &1.into()));
    assert!(runs.files().contains(&file));
    let said = run(&["index", "--table", text(&runs.table), "--key-runs"]);
    assert!(said.starts_with("key runs on synset: 13,854 rows in "), "{said}");
    assert!(said.ends_with(" (0 written), 0 obsolete files deleted\n"), "{said}");
}

#[test]
fn a_damaged_file_is_named_and_replaced() {
    let runs = Runs::ingested();
    assert_eq!(runs.write()["runs_written"], 1);
    let [file] = runs.files().try_into().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = bireme(&["index", "--table", text(&runs.table), "--key-runs", "--json"]);
    assert!(output.status.success());
    let warned = String::from_utf8(output.stderr).unwrap();
    let expected = format!("bireme: warning: {}: damaged key index: page 0: ", text(&file));
    assert!(warned.starts_with(&expected) && warned.ends_with("is written again\n"), "{warned}");
    assert!(!file.exists());
    assert_eq!(runs.write()["runs_written"], 0);
}

#[test]
fn a_table_without_a_key_column_has_no_runs() {
    let folder = folder();
    let table = folder.path().join("words");
    run(&["ingest", text(&sample()), "--table", text(&table)]);
    let index = ["index", "--table", text(&table)];
    names(&[&index[..], &["--key-runs"]].concat(), 2, "name one with --key COLUMN");
    assert!(!table.join("_bireme").exists());
}

#[test]
fn dates_are_keys_and_several_columns_are_none() {
    let folder = folder();
    let (file, table) = (folder.path().join("days.csv"), folder.path().join("days"));
    std::fs::write(&file, "day,n,x\n2026-11-24,1,0.5\n2026-11-25,2,1.5\n").unwrap();
    run(&["ingest", text(&file), "--table", text(&table), "--key", "day"]);
    let index = ["index", "--table", text(&table)];
    let made = json(&[&index[..], &["--key", "day"]].concat());
    assert_eq!((&made[0]["duplicate_keys"], &made[1]["rows"]), (&0.into(), &2.into()));
    names(&[&index[..], &["--key", "day,n"]].concat(), 2, "a key is one column");
    let float = [&index[..], &["--key", "x", "--replace-key"]].concat();
    names(&float, 2, "keys are strings, integers, decimals, dates, timestamps or binary");
}
