//! `bireme take`, by addresses and by offsets.

use serde_json::Value;

use crate::bireme;
use crate::up::Up;

#[test]
fn rows_that_are_there_are_printed_beside_those_that_are_not() {
    let up = Up::start();
    let take = |more: &[&str]| {
        let command = ["take", "words", "0:5", "99:1", "0:7", "--json"];
        bireme(&[&command[..], more, &["--endpoint", &up.endpoint]].concat())
    };
    for (more, exit) in [(&[][..], 3), (&["--skip-missing"], 0)] {
        let output = take(more);
        let rows = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<Value> =
            rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(output.status.code(), Some(exit));
        assert_eq!([&rows[0]["_rowaddr"], &rows[1]["_rowaddr"]], [5, 7]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("no row at the address 425201762305 (99:1)"), "{stderr}");
    }
}

#[test]
fn rows_are_taken_by_their_offsets() {
    let up = Up::start();
    let taken = up.json(&["take", "words", "--offsets", "5,0", "--columns", "synset"]);
    let addresses: Vec<_> = taken.iter().map(|row| row["_rowaddr"].as_u64().unwrap()).collect();
    assert_eq!(addresses, [5, 0], "no row is deleted");
    up.names(
        &["take", "words", "--offsets", "0,99999,99998"],
        3,
        "at the offsets 99999, 99998 (after its last",
    );
    up.names(&["take", "words"], 2, "<ROWADDR>");
    up.names(&["take", "words", "0:0", "--offsets", "0"], 2, "--offsets");
}
