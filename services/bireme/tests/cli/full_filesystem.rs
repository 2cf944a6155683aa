//! A sparse slab on a filesystem that fills up: the node stays up, rows are right, and the fault is reported.
//!
//! The filesystem is an ext4 image that is mounted in a namespace of the node's own, so no mount is left, however the
//! test ends. If the kernel doesn't allow that, the test is skipped and says so on stderr; with BIREME_REQUIRE_MOUNT it
//! fails.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use client::fetch::{FetchClient, FetchOptions, Instant, TableVersion};
use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;
use wire::fetch::{DriveState, WarmRequest};

use super::query_process::QueryProcess;
use super::{bireme, folder, json, names, run, text};

const FRAGMENTS: u32 = 8;
const ROWS_PER_FRAGMENT: u32 = 4000;

/// The filesystem is smaller than the rows of the table (19 MB), and the slab is larger.
const FILESYSTEM_BYTES: u64 = 12 << 20;
const SLAB_BYTES: u64 = 64 << 20;

/// Mounts the image on a folder, where only the node sees it, makes a sparse slab there, and becomes the node.
const SCRIPT: &str = r#"
    mount -t ext4 -o loop "$1" "$2" || exit 77
    truncate -s "$4" "$2/slab" && exec "$3" io --listen 127.0.0.1:0 --no-pin --json --drive "$2/slab" --serve "$5"
"#;

/// The exit code of the script if mounting is not allowed.
const NO_MOUNT: i32 = 77;

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns 600 hexadecimal digits of random bytes, which compress to no less than half their size.
fn words(id: u32) -> String {
    let mut bytes = [0; 300];
    StdRng::seed_from_u64(id.into()).fill_bytes(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn make_table(folder: &Path) -> String {
    let table = folder.join("table");
    for fragment in 0..FRAGMENTS {
        let path = folder.join("rows.jsonl");
        let mut file = std::io::BufWriter::new(File::create(&path).unwrap());
        for id in fragment * ROWS_PER_FRAGMENT..(fragment + 1) * ROWS_PER_FRAGMENT {
            writeln!(file, r#"{{"words":"{}"}}"#, words(id)).unwrap();
        }
        file.into_inner().unwrap();
        let mode = if fragment == 0 { "create" } else { "append" };
        run(&["ingest", text(&path), "--table", text(&table), "--mode", mode]);
    }
    text(&table).to_owned()
}

/// Starts the node. Returns it with its endpoint; `None` if its filesystem can't be mounted.
fn start(folder: &Path, log: &Path) -> Option<(Node, String)> {
    let image = folder.join("image");
    File::create(&image).unwrap().set_len(FILESYSTEM_BYTES).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-m", "0", text(&image)]).output();
    let mount = folder.join("mount");
    std::fs::create_dir(&mount).unwrap();
    let size = SLAB_BYTES.to_string();
    let bireme = env!("CARGO_BIN_EXE_bireme");
    let process = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"])
        .args([text(&image), text(&mount), bireme, &size, &format!("{}/", text(folder))])
        .envs([("BIREME_IO_RAM_TIER", "0"), ("BIREME_IO_SEGMENT", "4MiB")])
        .stdout(Stdio::piped())
        .stderr(File::create(log).unwrap())
        .spawn();
    let mut process = match (made, process) {
        (Ok(made), Ok(process)) if made.status.success() => Node(process),
        (made, process) => return skipped(&format!("{made:?}, {:?}", process.map(|_| ()))),
    };
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let status = process.0.wait().unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        // `unshare` exits with 1 if it fails itself.
        assert!(
            matches!(status.code(), Some(NO_MOUNT | 1)),
            "the node does not start: {status}: {log}"
        );
        return skipped(&log);
    }
    let serving: Value = serde_json::from_str(&line).unwrap();
    Some((process, serving["endpoint"].as_str().unwrap().to_owned()))
}

/// Reports that the test is skipped. Writes to stderr directly, which the test harness doesn't capture.
fn skipped<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("BIREME_REQUIRE_MOUNT").is_none(), "no small filesystem: {why}");
    let text =
        format!("\nSKIPPED full_filesystem: this kernel mounts nothing for the test: {why}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    None
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn check(client: &FetchClient, uri: &str) {
    let table = TableVersion { uri, branch: "", version: u64::from(FRAGMENTS), identity: "" };
    let projection = client.open(table, &["words".into()], soon()).await.unwrap();
    let ids: Vec<u32> = (0..FRAGMENTS * ROWS_PER_FRAGMENT).step_by(61).collect();
    let addr = |&id: &u32| RowAddr::new(id / ROWS_PER_FRAGMENT, id % ROWS_PER_FRAGMENT);
    let addrs = ids.iter().map(addr).collect();
    let rows = client.fetch(&projection, addrs, None, soon()).await.unwrap().into_rows().unwrap();
    for (got, &id) in rows["words"].as_string::<i32>().iter().zip(&ids) {
        assert_eq!(got, Some(words(id).as_str()), "row {id}");
    }
}

#[test]
fn a_full_filesystem_is_reported_and_rows_stay_right() {
    let folder = folder();
    let log = folder.path().join("log");
    let Some((mut node, endpoint)) = start(folder.path(), &log) else { return };
    let uri = make_table(folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = FetchClient::new(endpoint.parse().unwrap(), FetchOptions::default()).unwrap();
        let request =
            WarmRequest { table_uri: uri.clone(), version: FRAGMENTS.into(), ..Default::default() };
        let steps = client.warm(request).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        let last = steps.last().unwrap();
        assert!(last.extents_failed > 0 && last.extents_done > 0, "{last:?}");
        assert!(!last.last_error.is_empty());
        let described = client.describe(Duration::from_secs(10)).await.unwrap();
        assert_eq!(described.drives[0].state(), DriveState::ReadOnly);
        assert!(described.extents > 0);
        // Some rows come from the drive, the others from the table.
        check(&client, &uri).await;
        let after = client.describe(Duration::from_secs(10)).await.unwrap();
        let table_rows: u64 = after.cores.iter().map(|core| core.table_rows).sum();
        let reads: u64 = after.cores.iter().map(|core| core.drive_reads).sum();
        assert!(table_rows > 0 && reads > 0, "{table_rows} rows from the table, {reads} reads");
        check(&client, &uri).await;
    });
    assert!(node.0.try_wait().unwrap().is_none(), "the node is gone");
    let log = std::fs::read_to_string(&log).unwrap();
    let line = log.lines().find(|line| line.contains("the drive takes no more writes"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.to_lowercase().contains("no space"), "{line}");

    // The status of the query tier shows the read-only drive.
    let query = QueryProcess::start(&endpoint, &format!("t={uri}"));
    let endpoint = query.endpoint.as_str();
    let status = &json(&["status", "--endpoint", endpoint])[0];
    let drives = status["io_nodes"][0]["read_only_drives"].as_array().unwrap();
    assert_eq!(drives[0], "0:slab", "{status}");
    let status = bireme(&["status", "--endpoint", endpoint]);
    let printed = String::from_utf8(status.stdout).unwrap();
    assert!(printed.contains("takes no more writes"), "{printed}");

    // The exit code of `status` tells that a node is gone.
    drop(node);
    names(&["status", "--endpoint", endpoint], 4, "1 of 1 I/O node did not answer");
}
