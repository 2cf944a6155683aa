//! Tests how many requests a node that knows nothing sends to the store, and how many of them at the same time, with a
//! table in an S3 server.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use futures::FutureExt;
use futures::future::BoxFuture;
use lake::{
    CachedBytes, FileCache, FileDamaged, FilePath, IngestOptions, Lake, LakeOptions, TableUri,
    VectorQuery, VectorRoute, ingest,
};
use lance::Dataset;
use query_node::{QueryConfig, QueryNode, TableConfig};
use stores::StoreLimits;
use wire::query::GetRequest;

use crate::cluster::{Io, client_of, folder, member, sample, soon};
use crate::store::S3;
use crate::words::words;

const URI: &str = "s3://lake/words";

/// A cache that has no file, and takes its time to say so.
#[derive(Debug, Default)]
struct SlowAndEmpty {
    waiting: AtomicUsize,
    waiting_max: AtomicUsize,
    /// The sizes of files that it was told.
    sizes: Mutex<HashMap<String, u64>>,
    /// The files whose ends were read, although the cache had said that it lacks them.
    ends_read: Mutex<Vec<String>>,
}

impl FileCache for SlowAndEmpty {
    fn note_size(&self, _: &TableUri, path: &FilePath, bytes: u64) {
        self.sizes.lock().unwrap().insert(path.as_str().to_owned(), bytes);
    }

    fn size<'a>(
        &'a self,
        _: &'a TableUri,
        _: &'a FilePath,
    ) -> BoxFuture<'a, Result<Option<u64>, FileDamaged>> {
        async {
            self.waiting_max.fetch_max(self.waiting.fetch_add(1, Relaxed) + 1, Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.waiting.fetch_sub(1, Relaxed);
            Ok(None)
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        _: &'a TableUri,
        path: &'a FilePath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Option<CachedBytes>, FileDamaged>> {
        assert_eq!(self.sizes.lock().unwrap().get(path.as_str()), Some(&range.end));
        self.ends_read.lock().unwrap().push(path.as_str().to_owned());
        std::future::ready(Ok(None)).boxed()
    }

    fn fill<'a>(&'a self, _: &'a TableUri, _: &'a FilePath, _: u64) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }

    fn release<'a>(&'a self, _: &'a TableUri, _: &'a FilePath, _: u64) -> BoxFuture<'a, bool> {
        std::future::ready(true).boxed()
    }
}

/// Searches by the index alone, and returns the addresses of the rows.
async fn found(lake: &Lake, uri: &str, query: &VectorQuery) -> Vec<u64> {
    let table = lake.open(uri).await.unwrap();
    let VectorRoute::Direct(search) = table.open_route(query).await.unwrap() else {
        panic!("the search is planned")
    };
    search.hits.await.unwrap().iter().map(|hit| hit.addr.to_u64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_search_reads_its_files_and_partitions_at_the_same_time() {
    let Some(s3) = S3::start(false).await else { return };
    let words = words().await;
    s3.put_folder(&words.uri, "/lake/words");
    let query = |nprobes| VectorQuery {
        vector: words.vector(7),
        k: 50,
        nprobes: Some(nprobes),
        ..Default::default()
    };
    let local = Lake::new(LakeOptions::default());
    let expected = found(&local, words.uri.to_str().unwrap(), &query(20)).await;

    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let cache = Arc::new(SlowAndEmpty::default());
    lake.read_files_through(Arc::clone(&cache) as _);
    // Open the index.
    found(&lake, URI, &query(1)).await;
    let sizes = std::mem::take(&mut *cache.sizes.lock().unwrap());
    for (path, bytes) in &sizes {
        assert_eq!(std::fs::metadata(words.uri.join(path)).unwrap().len(), *bytes, "{path}");
    }
    let mut ends: Vec<_> = std::mem::take(&mut *cache.ends_read.lock().unwrap());
    ends.sort_unstable();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends[0].ends_with("auxiliary.idx") && ends[1].ends_with("index.idx"), "{ends:?}");
    cache.waiting_max.store(0, Relaxed);
    let before = lake.store_use().reads;
    assert_eq!(found(&lake, URI, &query(20)).await, expected);
    let together = cache.waiting_max.load(Relaxed);
    println!("a first search reads {together} ranges at the same time");
    assert!(together >= 10, "{together}");
    // The second search needs the same partitions, which are in memory.
    let first = lake.store_use().reads - before;
    assert_eq!(found(&lake, URI, &query(20)).await, expected);
    let second = lake.store_use().reads - before - first;
    assert!(second <= 1 && first > 20, "{first}, {second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_io_node_opens_a_version_with_one_request_while_a_key_is_looked_up() {
    let Some(s3) = S3::start(false).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let create = IngestOptions { key: Some("synset".into()), ..Default::default() };
    ingest(&lake, &[sample()], URI, &create, |_| {}).await.unwrap();
    let io = Io::start(|config| config.storage = s3.options()).await;
    let table = TableConfig { uri: URI.into(), ..TableConfig::default() };
    let config = QueryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tables: [("words".to_owned(), table)].into(),
        io_nodes: vec![member(&io.node)],
        storage: s3.options(),
        ..QueryConfig::default()
    };
    let node = QueryNode::start(config.clone(), Lake::new(config.lake_options())).await.unwrap();
    let client = client_of(&node).await;
    node.ready().await;
    assert_eq!(io.describe().await.store.unwrap().reads, 0);
    // No row has this key, so no row is fetched.
    let keys = vec!["nowhere".into()];
    let get = GetRequest { table: "words".into(), keys, ..Default::default() };
    assert_eq!(client.get(get).await.unwrap().not_found, [0]);
    let until = soon();
    while io.describe().await.store.unwrap().reads == 0 {
        assert!(tokio::time::Instant::now() < until, "the version is not opened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(io.describe().await.store.unwrap().reads, 1, "the manifest");
    node.shutdown(Duration::from_secs(10)).await.unwrap();
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_io_node_reads_neighbouring_pages_with_one_request() {
    const ROWS: i64 = 500_000;
    // 100,000 bytes lie between two of the rows.
    const STEP: u32 = 12_500;
    let Some(s3) = S3::start(false).await else { return };
    let folder = folder();
    let place = folder.path().join("table");
    // Multiplied by an odd number, the values have no pattern that could be compressed.
    let value = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(value)));
    let batch = RecordBatch::try_from_iter([("value", values)]).unwrap();
    let schema = batch.schema();
    let rows = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(rows, place.to_str().unwrap(), None).await.unwrap();
    s3.put_folder(&place, "/lake/table");
    let addrs: Vec<_> = (0..30).map(|at| RowAddr::new(0, at * STEP)).collect();
    let mut counts = Vec::new();
    for options in [
        LakeOptions { storage: s3.options(), ..Default::default() },
        LakeOptions::for_row_reads(64 << 20, s3.options(), StoreLimits::default()),
    ] {
        let lake = Lake::new(options);
        let table = lake.open("s3://lake/table").await.unwrap();
        let before = lake.store_use().reads;
        let taken = table.take(&addrs, &["value".into()]).await.unwrap();
        let taken = taken.column(0).as_primitive::<Int64Type>().values();
        assert!(taken.iter().zip(&addrs).all(|(it, addr)| *it == value(addr.offset().into())));
        counts.push(lake.store_use().reads - before);
    }
    println!("requests for 30 rows: {counts:?}");
    assert!(counts[0] > 20 && counts[1] < 10, "{counts:?}");
}
