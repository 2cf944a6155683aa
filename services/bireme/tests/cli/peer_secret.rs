//! Tests the secret that both tiers share, set as users set it.

use super::io_process::IoProcess;
use super::serving::{endpoint, serving};
use super::{folder, json, names, refused, run, sample, text};

const SECRET: &str = "the-secret-of-both-tiers-0123456789abcdef";

#[test]
fn a_faulty_secret_is_reported_before_anything_starts() {
    let folder = folder();
    let [short, missing, slab] = ["short", "missing", "slab"].map(|name| folder.path().join(name));
    std::fs::write(&short, "changeme").unwrap();
    let drive = format!("[[drives]]\npath = {slab:?}\nsize = \"96MiB\"\n");
    let io_nodes = "[[io_nodes]]\nendpoint = \"127.0.0.1:9\"\n";
    for (command, serve, more) in
        [("io", "serve = [\"/t\"]\n", drive.as_str()), ("query", "", io_nodes)]
    {
        let config = folder.path().join(format!("{command}.toml"));
        let start = [command, "--listen", "127.0.0.1:0", "--config", text(&config)];
        for (file, exit, said) in [
            (&short, 2, "has a secret of 8 characters, which could be guessed; write at least 32"),
            (&missing, 3, "missing can't be read"),
        ] {
            std::fs::write(&config, format!("peer_secret = {file:?}\n{serve}{more}")).unwrap();
            names(&start, exit, said);
            names(&start, exit, "configuration: `peer_secret`: ");
        }
        let (_, line) = refused(&start);
        assert!(!line.contains("changeme"), "{line}");
    }
}

#[test]
fn both_tiers_and_the_benchmark_prove_that_they_know_the_secret() {
    let folder = folder();
    let [secret, table, slab] = ["secret", "words", "slab"].map(|name| folder.path().join(name));
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    let drive = format!("{}:96MiB", text(&slab));
    let io = IoProcess::start(&drive, &[("PEER_SECRET", text(&secret))]);
    let named = format!("words={}", text(&table));
    let start = |variables: &[(String, String)]| {
        let arguments = ["query", "--io-node", &io.endpoint, "--table", &named];
        let (process, says) = serving(&arguments, variables);
        (Ended(process), endpoint(&says))
    };
    let variable = ("BIREME_QUERY_PEER_SECRET".to_owned(), text(&secret).to_owned());
    let (_query, knowing) = start(&[variable]);
    let (_other, without) = start(&[]);
    for endpoint in [&knowing, &without] {
        let taken = run(&["take", "words", "0", "--columns", "synset", "--endpoint", endpoint]);
        assert!(taken.contains("synset"), "{taken}");
    }
    let shown = json(&["status", "--endpoint", &knowing]).remove(0);
    assert_eq!(shown["io_nodes"][0]["reachable"], true, "{shown}");
    assert_eq!(shown["fallback_rows"], 0, "{shown}");
    let said = "answers only its peers; query nodes need the secret of its setting `peer_secret`";
    names(&["status", "--endpoint", &without], 4, said);

    let bench = ["bench", "fetch", "words", "--uri", text(&table), "--seconds", "1"];
    let bench = [&bench[..], &["--endpoint", &knowing]].concat();
    names(&bench, 4, said);
    let measured = &json(&[&bench[..], &["--peer-secret", text(&secret)]].concat())[0];
    assert!(measured["requests"].as_u64().unwrap_or_default() > 0, "{measured}");
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
