//! Signals: before a node serves, and while a command writes a file. And the end of a program that started `bireme up`.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::up::{Up, sample_in};
use super::{folder, text};

/// A process that ends with the test.
struct Process {
    child: Child,
    stderr: File,
}

impl Process {
    fn start(arguments: &[&str], stdin: Stdio) -> Self {
        let stderr = tempfile::tempfile().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bireme"));
        command.args(arguments).stdin(stdin).stdout(Stdio::null());
        command.stderr(stderr.try_clone().unwrap());
        Self { child: command.spawn().unwrap(), stderr }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Returns what it printed to stderr.
    fn printed(&mut self) -> String {
        let mut printed = String::new();
        self.stderr.rewind().unwrap();
        self.stderr.read_to_string(&mut printed).unwrap();
        printed
    }

    /// Waits for the end, for up to 60 s.
    fn end(&mut self) -> ExitStatus {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < patience, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a file is in `folder`, whose name `is_meant` accepts.
    fn wait_for_file(&mut self, folder: &Path, is_meant: impl Fn(&str) -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !names_in(folder).iter().any(|name| is_meant(name)) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it has ended: {status}: {}", self.printed());
            }
            assert!(Instant::now() < patience, "it makes no file");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_signal_ends_a_process_that_waits_for_its_store() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let store = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("aws_endpoint=http://{}", store.local_addr().unwrap());
        let folder = folder();
        let cache = folder.path().join("cache");
        let ready = folder.path().join("ready.json");
        let storage =
            ["aws_region=r", "aws_access_key_id=k", "aws_secret_access_key=s", "allow_http=true"];
        let storage = storage.iter().copied().chain([endpoint.as_str()]);
        let mut up = vec!["up", "--table", "t=s3://bucket/t", "--listen", "127.0.0.1:0"];
        up.extend(["--cache-dir", text(&cache), "--ready-file", text(&ready)]);
        up.extend(storage.flat_map(|option| ["--storage", option]));
        let mut process = Process::start(&up, Stdio::null());
        // The store is asked, and never answers.
        let _asked = store.accept().unwrap();
        process.signal(signal);
        assert_eq!(process.end().code(), Some(code), "{signal}");
    }
}

#[test]
fn an_interrupted_measurement_leaves_no_file() {
    let folder = folder();
    let drive = folder.path().join("trial");
    let write = ["bench", "write", "--drive", text(&drive), "--size", "512MiB"];
    let recovery = ["bench", "recovery", "--drive", text(&drive), "--starts", "1000"];
    for arguments in [&write[..], &recovery] {
        let mut process = Process::start(arguments, Stdio::null());
        process.wait_for_file(folder.path(), |_| true);
        process.signal("-INT");
        assert_eq!(process.end().code(), Some(130), "{arguments:?}");
        assert_eq!(names_in(folder.path()), [""; 0], "{arguments:?}");
    }
}

#[test]
fn an_interrupted_look_up_leaves_no_file() {
    let up = Up::start();
    let rows = folder();
    let keys = rows.path().join("keys.csv");
    // Enough keys for several seconds.
    std::fs::write(&keys, format!("synset\n{}", "n02503517\n".repeat(10_000_000))).unwrap();
    let output = folder();
    let joined = output.path().join("joined.parquet");
    let files = ["--keys", text(&keys), "--output", text(&joined)];
    let lookup = [&["lookup", "words", "--endpoint", &up.endpoint], &files[..]].concat();
    let mut process = Process::start(&lookup, Stdio::null());
    // The first file only tries whether the folder can be written to.
    let mut file_size = 0;
    while file_size == 0 {
        process.wait_for_file(output.path(), |_| true);
        let sizes = names_in(output.path()).into_iter();
        let sizes =
            sizes.map(|it| std::fs::metadata(output.path().join(it)).map_or(0, |it| it.len()));
        file_size = sizes.sum();
    }
    process.signal("-INT");
    assert_eq!(process.end().code(), Some(130));
    assert_eq!(names_in(output.path()), [""; 0]);
}

#[test]
fn a_temporary_server_ends_with_the_program_that_started_it() {
    let folder = folder();
    let named = sample_in(&folder);
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    let ready = cache.join("ready.json");
    let mut up = vec!["up", "--temporary", "--cache-dir", text(&cache), "--table", &named];
    up.extend(["--listen", "127.0.0.1:0", "--cache-size", "128MiB", "--ready-file", text(&ready)]);
    let mut process = Process::start(&up, Stdio::piped());
    process.wait_for_file(&cache, |name| name == "ready.json");
    assert!(cache.join("slab").exists());
    drop(process.child.stdin.take());
    assert!(process.end().success());
    assert!(!cache.exists());
}
