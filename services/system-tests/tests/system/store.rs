//! Tests both tiers with a table in an S3 server (moto), which is a separate process. In some tests, it refuses
//! requests or is down.
//!
//! `BIREME_S3_SERVER` names the program `moto_server`. Without it, these tests print a message and are skipped.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field};
use bytesize::ByteSize;
use client::fetch::Projection;
use futures::StreamExt;
use lake::{IngestOptions, Lake, LakeError, LakeOptions, ingest};
use lance::Dataset;
use wire::Reason;
use wire::fetch::{ChunkRange, WarmProgress, WarmRequest};
use wire::query::GetRequest;

use crate::cluster::{Cluster, Io, folder, sample, soon};

/// The header with the credentials. By default, the server accepts any credentials, but deletes nothing without them.
const CREDENTIALS: &str = "Authorization: AWS someone:something";

/// The server, which ends with the test.
pub struct S3 {
    server: Child,
    port: u16,
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl S3 {
    /// Starts a server. With `authorizes`, the server refuses unknown keys after the first call.
    pub async fn start(authorizes: bool) -> Option<Self> {
        let Some(program) = std::env::var_os("BIREME_S3_SERVER").filter(|p| !p.is_empty()) else {
            println!("skipped: BIREME_S3_SERVER names no S3 server");
            return None;
        };
        Some(Self::start_at(&program, free_port, authorizes).await)
    }

    /// Starts a server at a port that `port` returns. If another process takes the port first, the server ends, and is
    /// started again.
    async fn start_at(program: &OsStr, port: impl Fn() -> u16, authorizes: bool) -> Self {
        for _ in 0..5 {
            let port = port();
            let mut command = Command::new(program);
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if authorizes {
                command.env("INITIAL_NO_AUTH_ACTION_COUNT", "1");
            }
            let mut s3 = Self { server: command.spawn().unwrap(), port };
            if s3.comes_up().await {
                return s3;
            }
        }
        panic!("the S3 server ends at its start");
    }

    /// Waits until the server answers. Returns `false` if it has ended.
    async fn comes_up(&mut self) -> bool {
        for _ in 0..1200 {
            let answer = self.request("PUT", "/lake", b"");
            // If the server has ended, another process has answered.
            if self.server.try_wait().unwrap().is_some() {
                return false;
            }
            if answer.is_some_and(|answer| answer.contains(" 200 ")) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the S3 server does not come up");
    }

    /// Restarts the server, which forgets all objects: it keeps them in memory.
    pub async fn emptied(self) -> Self {
        let port = self.port;
        drop(self);
        let program = std::env::var_os("BIREME_S3_SERVER").unwrap();
        Self::start_at(&program, || port, false).await
    }

    /// Stops the server until it is restarted.
    pub fn stop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Restarts the server and uploads the same files again.
    async fn restarted(self, folder: &Path) -> Self {
        let s3 = self.emptied().await;
        s3.put_folder(folder, "/lake/table");
        s3
    }

    /// Puts all files of a folder below the prefix `name`.
    pub fn put_folder(&self, folder: &Path, name: &str) {
        each_file(folder, name, &|path, name| {
            let answer = self.request("PUT", name, &std::fs::read(path).unwrap()).unwrap();
            assert!(answer.contains(" 200 "), "{name}: {answer}");
        });
    }

    /// Deletes all files of a folder that were put below the prefix `name`.
    pub fn delete_folder(&self, folder: &Path, name: &str) {
        each_file(folder, name, &|_, name| {
            let answer = self.request("DELETE", name, b"").unwrap();
            assert!(answer.contains(" 204 "), "{name}: {answer}");
        });
    }

    /// Sends one plain HTTP request and returns the answer.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{CREDENTIALS}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.port,
            body.len(),
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub fn options(&self) -> HashMap<String, String> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        [
            ("aws_endpoint", endpoint.as_str()),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "someone"),
            ("aws_secret_access_key", "something"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// Calls `act` with the path of each file of a folder, and with its name below the prefix `name`.
fn each_file(folder: &Path, name: &str, act: &impl Fn(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => each_file(&entry.path(), &name, act),
            false => act(&entry.path(), &name),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_s3_is_served_by_both_tiers() {
    let Some(s3) = S3::start(false).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
    ingest(&lake, &[sample()], "s3://lake/words", &options, |_| {}).await.unwrap();
    let cluster = Cluster::start_with(1, &[("words", "s3://lake/words".as_ref())], |io, query| {
        io.storage = s3.options();
        query.storage = s3.options();
    })
    .await;
    for _ in 0..2 {
        let keys = vec!["n02503517".into(), "n00000000".into()];
        let request = GetRequest { table: "words".into(), keys, ..Default::default() };
        let answer = cluster.client.get(request).await.unwrap();
        assert_eq!(answer.not_found, [1]);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_or_does_not_answer_is_named() {
    let Some(s3) = S3::start(true).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let refused = lake.open("s3://lake/words").await.unwrap_err();
    assert!(matches!(refused, LakeError::CredentialsRefused { .. }), "{refused}");
    assert!(refused.to_string().contains("s3://lake/words"));
    let options = s3.options();
    drop(s3);
    let lake = Lake::new(LakeOptions { storage: options, ..Default::default() });
    let gone = lake.open("s3://lake/words").await.unwrap_err();
    assert!(matches!(gone, LakeError::StoreUnreachable { .. }), "{gone}");
}

const URI: &str = "s3://lake/table";
const ROWS: u32 = 24_000;
const DIMENSION: u32 = 256;

/// Writes 24 MB of vectors, whose elements are their row's id.
async fn write(path: &Path) {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values =
        Float32Array::from_iter_values((0..ROWS * DIMENSION).map(|x| (x / DIMENSION) as f32));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, Arc::new(values), None);
    let ids = Int64Array::from_iter_values(0..i64::from(ROWS));
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, path.to_str().unwrap(), None).await.unwrap();
}

async fn warm(io: &Io, mut each: impl FnMut(&WarmProgress)) -> WarmProgress {
    let request = WarmRequest { table_uri: URI.into(), version: 1, ..Default::default() };
    let mut progress = io.client.warm(request).await.unwrap();
    let mut last = WarmProgress::default();
    while let Some(step) = progress.next().await {
        last = step.unwrap();
        each(&last);
    }
    last
}

/// Fetches and checks rows spread over the table. Returns the reasons of failed fetches.
async fn look(io: &Io, projection: &Projection) -> Vec<Reason> {
    let mut refused = Vec::new();
    for first in (0..ROWS).step_by(1000) {
        let ids = [first, first + 999];
        let addrs = ids.map(|id| RowAddr::new(0, id)).to_vec();
        match io.client.fetch(projection, addrs, None, soon()).await {
            Ok(reply) => {
                let rows = reply.into_rows().unwrap();
                assert_eq!(rows["id"].as_primitive::<Int64Type>().values(), &ids.map(i64::from));
                let vectors = rows["vector"].as_fixed_size_list();
                for (at, id) in ids.iter().enumerate() {
                    let vector = vectors.value(at);
                    let vector = vector.as_primitive::<Float32Type>().values();
                    assert!(vector.iter().all(|&x| x == *id as f32), "row {id}");
                }
            }
            Err(fault) => refused.push(fault.reason),
        }
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_store_a_node_serves_filled_rows_and_fills_the_others_later() {
    let Some(s3) = S3::start(false).await else { return };
    let folder = folder();
    write(folder.path()).await;
    s3.put_folder(folder.path(), "/lake/table");
    let io = Io::start(|config| {
        config.storage = s3.options();
        // Fills are slow enough for the store to be stopped during them.
        config.fill_rate = ByteSize::mib(8);
        config.store.breaker_failures = 3;
        config.store.breaker_pause = Duration::from_millis(100);
    })
    .await;
    let projection = io.open(URI, 1, &["id", "vector"]).await;
    let mut server = Some(s3);
    let mut dead = None;
    let broken_off = warm(&io, |step| {
        // The first chunks are filled in both packs.
        if step.extents_done >= 10
            && let Some(mut s3) = server.take()
        {
            s3.server.kill().unwrap();
            s3.server.wait().unwrap();
            dead = Some(s3);
        }
    })
    .await;
    let s3 = dead.expect("it was not stopped");
    assert!(broken_off.extents_done >= 10 && broken_off.extents_failed > 0, "{broken_off:?}");
    assert!(broken_off.last_error.contains(URI), "{}", broken_off.last_error);
    let refused = look(&io, &projection).await;
    assert!(!refused.is_empty() && refused.len() < ROWS as usize / 1000, "{refused:?}");
    assert!(refused.iter().all(|&reason| reason == Reason::StoreUnreachable), "{refused:?}");
    let store = io.describe().await.store.unwrap();
    assert!(store.failed >= 3 && store.refused > 0, "{store:?}");
    assert!(store.reads > 0 && store.bytes_read > 0 && store.cost_usd > 0.0, "{store:?}");

    let _s3 = s3.restarted(folder.path()).await;
    let again = loop {
        let again = warm(&io, |_| {}).await;
        // The breaker may not have sent a probe yet.
        if again.extents_failed == 0 {
            break again;
        }
    };
    assert_eq!(again.extents_done, again.extents_total);
    assert!(again.extents_found >= broken_off.extents_done, "{again:?}");
    assert_eq!(look(&io, &projection).await, []);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbouring_misses_are_scanned_together() {
    let Some(s3) = S3::start(false).await else { return };
    let folder = folder();
    write(folder.path()).await;
    s3.put_folder(folder.path(), "/lake/table");
    // Runs `warms` one after the other. Returns the numbers of their extents, scans and store reads.
    let cost = async |warms: Vec<WarmRequest>| {
        let io = Io::start(|config| {
            config.storage = s3.options();
            config.store.hedge = false;
            config.segment = ByteSize::mib(32);
            config.fills = 1;
        })
        .await;
        // Open the table before counting.
        io.open(URI, 1, &["id", "vector"]).await;
        let before = io.describe().await;
        for request in warms {
            drained(&io, request).await;
        }
        let after = io.describe().await;
        let reads = after.store.unwrap().reads - before.store.unwrap().reads;
        let projection = io.open(URI, 1, &["id", "vector"]).await;
        assert_eq!(look(&io, &projection).await, []);
        assert_eq!(crate::cluster::total(&io.describe().await, |core| core.table_rows), 0);
        io.stop().await;
        (after.fills_done, after.scans, reads)
    };
    let chunk = |first| ChunkRange { fragment: 0, first, count: 1 };
    let one = |first| WarmRequest { chunks: vec![chunk(first)], ..whole() };
    let (extents, scans, reads) = cost((0..12).map(one).collect()).await;
    assert!(extents == 24 && scans == extents, "{scans} scans of {extents}");
    let (same, scans_together, reads_together) = cost(vec![whole()]).await;
    assert_eq!(same, extents);
    assert!(2 * scans_together < scans, "{scans_together} scans in place of {scans}");
    assert!(reads_together < reads, "{reads_together} reads in place of {reads}");
    println!(
        "{extents} extents: {scans} scans, {reads} reads; together {scans_together}, {reads_together}"
    );

    // The same holds for misses: one batch requests rows of all chunks.
    let io = Io::start(|config| {
        config.storage = s3.options();
        config.segment = ByteSize::mib(32);
        config.fills = 1;
    })
    .await;
    let projection = io.open(URI, 1, &["id", "vector"]).await;
    let addrs = (0..ROWS).step_by(1024).map(|id| RowAddr::new(0, id)).collect();
    io.client.fetch(&projection, addrs, None, soon()).await.unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while io.describe().await.extents < 24 {
        assert!(Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let described = io.describe().await;
    assert!(described.scans <= 12, "{} scans of {}", described.scans, described.fills_done);
    io.stop().await;
}

fn whole() -> WarmRequest {
    WarmRequest { table_uri: URI.into(), version: 1, ..Default::default() }
}

async fn drained(io: &Io, request: WarmRequest) {
    let mut steps = io.client.warm(request).await.unwrap();
    while let Some(step) = steps.next().await {
        assert_eq!(step.unwrap().extents_failed, 0);
    }
}
