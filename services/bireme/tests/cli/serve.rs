//! An I/O node starts only if its configuration says which tables it serves and, if other machines reach the node, whom it
//! answers.

use crate::names;

/// Returns a command that starts an I/O node for some table.
pub fn io<'a>(listen: &'a str, drive: &'a str) -> [&'a str; 7] {
    ["io", "--listen", listen, "--serve", "/t", "--drive", drive]
}

const IO: [&str; 5] = ["io", "--listen", "127.0.0.1:0", "--drive", "/nowhere/slab:96MiB"];

#[test]
fn a_node_without_tables_ends_with_the_line_to_add() {
    names(&IO, 2, "add the line `serve = [\"s3://bucket/tables/\"]`");
}

#[test]
fn a_uri_that_is_not_plain_is_refused_with_what_is_wrong() {
    for (uri, why) in [
        ("s3://key:hidden@bucket/", "credentials belong in the storage options"),
        ("/data/../tables/", "`.` or `..`"),
        ("http://host/table", "its scheme is not file, s3, gs or az"),
    ] {
        names(&[&IO[..], &["--serve", uri]].concat(), 2, why);
        let table = format!("t={}", uri.trim_end_matches('/'));
        names(&["query", "--io-node", "127.0.0.1:9", "--table", &table], 2, why);
    }
}

#[test]
fn a_node_that_other_machines_reach_does_not_start_before_it_is_settled_whom_it_answers() {
    let io = io("0.0.0.0:0", "/nowhere/slab:96MiB");
    names(&io, 2, "`access` is not set, and other machines reach 0.0.0.0:0");
    names(&io, 2, "access = \"open\"");
    names(&io, 2, "peer_secret = \"/etc/bireme/peer-secret\"");
}
