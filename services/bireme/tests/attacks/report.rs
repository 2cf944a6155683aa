//! Reports results of tests for the table of attacks in `docs/security.md`.

use std::io::Write;

/// Reports that the defence against attack `row` (its number in `docs/security.md`) held, and what was observed, such
/// as `refused from 65 terms`. A test calls this last, so that a test that fails reports nothing.
///
/// The line goes to stdout and, where `BIREME_ATTACKS_RESULTS` names a file, is added to it as JSON.
pub fn held(row: u32, attack: &str, seen: &str) {
    println!("row {row}: {attack}: {seen}");
    let Some(results) = std::env::var_os("BIREME_ATTACKS_RESULTS") else { return };
    let line = serde_json::json!({"row": row, "attack": attack, "seen": seen});
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(results).unwrap();
    // Write the line in one call, so that lines of tests that run at the same time are not mixed.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
