//! Runs the binary as a user does: ingests files, starts both tiers, gets rows, and makes mistakes.

mod announced;
mod damaged_rows;
mod folders;
mod full_filesystem;
mod hostile;
mod indexes;
mod io_process;
mod key_runs;
mod killed;
mod kubernetes;
mod lookup;
mod missing_files;
mod peer_secret;
mod query_process;
mod recall;
mod searches;
mod serve;
mod serving;
mod start_warm;
mod stopped;
mod take;
mod up;
mod versions;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use io_process::IoProcess;
use query_process::QueryProcess;
use up::Up;

fn bireme(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bireme")).args(arguments).output().unwrap()
}

/// Runs a command that must succeed. Returns what it printed.
fn run(arguments: &[&str]) -> String {
    let output = bireme(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command with `--json`. Returns the lines that it printed.
fn json(arguments: &[&str]) -> Vec<Value> {
    let text = run(&[arguments, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command that must fail. Returns its exit code and the one line that says why.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = bireme(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = stderr.lines().filter(|line| line.starts_with("bireme: ")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?} says `{stderr}`");
    (output.status.code().unwrap(), lines[0].to_owned())
}

/// Asserts that a command fails with this exit code, and that its error contains `name`.
fn names(arguments: &[&str], exit: i32, name: &str) {
    let (code, line) = refused(arguments);
    assert!(line.contains(name), "{arguments:?}: `{line}` does not name `{name}`");
    assert_eq!(code, exit, "{arguments:?}: {line}");
}

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/wordnet-sample.parquet")
}

#[test]
fn a_file_becomes_a_table_that_is_searched_and_read() {
    let up = Up::start();
    let found = up.json(&["search", "words", "--like", "n02503517", "-k", "3"]);
    assert_eq!(found.len(), 3);
    assert_eq!(found[0]["synset"], "n02503517");
    assert!(found[0]["_distance"].as_f64().unwrap().abs() < 1e-5);
    let of = ["search", "words", "--filter", "domain = 43", "-k", "1", "--explain"];
    assert_eq!(up.json(&of)[1]["_explain"]["exhaustive"], false, "no vector was compared");
    let soups = up.json(&["search", "words", "--text", "soup", "-k", "5", "--columns", "gloss"]);
    assert!(soups.iter().all(|row| row["gloss"].as_str().unwrap().contains("soup")));
    let glosses = |arguments: &[&str]| -> Vec<String> {
        let rows = up.json(&[&["search", "words", "-k", "1000"], arguments].concat());
        rows.iter().map(|row| row["gloss"].as_str().unwrap().to_lowercase()).collect()
    };
    let all = glosses(&["--phrase", "strong wind"]);
    assert!(all.len() > 3 && all.iter().all(|it| it.contains("strong wind")), "{all:?}");
    let some = glosses(&["--phrase", "strong wind", "--must-not", "southwest"]);
    assert!(some.len() < all.len() && some.iter().all(|it| !it.contains("southwest")), "{some:?}");
    let both = glosses(&["--text", "wind north", "--all-words"]);
    assert!(!both.is_empty() && both.iter().all(|it| it.contains("wind") && it.contains("north")));
    let whales = glosses(&["--text", "whalle", "--fuzzy", "auto"]);
    assert!(whales.iter().any(|it| it.contains("whale")), "{whales:?}");
    assert_eq!(glosses(&["--text", "whalle"]), [""; 0]);
    let near = ["--like", "n02503517", "--must", "wind", "--phrase", "strong wind"];
    assert!(glosses(&near).iter().any(|it| it.contains("strong wind")));
    up.names(&["search", "words", "--must", " - "], 2, "`text.query.match.words` has no letters");
    up.names(&["search", "words", "--text", "x", "--fuzzy", "many"], 2, "give 0, 1, 2 or auto");
    let phrase = ["search", "words", "--phrase", "strong wind", "--fuzzy", "1"];
    up.names(&phrase, 2, "--fuzzy applies to the words of --text and --must");
    let status = run(&["status", "--endpoint", &up.endpoint]);
    assert!(status.contains("0 requests waiting (longest queue)"), "{status}");
    let filtered = up.json(&["search", "words", "--filter", "domain = 43", "-k", "100"]);
    assert!(!filtered.is_empty() && filtered.iter().all(|row| row["domain"] == 43));
    let got = up.json(&["get", "words", "n07583197", "n02503517"]);
    assert_eq!([&got[0]["synset"], &got[1]["synset"]], ["n07583197", "n02503517"]);
    let all = up.json(&["get", "words", "43", "--key-column", "domain", "--all-rows"]);
    let count = &up.json(&["count", "words", "--filter", "domain = 43"])[0]["rows"];
    assert!(all.len() > 1 && all.iter().all(|row| row["domain"] == 43), "{all:?}");
    assert_eq!(Some(all.len() as u64), count.as_u64());
    let address = got[0]["_rowaddr"].as_u64().unwrap().to_string();
    let taken = up.json(&["take", "words", &address, "0:0", &address]);
    assert_eq!(taken.len(), 3);
    assert_eq!(taken[0]["gloss"], got[0]["gloss"]);
    assert_eq!(taken[0]["_rowaddr"], got[0]["_rowaddr"]);
    assert_eq!(up.json(&["tables"]).len(), 1);
    let described = &up.json(&["describe", "words"])[0];
    assert_eq!(described["rows"], 6927);
    let placed = &up.json(&["placement", "words", "--chunks"])[0]["nodes"][0];
    let ranges = placed["ranges"].as_array().unwrap();
    let named: u64 = ranges.iter().map(|range| range["count"].as_u64().unwrap()).sum();
    assert_eq!((&placed["rows"], placed["chunks"].as_u64()), (&described["rows"], Some(named)));
    up.names(&["placement", "words", "--fragments", "77"], 2, "fragment 77");
    let some = up.json(&["warm", "words", "--rows", "0..10,20..30"]);
    let some = some.last().unwrap()["extents_total"].as_u64().unwrap();
    let warmed = up.json(&["warm", "words"]);
    assert_eq!(warmed.last().unwrap()["done"], true);
    assert!((1..=warmed.last().unwrap()["extents_total"].as_u64().unwrap()).contains(&some));
    assert!(warmed.last().unwrap()["extents_found"].as_u64().unwrap() >= some);
    up.names(&["warm", "words", "--rows", "0..100000000"], 2, "100000000");
    up.names(&["warm", "words", "--rows", "9..3"], 2, "no rows");
    let later = ["search", "words", "--like", "n02503517", "-k", "3", "--priority", "batch"];
    assert_eq!(up.json(&later), found);
    assert_eq!(up.json(&["get", "words", "n02503517", "--priority", "batch"]).len(), 1);
    up.names(&["get", "words", "x", "--priority", "soon"], 2, "soon");
    up.json(&["status"]);
    let table = up.folder.path().join("words");
    for what in [&["fetch", "--uri", text(&table)][..], &["search"], &["get"]] {
        let measured = &up.json(&[&["bench"], what, &["words", "--seconds", "1"]].concat())[0];
        assert!(measured["requests"].as_f64().unwrap_or(1.0) > 0.0, "{measured}");
        let branch = ["words", "--seconds", "1", "--table-branch", "exp"];
        up.names(&[&["bench"], what, &branch].concat(), 3, "exp");
    }
    up.names(&["search", "nope", "--text", "x"], 3, "nope");
    up.names(&["get", "words", "n99999999"], 3, "n99999999");
    up.names(&["take", "words", "99:1"], 3, "99:1");
    up.names(&["search", "words", "--text", "x", "-k", "0"], 2, "at least 1");
    up.names(&["search", "words", "--text", "x", "-k", "-1"], 2, "at least 1");
    up.names(&["search", "words", "--like", "x", "--key-column", "nope"], 2, "nope");
    up.names(&["search", "words", "--vector", "/"], 2, "the vector file /");
    up.names(&["get", "words", "-1"], 3, "`-1`");
    up.names(&["search", "words", "--text", "x", "--columns", "nope"], 2, "nope");
    up.names(&["search", "words", "--filter", "domain = = 3"], 2, "domain = = 3");
    up.names(&["search", "words", "--text", "x", "--table-version", "99"], 3, "99");
    up.names(&["search", "words", "--text", "x", "--column", "synset"], 2, "--text synset`");
    let explained = ["search", "words", "--text", "x", "--explain", "--endpoint", &up.endpoint];
    let explain = |columns: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bireme"));
        command.args(explained).env_remove("COLUMNS").envs(columns.map(|it| ("COLUMNS", it)));
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.split("\nstage").nth(1).unwrap().to_owned()
    };
    assert!(explain(Some("60")).contains('…') && !explain(None).contains('…'));
}

#[test]
fn an_endpoint_of_the_wrong_tier_or_of_a_web_server_is_named() {
    let up = Up::start();
    let io = up.json(&["status"])[0]["io_nodes"][0]["endpoint"].as_str().unwrap().to_owned();
    names(&["tables", "--endpoint", &io], 4, "is an I/O node; give a query node's endpoint");
    names(&["search", "words", "--text", "x", "--endpoint", &io], 4, &io);
    let fetch = ["bench", "fetch", "words", "--uri", "/t", "--io-endpoint", &up.endpoint];
    up.names(&fetch, 4, "is a query node; give an I/O node's endpoint");
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", web.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in web.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    names(&["tables", "--endpoint", &address], 4, &address);
    let with_tls = up.endpoint.replace("http://", "https://");
    names(&["tables", "--endpoint", &with_tls], 4, "it speaks no TLS; write it with http://");
    names(&["status", "--endpoint", &with_tls], 4, "it speaks no TLS; write it with http://");
}

#[test]
fn what_the_machine_or_a_folder_lacks_is_reported_before_anything_starts() {
    let folder = folder();
    let table = folder.path().join("words");
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    let named = format!("words={}", text(&table));
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let ports = ["--listen", "127.0.0.1:0"];
    let up = |more: &[&str], exit, name| {
        names(&[&["up", "--table", &named], &ports[..], more].concat(), exit, name);
    };
    let path_in_a_file = file.join("cache");
    up(&["--cache-dir", text(&path_in_a_file)], 2, text(&path_in_a_file));
    up(&["--cache-dir", text(&file)], 2, "a file is in its place; name another with --cache-dir");
    up(&["--cache-dir", "/proc/foo"], 6, "the cache folder /proc/foo");
    up(&["--cache-dir", "/proc"], 6, "/proc has 0 B free");
    let cache = folder.path().join("cache");
    let huge = ["--cache-dir", text(&cache), "--cache-size", "900TiB"];
    up(&huge, 6, "--cache-size is 900.0 TiB, and the disk of ");
    assert!(!cache.join("slab").exists());
    up(&["--ready-file", "/nowhere/ready"], 3, "--ready-file");
    let drive = format!("{}:96MiB", text(&folder.path().join("slab")));
    let io = |more: &[&str], exit, name| {
        let command = serve::io("127.0.0.1:0", &drive);
        names(&[&command[..], more].concat(), exit, name);
    };
    io(&["--ram-tier", "900TiB"], 2, "`ram_tier`");
    io(&["--cores", "5000"], 2, "`cores`");
    io(&["--drive", "/proc/nowhere/slab:96MiB"], 3, "/proc/nowhere");
    io(&["--drive", &format!("{}:900TiB", text(&file))], 6, "no room for 900.0 TiB, ");
    io(&["--drive", &format!("{}:96MiB", text(folder.path()))], 2, text(folder.path()));
    let new = folder.path().join("new");
    for (size, exit, name) in
        [("900TiB", 6, "no room for"), ("64MiB", 2, "has 64.0 MiB, less than 65.0 MiB")]
    {
        let drive = format!("{}:{size}", text(&new));
        names(&serve::io("127.0.0.1:0", &drive), exit, name);
        assert!(!new.exists(), "a size of {size} leaves a file behind");
    }
    names(&serve::io("127.0.0.1:0", text(&file)), 2, "is empty; name its size");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    names(&serve::io(&taken, &drive), 6, "choose another with --listen");
    let second = "a second one needs its own --listen and its own cache, such as `--listen 127.0.0.1:0 --name second`";
    names(&["up", "--table", &named, "--listen", &taken], 6, second);
    // A table that can't be served is reported even if the port can't be bound.
    let absent = format!("words={}", text(&folder.path().join("absent")));
    names(&["up", "--table", &absent, "--listen", &taken], 3, "absent");
    let scheme = "its scheme is not file, s3, gs or az";
    names(&["up", "--table", "words=s4://b/x", "--listen", &taken], 2, scheme);
}

#[test]
fn a_table_is_searched_without_io_uring() {
    let folder = folder();
    let table = folder.path().join("words");
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    run(&["index", "--table", text(&table), "--vector", "vector", "--key", "synset"]);
    let drive = format!("{}:128MiB", text(&folder.path().join("slab")));
    let io = IoProcess::start(&drive, &[("ENGINE", "pread"), ("SEGMENT", "16MiB")]);
    let query = QueryProcess::start(&io.endpoint, &format!("words={}", text(&table)));
    let json = |arguments: &[&str]| json(&[arguments, &["--endpoint", &query.endpoint]].concat());
    json(&["warm", "words"]);
    let found = json(&["search", "words", "--like", "n02503517", "-k", "3"]);
    assert_eq!(found[0]["synset"], "n02503517");
    let status = json(&["status"]);
    assert!(status[0].to_string().contains("pread"), "{status:?}");
}

#[test]
fn an_interrupted_server_drains_and_exits_with_0() {
    let mut up = Up::start();
    let id = up.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let patience = Instant::now() + Duration::from_secs(60);
    while up.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < patience, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(up.process.wait().unwrap().success());
}

#[test]
fn damaged_files_leave_no_table_behind() {
    let folder = folder();
    let table = folder.path().join("table");
    let file = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    };
    let cases = [
        (file("not.parquet", b"a,b\n1,2\n"), 2, "not.parquet"),
        (file("ragged.csv", b"a,b\n1,2\n3\n4,5\n"), 2, "ragged.csv"),
        (file("broken.jsonl", b"{\"a\": 1}\n{\"a\": \n"), 2, "broken.jsonl"),
        (file("cut.arrow", b"ARROW1\0\0"), 2, "cut.arrow"),
        (folder.path().join("absent.csv"), 3, "absent.csv"),
    ];
    for (path, exit, name) in &cases {
        names(&["ingest", text(path), "--table", text(&table)], *exit, name);
        assert!(!table.exists(), "{name} left something behind");
    }
    let good = file("good.csv", b"a,b\n1,2\n3,4\n");
    names(&["ingest", text(&good), "--table", text(&table), "--key", "c"], 2, "c");
    assert!(!table.exists());
    run(&["ingest", text(&good), "--table", text(&table)]);
    names(&["ingest", text(&good), "--table", text(&table)], 2, "append");
    let other = file("other.csv", b"a,c\n1,2\n");
    let append = ["ingest", text(&other), "--table", text(&table), "--mode", "append"];
    let (_, line) = refused(&append);
    assert!(line.contains("other.csv"), "{line}");
    names(&["index", "--table", text(&table), "--vector", "a"], 2, "a");
    names(&["index", "--table", text(&table), "--scalar", "z"], 2, "z");
    names(&["index", "--table", text(&folder.path().join("no")), "--scalar", "a"], 3, "no");
}

#[test]
fn keys_that_are_not_unique_are_reported() {
    let folder = folder();
    let (file, table) = (folder.path().join("rows.csv"), folder.path().join("table"));
    std::fs::write(&file, "sku,n\na,1\nb,2\na,3\nb,4\nc,5\n").unwrap();
    run(&["ingest", text(&file), "--table", text(&table), "--key", "sku"]);
    let index = ["index", "--table", text(&table), "--key", "sku"];
    let output = bireme(&[&index[..], &["--json"]].concat());
    assert!(output.status.success());
    let made = output.stdout.split(|&byte| byte == b'\n').next().unwrap();
    let made: Value = serde_json::from_slice(made).unwrap();
    assert_eq!((&made["duplicate_keys"], &made["duplicate_example"]), (&2.into(), &"a".into()));
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(warned.starts_with("bireme: warning: 2 keys of column \"sku\""), "{warned}");
    let unique = ["index", "--table", text(&table), "--key", "n", "--replace-key"];
    assert_eq!(json(&unique)[0]["duplicate_keys"], 0);
    assert_eq!(String::from_utf8(bireme(&unique).stderr).unwrap(), "");
}

#[test]
fn overwriting_reports_dropped_indexes() {
    let folder = folder();
    let (file, table) = (folder.path().join("rows.csv"), folder.path().join("table"));
    std::fs::write(&file, "sku,words\na,red shoes\n").unwrap();
    let ingest = ["ingest", text(&file), "--table", text(&table), "--mode", "overwrite"];
    assert_eq!(json(&ingest)[0]["dropped_indexes"], serde_json::json!([]));
    run(&["index", "--table", text(&table), "--text", "words", "--key", "sku"]);
    let made = json(&ingest)[0].clone();
    let again = made["index_commands"][0].as_str().unwrap().to_owned();
    assert_eq!(again, format!("bireme index --table {} --text words --key sku", text(&table)));
    assert_eq!(made["dropped_indexes"][0]["columns"], serde_json::json!(["sku"]));
    let words: Vec<_> = again.split(' ').skip(1).collect();
    run(&words);
    let printed = run(&ingest);
    assert!(printed.contains(&format!("to build them again: {again}")), "{printed}");
    assert!(printed.starts_with("1 row ("), "{printed}");
}

#[test]
fn an_interrupted_ingest_leaves_nothing_behind() {
    let folder = folder();
    let (file, made) = (folder.path().join("rows.csv"), folder.path().join("new"));
    let rows: String = (0..2_000_000).map(|i| format!("{i},{}\n", i % 1000)).collect();
    std::fs::write(&file, format!("a,b\n{rows}")).unwrap();
    let table = made.join("table");
    for signal in ["-INT", "-TERM"] {
        let ingest = Command::new(env!("CARGO_BIN_EXE_bireme"))
            .args(["ingest", text(&file), "--table", text(&table), "--fragment-rows", "8192"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while !std::fs::read_dir(table.join("data")).is_ok_and(|mut files| files.next().is_some()) {
            assert!(Instant::now() < patience, "it writes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = ingest.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = ingest.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr, "bireme: interrupted: nothing was committed\n");
        assert_eq!(output.status.code(), Some(130));
        assert!(!made.exists(), "its folders are still there");
    }
}

#[test]
fn impossible_ingests_and_indexes_are_bad_arguments() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let (file, table) = (path("rows.csv"), path("table"));
    std::fs::write(&file, "id,words\n1,a\n").unwrap();
    let vectors = path("vectors.jsonl");
    let vector = |last: &str| format!("{{\"v\":[1,1,1,1,1,1,1,1,1,{last}]}}\n");
    std::fs::write(&vectors, vector("1.5").repeat(2) + &vector("1e39")).unwrap();
    let ingest = |file: &Path, table: &Path, option: [&str; 2]| {
        let (code, line) =
            refused(&[&["ingest", text(file), "--table", text(table)], &option[..]].concat());
        assert!(!table.exists(), "{line}");
        (code, line)
    };
    let (code, line) = ingest(&file, &table, ["--vector", "words:16"]);
    assert!(code == 2 && line.contains("words"), "{code} {line}");
    let (code, line) = ingest(&vectors, &table, ["--mode", "create"]);
    let place = "vectors.jsonl: line 3: column \"v\": number 10 of the vector, 1e+39, ";
    assert!(code == 2 && line.contains(place), "{code} {line}");
    let (code, line) = ingest(&file, &file.join("table"), ["--mode", "create"]);
    assert!(code == 2 && line.contains("is a file, not a folder"), "{code} {line}");
    let (code, line) = ingest(&file, Path::new("/proc/x.lance"), ["--mode", "create"]);
    assert!(code == 6 && line.contains("/proc/x.lance"), "{code} {line}");
    std::fs::write(&vectors, vector("1.5")).unwrap();
    run(&["ingest", text(&vectors), "--table", text(&table)]);
    for (options, name) in [
        (&["--vector", "v"][..], "the index can't be built: column \"v\" has 10 dimensions"),
        (&["--vector", "v"], "exact and quick for so few, or choose ivf-hnsw-sq"),
        (
            &["--vector", "v", "--kind", "ivf-pq"],
            "has 1 row, and an ivf-pq index needs at least 256",
        ),
        (&["--vector", "v", "--kind", "ivf-hnsw-sq", "--bits", "4"], "ivf-rq"),
        (&["--vector", "w"], "\"w\""),
        (&["--text", "v"], "\"v\""),
        (&["--scalar", "v"], "\"v\""),
        (&["--key", "v"], "\"v\""),
        (&["--key", "_rowid"], "Lance"),
        (&["--vector", "v", "--partitions", "x"], "invalid digit found in string"),
    ] {
        names(&[&["index", "--table", text(&table)], options].concat(), 2, name);
    }
    let table = path("keyed");
    run(&["ingest", text(&file), "--table", text(&table), "--key", "id"]);
    let index = ["index", "--table", text(&table)];
    let other = [&index[..], &["--text", "words", "--key", "words"]].concat();
    names(&other, 2, "is \"id\"; to look rows up by \"words\" instead");
    assert!(!json(&[&other[..], &["--replace-key"]].concat()).is_empty());
    names(&[&index[..], &["--key", "id"]].concat(), 2, "is \"words\"");
    names(&[&index[..], &["--key", "word"]].concat(), 2, "no column \"word\"");
    names(&[&index[..], &["--key", "word"]].concat(), 2, "did you mean \"words\"?");
    let misspelt = ["--text", "words", "--storage", "aws_acess_key_id=x"];
    names(&[&index[..], &misspelt].concat(), 2, "did you mean aws_access_key_id?");
}

#[test]
fn missing_credentials_are_reported_with_what_to_do() {
    let folder = folder();
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, "id\n1\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bireme"))
        .args(["ingest", text(&file), "--table", "s3://bucket/table"])
        .env_clear()
        .envs([("AWS_REGION", "us-east-1"), ("AWS_EC2_METADATA_DISABLED", "true")])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected =
        "bireme: no credentials for the store of s3://bucket/table: set AWS_ACCESS_KEY_ID";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert_eq!((stderr.lines().count(), output.status.code()), (1, Some(6)));
}

#[test]
fn bad_arguments_and_unreachable_endpoints_are_named() {
    let nobody = ["tables", "--endpoint", "http://127.0.0.1:9"];
    names(&nobody, 4, "127.0.0.1:9");
    names(&["tables", "--endpoint", "ftp://x"], 2, "ftp");
    names(&["frobnicate"], 2, "frobnicate");
    names(&["io", "--listen", "127.0.0.1:0"], 2, "drive");
    names(&["query", "--listen", "127.0.0.1:0", "--table", "a=/x"], 2, "io");
    let folder = folder();
    let config = folder.path().join("io.toml");
    std::fs::write(&config, "listn = \"127.0.0.1:0\"\n").unwrap();
    names(&["io", "--config", text(&config)], 2, "`listn`; did you mean `listen`?");
    names(
        &["ingest", text(&sample()), "--table", "ftp://x/y"],
        2,
        "can't use ftp://x/y: its scheme is not file, s3, gs or az",
    );
}

#[test]
fn a_bad_or_missing_list_of_io_nodes_is_reported_before_anything_starts() {
    let folder = folder();
    let (bad, missing) = (folder.path().join("bad.toml"), folder.path().join("missing.toml"));
    let node = |name: &str, port: u16| {
        format!("[[io_nodes]]\nname = \"{name}\"\nendpoint = \"127.0.0.1:{port}\"\n")
    };
    std::fs::write(&bad, node("io-0", 1) + &node("io-0", 2)).unwrap();
    let from = |path: &Path| format!("file:{}", path.display());
    for (source, exit, what) in [
        (from(&bad), 2, "two I/O nodes are named `io-0`"),
        (from(&missing), 3, "No such file"),
        ("etcd:x".to_owned(), 2, "write dns:HOST:PORT"),
    ] {
        let query = ["query", "--listen", "127.0.0.1:0", "--io-nodes-from", &source];
        names(&query, exit, what);
    }
    let output = bireme(&["query", "--listen", "127.0.0.1:0", "--io-nodes-from", &from(&missing)]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected =
        format!("from file:{}: No such file or directory; this node does not", text(&missing));
    assert!(stderr.contains(&expected) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn the_error_that_ends_a_node_is_json_if_its_log_is() {
    let folder = folder();
    let drive = format!("{}:64MiB", text(&folder.path().join("slab")));
    let io = ["io", "--listen", "127.0.0.1:0", "--drive", &drive];
    let query = ["query", "--listen", "127.0.0.1:0"];
    for (command, variable) in
        [(&io[..], "BIREME_IO_TELEMETRY_LOG_FORMAT"), (&query, "BIREME_QUERY_TELEMETRY_LOG_FORMAT")]
    {
        let mut process = Command::new(env!("CARGO_BIN_EXE_bireme"));
        let output = process.args(command).env(variable, "json").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<Value> =
            stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!(
            (&last["level"], &last["fields"]["exit"]),
            (&"ERROR".into(), &2.into()),
            "{stderr}"
        );
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_drive_with_something_else_on_it_is_left_alone() {
    let folder = folder();
    let slab = folder.path().join("slab");
    std::fs::write(&slab, "dear diary").unwrap();
    let drive = format!("{}:128MiB", text(&slab));
    let io =
        ["io", "--serve", "/t", "--listen", "127.0.0.1:0", "--drive", &drive, "--allow-buffered"];
    names(&io, 6, "did not write");
    let table = folder.path().join("words");
    let sample = sample();
    run(&["ingest", text(&sample), "--table", text(&table)]);
    let words = format!("words={}", text(&table));
    let up =
        ["up", "--table", &words, "--cache-dir", text(folder.path()), "--listen", "127.0.0.1:0"];
    names(&up, 6, "--cache-dir");
    assert_eq!(std::fs::read_to_string(&slab).unwrap(), "dear diary");
    std::fs::write(&slab, [b'x'; 8192]).unwrap();
    names(&["inspect", text(&slab)], 3, "did not write");
    std::fs::write(&slab, [0; 8192]).unwrap();
    names(&["inspect", text(&slab)], 3, "is empty");
    std::fs::write(&slab, "").unwrap();
    names(&["inspect", text(&slab)], 3, "it is empty");
    std::fs::write(&slab, "short").unwrap();
    names(&["inspect", text(&slab)], 3, "it is too small");
    std::fs::write(&slab, "").unwrap();
    names(&["inspect", "/nowhere/slab"], 3, "/nowhere/slab");
}

#[test]
fn every_command_explains_itself() {
    let commands = [
        "ingest",
        "index",
        "up",
        "io",
        "query",
        "search",
        "get",
        "lookup",
        "take",
        "tables",
        "describe",
        "warm",
        "placement",
        "status",
        "bench",
        "inspect",
        "completions",
    ];
    let help = run(&["--help"]);
    for command in commands {
        assert!(help.contains(command));
        assert!(run(&[command, "--help"]).contains("Usage:"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("bireme"), "{shell}");
    }
}
