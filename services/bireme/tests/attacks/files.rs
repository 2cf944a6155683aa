//! Attacks with damaged tables, and on the files that a node creates and its log.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, PATIENCE, Settings};
use super::good_caller::GoodCaller;
use super::report::held;
use super::{binary, folder, text, words_table};

/// The limit on a node's memory while damaged tables are requested, in MiB: a fifth of its address space. A node that
/// stays below it has not allocated the lengths that the damaged files announce.
const PEAK_MIB_MAX: u64 = 1024;

/// The number of times that each damaged table is requested.
const ROUNDS: usize = 3;

fn command(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Makes the footer of each Lance file in `folder` announce 4,294,967,295 global buffers, whose list would take 64 GiB.
fn count_too_many(folder: &Path) {
    for file in files(folder) {
        let mut bytes = fs::read(&file).unwrap();
        if bytes.ends_with(b"LANC") {
            let at = bytes.len() - 16;
            bytes[at..at + 4].fill(0xff);
            fs::write(file, bytes).unwrap();
        }
    }
}

fn cut_in_half(folder: &Path) {
    for file in files(folder) {
        let bytes = fs::read(&file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }
}

/// Overwrites four of every 64 bytes, except in the last tenth of each file, so that lengths in pages become too large.
fn lengthen(folder: &Path) {
    for file in files(folder) {
        let mut bytes = fs::read(&file).unwrap();
        let pages = bytes.len() * 9 / 10;
        for at in (0..pages.saturating_sub(8)).step_by(64) {
            bytes[at..at + 4].fill(0xff);
        }
        fs::write(file, bytes).unwrap();
    }
}

fn varint(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(number, &mut bytes);
    bytes
}

/// Adds a version whose schema nests 100,000 deep, which overflows the stack of a recursive walk.
fn nest(table: &Path) {
    let mut message = Vec::new();
    for id in 0..100_000u64 {
        // The field's id and its parent's id, which is -1 for the first field, because it has no parent.
        let field = [&[0x18][..], &varint(id), &[0x20], &varint(id.wrapping_sub(1))].concat();
        message.extend([&[0x0a][..], &varint(field.len() as u64), &field].concat());
    }
    let mut file = (message.len() as u32).to_le_bytes().to_vec();
    file.extend(message);
    file.extend(0u64.to_le_bytes());
    file.extend([0, 0, 2, 0]);
    file.extend(b"LANC");
    let versions = table.join("_versions");
    let stem = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    // A manifest's name is the highest u64 minus its version.
    let latest = files(&versions).iter().filter_map(stem).min().unwrap();
    fs::write(versions.join(format!("{:020}.manifest", latest - 1)), file).unwrap();
}

/// A function that damages the table in a folder.
type Harm = fn(&Path);

#[test]
fn damaged_tables_stop_no_node() {
    let folder = folder();
    let words = words_table(folder.path());
    let harms: [(&str, Harm); 5] = [
        ("data", |table| count_too_many(&table.join("data"))),
        ("indexes", |table| count_too_many(&table.join("_indices"))),
        ("cut", |table| cut_in_half(&table.join("data"))),
        ("lengths", |table| {
            lengthen(&table.join("data"));
            lengthen(&table.join("_indices"));
        }),
        ("nested", nest),
    ];
    let mut settings = Settings::default();
    for (name, _) in harms {
        let table = folder.path().join(name);
        copy(&words, &table);
        settings.query_arguments.extend(["--table".into(), format!("{name}={}", text(&table))]);
    }
    let cluster = Cluster::start_over(&settings, folder, words);
    let caller = GoodCaller::start(&cluster);
    for (name, harm) in harms {
        harm(&cluster.folder().join(name));
    }
    // Wait until the node has checked for new versions.
    std::thread::sleep(Duration::from_secs(1));
    let mut refused = 0;
    for _ in 0..ROUNDS {
        for (name, _) in harms {
            for question in [
                &["get", name, "n02503517"][..],
                &["search", name, "--text", "elephant", "-k", "5"],
                &["search", name, "--like", "n02503517", "-k", "5"],
                &["warm", name],
            ] {
                let answer =
                    command(&[question, &["--endpoint", &cluster.query.endpoint]].concat());
                refused += u32::from(!answer.status.success());
                for node in [&cluster.io, &cluster.query] {
                    node.assert_alive();
                }
            }
        }
    }
    let seen = caller.stop();
    assert!(seen.answered > 0 && seen.refused.is_empty(), "{seen:?}");
    assert!(refused >= 10, "{refused} were refused");
    cluster.assert_healthy();
    let peaks = [cluster.io.peak_mib(), cluster.query.peak_mib()];
    assert!(peaks.iter().all(|peak| *peak <= PEAK_MIB_MAX), "{peaks:?} MiB");
    for node in [&cluster.io, &cluster.query] {
        let forged = node.log().lines().filter(|line| !line.starts_with('{')).count();
        assert_eq!(forged, 0, "each line is an object: {}", node.log());
    }
    let [io, query] = peaks;
    held(
        15,
        "damaged tables",
        &format!("{refused} refused; at most {io} MiB (I/O node) and {query} MiB (query node)"),
    );
}

#[test]
fn nobody_else_reads_what_a_node_writes() {
    let folder = folder();
    let slab = folder.path().join("slab");
    fs::write(&slab, vec![0; 256 << 20]).unwrap();
    fs::set_permissions(&slab, Permissions::from_mode(0o644)).unwrap();
    let words = words_table(folder.path());
    let cluster = Cluster::start_over(&Settings::default(), folder, words);
    let mode = fs::metadata(&slab).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);
    assert!(cluster.io.log().contains("0644"), "{}", cluster.io.log());
    // The slab's path is not exposed.
    let metrics = cluster.io.scrape();
    let status = command(&["status", "--json", "--endpoint", &cluster.query.endpoint]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(metrics.contains("drive=\"0:slab\""), "{metrics}");
    for output in [&metrics, &status] {
        assert!(!output.contains(text(&slab)), "{output}");
    }
    held(14, "a slab that others could read", "0600 once it is opened; named 0:slab");
}

#[test]
fn a_planted_ready_file_is_not_followed() {
    let folder = folder();
    let words = words_table(folder.path());
    let (ready, precious) = (folder.path().join("ready"), folder.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    let named = format!("words={}", text(&words));
    let cache = folder.path().join("cache");
    let up = ["up", "--table", &named, "--listen", "127.0.0.1:0"];
    let files =
        ["--cache-dir", text(&cache), "--cache-size", "64MiB", "--ready-file", text(&ready)];
    symlink(&precious, &ready).unwrap();
    let refused = command(&[&up[..], &files].concat());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("something other"), "{said}");
    fs::remove_file(&ready).unwrap();
    // A link under the name that earlier versions gave the unfinished file.
    let planted = folder.path().join("ready.new");
    symlink(&precious, &planted).unwrap();
    let mut up = Command::new(binary()).args(up).args(files).spawn().unwrap();
    let began = Instant::now();
    while !ready.exists() && began.elapsed() < PATIENCE {
        assert!(up.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    let modes = [&ready, &cache, &cache.join("slab")]
        .map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    up.kill().unwrap();
    up.wait().unwrap();
    assert_eq!(modes, [0o600, 0o700, 0o600]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(planted.symlink_metadata().unwrap().is_symlink());
    held(14, "a link planted as the ready file", "refused; never followed");
}

#[test]
fn an_error_is_one_line_whatever_the_uri_contains() {
    let uri = "/nowhere/t\n2026-01-01T00:00:00Z  INFO forged: \u{1b}[2J\u{7}";
    let output = command(&["describe", "--table", uri]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    let is_clean =
        |text: &str| text.lines().count() == 1 && !text.trim_end().contains(char::is_control);
    assert!(is_clean(&stderr), "{stderr:?}");
    held(14, "line breaks and escape sequences in a URI", "one line, with the characters escaped");
}
