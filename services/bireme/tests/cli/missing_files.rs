//! Every command reports a missing file in the same way.

use crate::{folder, names, text};

/// The exit code of a command whose file is missing.
const NOT_FOUND: i32 = 3;

#[test]
fn every_command_reports_a_missing_file_alike() {
    let folder = folder();
    let (missing, rows) = (folder.path().join("missing"), folder.path().join("missing.csv"));
    let (missing, rows, cache) = (text(&missing), text(&rows), folder.path().join("cache"));
    let (list, served) = (format!("file:{missing}"), format!("t={missing}"));
    let endpoint = "https://127.0.0.1:9";
    let up = ["up", "--table", &served, "--listen", "127.0.0.1:0"];
    for command in [
        &["ingest", rows, "--table", text(&cache)][..],
        &["index", "--table", missing, "--text", "a"],
        &["search", "t", "--vector", missing],
        &["search", "t", "--vectors", rows],
        &["lookup", "t", "--keys", rows, "--output", text(&folder.path().join("x.parquet"))],
        &["tables", "--token-file", missing],
        &["tables", "--endpoint", endpoint, "--tls-ca", missing],
        &["tables", "--endpoint", endpoint, "--tls-cert", missing, "--tls-key", missing],
        &["inspect", missing],
        &["io", "--config", missing],
        &["query", "--config", missing],
        &["query", "--listen", "127.0.0.1:0", "--io-nodes-from", &list],
        &[&up[..], &["--cache-dir", text(&cache), "--cache-size", "128MiB"]].concat(),
    ] {
        names(command, NOT_FOUND, missing);
    }
    let tls = format!("[tls]\ncert = {missing:?}\nkey = {missing:?}\n");
    let slab = folder.path().join("slab");
    let drive = format!("[[drives]]\npath = {slab:?}\nsize = \"96MiB\"\n");
    let io_nodes = "[[io_nodes]]\nendpoint = \"127.0.0.1:9\"\n";
    for (command, serve, more) in
        [("io", "serve = [\"/t\"]\n", drive.as_str()), ("query", "", io_nodes)]
    {
        let config = folder.path().join(format!("{command}.toml"));
        std::fs::write(&config, format!("listen = \"127.0.0.1:0\"\n{serve}{tls}{more}")).unwrap();
        names(&[command, "--config", text(&config)], NOT_FOUND, "missing can't be read");
        let secrets = format!("storage_secrets = {missing:?}\n{serve}{more}");
        std::fs::write(&config, format!("listen = \"127.0.0.1:0\"\n{secrets}")).unwrap();
        names(&[command, "--config", text(&config)], NOT_FOUND, "`storage_secrets`: ");
    }
}

#[test]
fn an_output_whose_folder_is_missing_is_named_with_the_folder() {
    let folder = folder();
    let keys = folder.path().join("keys.csv");
    std::fs::write(&keys, "id\n1\n").unwrap();
    let absent = folder.path().join("absent");
    let (curve, joined) = (absent.join("curve"), absent.join("joined.parquet"));
    for (command, output) in [
        (&["tune", "t"][..], text(&curve)),
        (&["lookup", "t", "--keys", text(&keys)], text(&joined)),
    ] {
        // The output is checked before the node, which does not exist, is called.
        let command = [command, &["--output", output, "--endpoint", "http://127.0.0.1:9"]].concat();
        let says = format!(
            "{output} can't be written: there is no folder {}; choose another --output",
            absent.display()
        );
        names(&command, NOT_FOUND, &says);
    }
}
