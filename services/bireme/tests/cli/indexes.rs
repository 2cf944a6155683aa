//! `bireme index` on columns that have an index.

use crate::{folder, json, run, text};

#[test]
fn an_index_that_is_built_again_keeps_its_kind_its_metric_and_its_positions() {
    let folder = folder();
    let (file, table) = (folder.path().join("rows.jsonl"), folder.path().join("table"));
    let row =
        |i: u32| format!("{{\"v\":[{i}.5,1.5,1.5,1.5,1.5,1.5,1.5,1.5],\"words\":\"red shoes\"}}\n");
    std::fs::write(&file, (0..9).map(row).collect::<String>()).unwrap();
    let ingest = ["ingest", text(&file), "--table", text(&table), "--mode", "overwrite"];
    run(&ingest);
    let index = ["index", "--table", text(&table), "--vector", "v", "--text", "words"];
    let options = ["--kind", "ivf-hnsw-sq", "--metric", "cosine", "--positions"];
    run(&[&index[..], &options].concat());
    run(&index);
    let commands = json(&ingest)[0]["index_commands"].to_string();
    for option in ["--kind ivf-hnsw-sq", "--metric cosine", "--positions"] {
        assert!(commands.contains(option), "{option}: {commands}");
    }
    run(&index);
    run(&[&index[..], &["--metric", "dot", "--kind", "ivf-rq"]].concat());
    let commands = json(&ingest)[0]["index_commands"].to_string();
    assert!(commands.contains("--metric dot") && !commands.contains("hnsw"), "{commands}");
    assert!(!commands.contains("--bits"), "{commands}");
    run(&[&index[..], &["--kind", "ivf-rq", "--bits", "3"]].concat());
    let commands = json(&ingest)[0]["index_commands"].to_string();
    assert!(commands.contains("--bits 3"), "{commands}");
}
