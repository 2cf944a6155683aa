//! Tests that a look-up loads the deletions of several fragments at the same time, with a server that shows which files
//! are being read.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_RANGE, RANGE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use key_index::{KeyHashes, KeyType, Pages, Run};
use lake::{Lake, LakeOptions};
use lance::Dataset;
use lance::dataset::WriteParams;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{VersionFiles, WantedRows};

/// The hash of all keys of the table.
const HASH: u64 = 1 << 63;

/// The files of a table, served as an S3 bucket with as much of the API as reading the table takes. A deletion file is
/// sent once all deletion files have been asked for.
struct Bucket {
    files: BTreeMap<String, Bytes>,
    /// The deletion files that have been asked for.
    asked: watch::Sender<BTreeSet<String>>,
}

impl Bucket {
    fn of(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        add_files(folder, "table", &mut files);
        Self { files, asked: watch::Sender::new(BTreeSet::new()) }
    }

    /// Serves the bucket with the name `bucket`. Returns the server's endpoint.
    async fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bucket = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let bucket = Arc::clone(&bucket);
                let answer = service_fn(move |request: Request<Incoming>| {
                    let bucket = Arc::clone(&bucket);
                    async move { Ok::<_, Infallible>(bucket.answer(request).await) }
                });
                let connection = http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
            }
        });
        endpoint
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let name = path.strip_prefix("/bucket/").unwrap_or_default();
        let Some(file) = self.files.get(name) else {
            let (status, text) = match request.uri().query() {
                Some(query) if name.is_empty() => (StatusCode::OK, self.list(query)),
                _ => (StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
            };
            return Response::builder().status(status).body(text.into()).unwrap();
        };
        if is_deletions(name) {
            let all = self.files.keys().filter(|name| is_deletions(name)).count();
            self.asked.send_modify(|asked| {
                asked.insert(name.to_owned());
            });
            let _ = self.asked.subscribe().wait_for(|asked| asked.len() == all).await;
        }
        let range = request.headers().get(RANGE).and_then(|range| range.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (number, len) = (|text: &str| text.parse::<usize>().unwrap(), file.len());
        let (from, to) = match range {
            None => return Response::new(file.clone().into()),
            Some(("", last)) => (len.saturating_sub(number(last)), len),
            Some((from, "")) => (number(from), len),
            Some((from, last)) => (number(from), len.min(number(last) + 1)),
        };
        Response::builder()
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, format!("bytes {from}-{}/{len}", to - 1))
            .body(file.slice(from..to).into())
            .unwrap()
    }

    /// Lists the files whose names begin with the prefix in the query.
    fn list(&self, query: &str) -> String {
        let mut parameters = form_urlencoded::parse(query.as_bytes());
        let prefix = parameters.find(|(name, _)| name == "prefix").map(|(_, prefix)| prefix);
        let prefix = prefix.unwrap_or_default();
        let listed = self.files.iter().filter(|(name, _)| name.starts_with(&*prefix));
        let entry = |(name, file): (&String, &Bytes)| {
            let (modified, size) = ("2026-01-01T00:00:00.000Z", file.len());
            format!(
                "<Contents><Key>{name}</Key><LastModified>{modified}</LastModified><Size>{size}</Size></Contents>"
            )
        };
        let entries: String = listed.map(entry).collect();
        format!("<ListBucketResult>{entries}</ListBucketResult>")
    }
}

fn is_deletions(name: &str) -> bool {
    name.starts_with("table/_deletions/")
}

/// Adds the files of a folder to `files`, with names below `name`.
fn add_files(folder: &Path, name: &str, files: &mut BTreeMap<String, Bytes>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            add_files(&path, &name, files);
        } else {
            files.insert(name, std::fs::read(&path).unwrap().into());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_of_several_fragments_are_loaded_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let schema = rows.schema();
    let reader = RecordBatchIterator::new([Ok(rows)], schema);
    let params = WriteParams { max_rows_per_file: 5, ..Default::default() };
    let written = Dataset::write(reader, path.to_str().unwrap(), Some(params)).await;
    written.unwrap().delete("id % 5 = 0").await.unwrap();
    let bucket = Bucket::of(&path);
    assert_eq!(bucket.files.keys().filter(|name| is_deletions(name)).count(), 4);

    let endpoint = bucket.serve().await;
    let storage = [
        ("aws_endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "x"),
        ("aws_secret_access_key", "y"),
    ];
    let storage = storage.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let lake = Lake::new(LakeOptions { storage, ..Default::default() });
    let table = lake.open("s3://bucket/table").await.unwrap();
    let version = VersionFiles::new(&table, "id");
    let mut hashes = KeyHashes::with_capacity(20);
    (0..20).for_each(|_| hashes.push(Some(HASH)));
    let run = Run::build(7, KeyType::Integer, version.files().to_vec(), &hashes).unwrap();
    version.cover(vec![Arc::new(run)], Vec::new());

    let coverage = version.coverage_to_keep();
    let (pages, all) = (Pages::default(), WantedRows::All);
    let found = version.candidates_in(&coverage, &[HASH], &pages, all).await.unwrap();
    let live = |fragment| (1..5).map(move |offset| RowAddr::new(fragment, offset));
    assert_eq!(found.rows, (0..4).flat_map(live).collect::<Vec<_>>());
}
