//! `bireme get` of rows of which some can't be read.

use std::fs::File;
use std::path::PathBuf;

use super::up::Up;
use super::{bireme, folder, run, text};

#[test]
fn get_prints_the_rows_that_can_be_read_and_names_the_keys_of_the_others() {
    let folder = folder();
    let table = folder.path().join("table");
    for (name, rows, mode) in
        [("one.csv", "k,v\na,1\nb,2\n", "create"), ("two.csv", "k,v\nc,3\nd,4\n", "append")]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, rows).unwrap();
        run(&["ingest", text(&file), "--table", text(&table), "--mode", mode]);
    }
    run(&["index", "--table", text(&table), "--key", "k"]);
    let up = Up::of(folder, &["--table", &format!("t={}", text(&table))]);
    assert_eq!(up.json(&["get", "t", "a"])[0]["v"], 1);
    let files = std::fs::read_dir(table.join("data")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|file| file.metadata().unwrap().modified().unwrap());
    assert_eq!(files.len(), 2);
    File::options().write(true).open(&files[1]).unwrap().set_len(64).unwrap();
    let output = bireme(&["get", "t", "c", "b", "x", "d", "--json", "--endpoint", &up.endpoint]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stdout.contains("\"k\":\"b\"") && stdout.lines().count() == 1, "{stdout}");
    assert!(stderr.contains("can't read the rows of the keys `c`, `d`: "), "{stderr}");
    assert!(stderr.contains("; no row of table `t` has the key `x`"), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
}
