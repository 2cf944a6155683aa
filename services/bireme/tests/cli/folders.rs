//! `bireme up` over a folder of tables.

use std::time::{Duration, Instant};

use serde_json::json;

use super::up::Up;
use super::{folder, names, run, sample, text};

#[test]
fn a_folder_is_served_with_the_tables_that_appear_in_it() {
    let root = folder();
    let lake = root.path().join("lake");
    names(&["up", "--tables", text(&lake)], 3, "no folder or bucket at");
    let ingest = |name: &str| {
        let table = lake.join(name);
        run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    };
    ingest("words.lance");
    let up = Up::of(root, &["--tables", text(&lake)]);
    let tables = up.json(&["tables"]).remove(0)["tables"].take();
    assert_eq!(tables, json!([{"name": "words", "version": 0, "rows": 0, "error": null}]));
    let shown = |command: &str| run(&[command, "--endpoint", &up.endpoint]);
    assert!(shown("tables").contains("closed"));
    up.json(&["get", "words", "n02503517"]);
    assert!(shown("tables").contains("serving"));
    let status = shown("status");
    assert!(status.contains("lake/: 1 table served\n"), "{status}");
    ingest("more.lance");
    let patience = Instant::now() + Duration::from_secs(60);
    while !shown("tables").contains("more") {
        assert!(Instant::now() < patience, "the table does not appear");
        std::thread::sleep(Duration::from_millis(100));
    }
    up.json(&["get", "more", "n02503517"]);
    let folders = up.json(&["status"]).remove(0)["folders"].take();
    assert_eq!((&folders[0]["tables"], &folders[0]["error"]), (&json!(2), &json!(null)));
}
