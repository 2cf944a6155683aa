//! Nodes with TLS announce endpoints that can be used as they are.

use std::time::Duration;

use certificates::Authority;

use super::serving::{endpoint, serving};
use super::{bireme, folder, text};

#[test]
fn nodes_with_tls_announce_https() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let pair = authority.issue("node.example", Duration::from_secs(3600));
    let drive = format!("{}:96MiB", text(&folder.path().join("slab")));
    let io = ["io", "--no-pin", "--drive", &drive, "--serve", "/t"];
    let query = ["query", "--io-node", "127.0.0.1:9"];
    for arguments in [&io[..], &query] {
        let config = folder.path().join("node.toml");
        let tls = format!("[tls]\ncert = {:?}\nkey = {:?}\n", pair.cert, pair.key);
        std::fs::write(&config, tls).unwrap();
        let (mut process, says) = serving(&[arguments, &["--config", text(&config)]].concat(), &[]);
        let at = endpoint(&says);
        let tls = ["--tls-ca", text(&authority.ca), "--tls-name", "node.example"];
        let listed = bireme(&[&["tables", "--endpoint", &at], &tls[..]].concat());
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(at.starts_with("https://127.0.0.1:"), "{says}");
        // An I/O node has no tables to list.
        assert_eq!(listed.status.success(), arguments == query, "{listed:?}");
    }
}
