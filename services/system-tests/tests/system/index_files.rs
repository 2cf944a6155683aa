//! Tests index files that query nodes read through I/O nodes, with a table in an S3 server.

use std::time::{Duration, Instant};

use address::RowAddr;
use arrow_array::cast::AsArray;
use client::fetch::{Reply, TableFile};
use futures::StreamExt;
use lake::{
    IndexRequest, IngestMode, IngestOptions, Lake, LakeOptions, Metric, VectorIndex, build_index,
    ingest,
};
use query_node::{IoNodeConfig, QueryConfig, QueryNode, TableConfig};
use wire::fetch::ReleaseRequest;
use wire::query::search_request::By;
use wire::query::{IndexFiles, SearchRequest, TakeRequest, Text, WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::cluster::{Cluster, Io, client_of, member, sample, soon};
use crate::folders::http;
use crate::store::S3;
use crate::words::{by_vector, search, synsets, warm as warm_rows, words};

const URI: &str = "s3://lake/words";

/// The maximum number of requests that a new query node sends to the store for its first searches, if the I/O nodes'
/// drives have the indexes and the rows: to find the latest version, and to read its manifest.
const REQUESTS_MAX: u64 = 5;

/// The record of a query node, from its start to its end.
struct Session {
    /// The keys that each search found.
    found: Vec<Vec<String>>,
    /// The number of the node's requests to the store.
    requests: u64,
    /// The number of reads that I/O nodes answered instead of the store.
    avoided: u64,
}

/// Starts a query node, sends it searches, and stops it.
async fn session(s3: &S3, io: &[Io], searches: &[SearchRequest]) -> Session {
    let members = io.iter().map(|io| member(&io.node)).collect();
    Box::pin(session_over(s3, members, searches)).await
}

fn query_config(s3: &S3, io_nodes: Vec<IoNodeConfig>, warm_indexes: bool) -> QueryConfig {
    let table = TableConfig { uri: URI.into(), warm_indexes, ..TableConfig::default() };
    QueryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tables: [("words".to_owned(), table)].into(),
        io_nodes,
        // Requests are counted, so nothing may ask for a new version meanwhile.
        refresh_interval: Duration::from_secs(3600),
        storage: s3.options(),
        ..QueryConfig::default()
    }
}

async fn session_over(s3: &S3, io_nodes: Vec<IoNodeConfig>, searches: &[SearchRequest]) -> Session {
    let config = query_config(s3, io_nodes, false);
    let lake = Lake::new(config.lake_options());
    let node = QueryNode::start(config, lake.clone()).await.unwrap();
    let client = client_of(&node).await;
    node.ready().await;
    let mut found = Vec::new();
    for search in searches {
        let answer = client.search(search.clone()).await.unwrap();
        found.push(synsets(&answer.rows));
    }
    let used = lake.store_use();
    node.shutdown(Duration::from_secs(10)).await.unwrap();
    Session { found, requests: used.reads + used.writes, avoided: used.reads_avoided }
}

async fn warm(cluster: &Cluster, names: &[&str]) -> Result<WarmProgress, Fault> {
    warm_at(cluster, names, 0).await
}

async fn warm_at(
    cluster: &Cluster,
    names: &[&str],
    bytes_per_s: u64,
) -> Result<WarmProgress, Fault> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let indexes = Some(IndexFiles { names });
    let request = WarmRequest { table: "words".into(), indexes, bytes_per_s, ..Default::default() };
    let steps: Vec<_> = cluster.client.warm(request).await?.collect().await;
    steps.into_iter().last().unwrap()
}

async fn serve(s3: &S3) -> Cluster {
    Cluster::start_with(2, &[("words", URI.as_ref())], |io, query| {
        io.storage = s3.options();
        query.storage = s3.options();
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept_over_all_files() {
    const BYTES_PER_S: u64 = 2 << 20;
    let Some(s3) = S3::start(false).await else { return };
    let words = words().await;
    s3.put_folder(&words.uri, "/lake/words");
    let cluster = Cluster::start_with(1, &[("words", URI.as_ref())], |io, query| {
        io.storage = s3.options();
        query.storage = s3.options();
    })
    .await;
    let began = Instant::now();
    let filled = warm_at(&cluster, &[], BYTES_PER_S).await.unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!(filled.extents_done == filled.extents_total && filled.extents_total > 5, "{filled:?}");
    // The node does not wait after the last file, which is a small one.
    let least = filled.bytes_written as f64 / 2.0 / BYTES_PER_S as f64;
    assert!(took >= least && least > 0.4, "{took} s of at least {least}: {filled:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_query_node_reads_indexes_from_the_drives_and_not_from_the_store() {
    let Some(s3) = S3::start(false).await else { return };
    let words = words().await;
    s3.put_folder(&words.uri, "/lake/words");
    let by_words = By::Text(Text { words: "small animal".into(), ..Default::default() });
    let searches = [search(by_vector(words.vector(7))), search(by_words)];
    // Serve the same table from its folder. Indexes in folders are not read through I/O nodes.
    let local = words.serve(1).await;
    let mut expected = Vec::new();
    for search in &searches {
        expected.push(synsets(&local.client.search(search.clone()).await.unwrap().rows));
    }
    let refused = warm(&local, &[]).await.unwrap_err();
    assert_eq!(refused.reason, Reason::BadArgument);
    assert!(refused.message.contains("folder"), "{refused}");
    local.stop().await;

    let cluster = serve(&s3).await;
    let cold = session(&s3, &cluster.io, &searches).await;
    let unknown = warm(&cluster, &["nowhere"]).await.unwrap_err();
    assert!(unknown.message.contains("nowhere") && unknown.message.contains("vector"), "{unknown}");
    for _ in 0..2 {
        let filled = warm(&cluster, &[]).await.unwrap();
        assert_eq!((filled.extents_failed, filled.extents_done), (0, filled.extents_total));
        assert!(filled.extents_found <= filled.extents_total && filled.extents_total > 3);
    }
    warm_rows(&cluster).await;
    let before = store_reads(&cluster.io).await;
    let mut warm = session(&s3, &cluster.io, &searches).await;
    // A read that an I/O node does not answer in time (`LATE` in `lake/src/store/cached.rs`) goes to the store too, so a
    // slow machine gets further attempts.
    for _ in 0..2 {
        if warm.requests > REQUESTS_MAX {
            warm = session(&s3, &cluster.io, &searches).await;
        }
    }
    assert_eq!((&cold.found, &warm.found), (&expected, &expected));
    println!(
        "requests to the store for the first searches of a query node: {} over cold I/O nodes, {} over warm ones",
        cold.requests, warm.requests
    );
    assert!(warm.requests <= REQUESTS_MAX, "{}", warm.requests);
    assert!(warm.avoided > 0);
    assert_eq!(store_reads(&cluster.io).await, before, "the drives have everything");

    // A node that loads the indexes before it is ready reads no more of them for its first search.
    let members: Vec<_> = cluster.io.iter().map(|io| member(&io.node)).collect();
    let config = query_config(&s3, members.clone(), true);
    let lake = Lake::new(config.lake_options());
    let node = QueryNode::start(config, lake.clone()).await.unwrap();
    let client = client_of(&node).await;
    node.ready().await;
    let before = lake.store_use();
    assert!(before.reads_avoided > 0);
    assert_eq!(synsets(&client.search(searches[0].clone()).await.unwrap().rows), expected[0]);
    let used = lake.store_use();
    assert_eq!((used.reads, used.reads_avoided), (before.reads, before.reads_avoided));
    node.shutdown(Duration::from_secs(10)).await.unwrap();

    // If the I/O nodes are gone, the store answers.
    cluster.stop().await;
    let without = Box::pin(session_over(&s3, members, &searches)).await;
    assert_eq!(without.found, expected);
    assert_eq!(without.avoided, 0);
    assert!(without.requests > REQUESTS_MAX);
}

/// Returns the number of reads that each I/O node has sent to the store.
async fn store_reads(io: &[Io]) -> Vec<u64> {
    let mut reads = Vec::new();
    for io in io {
        reads.push(io.describe().await.store.unwrap().reads);
    }
    reads
}

/// Fetches sectors of a file from an I/O node.
async fn sectors(io: &Io, path: &str, bytes: u64, sectors: &[u32]) -> Result<Reply, Fault> {
    let file = io.client.open_file(TableFile { uri: URI, path, bytes }, soon()).await?;
    let addrs = sectors.iter().map(|&sector| RowAddr::new(0, sector)).collect();
    io.client.fetch(&file, addrs, None, soon()).await
}

fn bytes(reply: Reply) -> Vec<u8> {
    reply.into_rows().unwrap().column(0).as_fixed_size_binary().values().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_changed_or_outside_the_table_is_refused() {
    let Some(s3) = S3::start(false).await else { return };
    let put = |s3: &S3, path: &str, content: &[u8]| {
        let answer = s3.request("PUT", &format!("/lake/words/{path}"), content).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    };
    // The file has two blocks and 10 bytes more. Each byte is the number of its sector, modulo 256.
    let sectors_of_file = 2 * 128 + 1;
    let size = (sectors_of_file - 1) * 4096 + 10;
    let content: Vec<u8> = (0..size).map(|at| (at / 4096) as u8).collect();
    put(&s3, "_indices/u/a.idx", &content);
    put(&s3, "_versions/1.manifest", &content);
    let io = Io::start(|config| config.storage = s3.options()).await;
    let size = size as u64;

    let reply = sectors(&io, "_indices/u/a.idx", 0, &[256, 1, 257]).await.unwrap();
    assert_eq!(reply.missing, [2], "sector 257 is behind the end");
    let last = vec![0; 4096];
    assert_eq!(bytes(reply), [last.clone(), vec![1; 4096]].concat(), "256 % 256 is 0");

    for (path, bytes, reason, said) in [
        ("_versions/1.manifest", 0, Reason::BadArgument, "_indices"),
        ("_indices/../_versions/1.manifest", 0, Reason::BadArgument, "_indices"),
        ("data/x.lance", 0, Reason::BadArgument, "_indices"),
        ("_indices/u/gone.idx", 0, Reason::TableDamaged, "is gone"),
        ("_indices/u/gone.idx", 7, Reason::TableDamaged, "is gone"),
        ("_indices/u/a.idx", size + 1, Reason::TableDamaged, "bytes, and should have"),
    ] {
        let refused = sectors(&io, path, bytes, &[0]).await.unwrap_err();
        assert_eq!(refused.reason, reason, "{path}: {refused}");
        assert!(refused.message.contains(said), "{path}: {refused}");
    }
    // A wrong size disturbs no caller with the right one, on a node that has opened the file by another name too.
    let right = sectors(&io, "_indices/u/a.idx", size, &[0, 1]).await.unwrap();
    assert_eq!(bytes(right), [vec![0; 4096], vec![1; 4096]].concat());
    let fresh = Io::start(|config| config.storage = s3.options()).await;
    let refused = sectors(&fresh, "_indices/u/a.idx", size + 1, &[0]).await.unwrap_err();
    assert_eq!(refused.reason, Reason::TableDamaged, "{refused}");
    let right = sectors(&fresh, "_indices/u/a.idx", size, &[0, 1]).await.unwrap();
    assert_eq!(bytes(right), [vec![0; 4096], vec![1; 4096]].concat());
    // Both openings, with the size and without it, have read the store, and none has read block 1.
    assert_eq!(bytes(sectors(&fresh, "_indices/u/a.idx", size, &[256]).await.unwrap()), last);
    assert_eq!(bytes(sectors(&fresh, "_indices/u/a.idx", 0, &[256]).await.unwrap()), last);
    let open = TableFile { uri: "s3://elsewhere/words", path: "_indices/u/a.idx", bytes: 0 };
    let refused = io.client.open_file(open, soon()).await.unwrap_err();
    assert_eq!(refused.reason, Reason::TableNotServed);

    // The file is overwritten by one of the same size. Blocks 0 and 2 were read before, so their old bytes are still
    // served. Block 1 was not read before, and is refused.
    let s3 = s3.emptied().await;
    put(&s3, "_indices/u/a.idx", &vec![9; content.len()]);
    let refused = sectors(&io, "_indices/u/a.idx", 0, &[130]).await.unwrap_err();
    assert_eq!(refused.reason, Reason::TableDamaged, "{refused}");
    assert!(refused.message.contains("was overwritten"), "{refused}");
    let before = sectors(&io, "_indices/u/a.idx", 0, &[3]).await.unwrap();
    assert_eq!(bytes(before), vec![3; 4096]);
    io.stop().await;

    // A read by the size that finds the file overwritten has the next read open it anew, also one that does not know
    // the size. The client has opened the file both ways.
    let refused = sectors(&fresh, "_indices/u/a.idx", size, &[130]).await.unwrap_err();
    assert!(refused.message.contains("was overwritten"), "{refused}");
    let anew = sectors(&fresh, "_indices/u/a.idx", 0, &[130]).await.unwrap();
    assert_eq!(bytes(anew), vec![9; 4096]);
    // A file that is missing for a while is read again once it is back.
    put(&s3, "_indices/u/b.idx", &content);
    let first = sectors(&fresh, "_indices/u/b.idx", size, &[1]).await.unwrap();
    assert_eq!(bytes(first), vec![1; 4096]);
    let deleted = s3.request("DELETE", "/lake/words/_indices/u/b.idx", b"").unwrap();
    assert!(deleted.contains(" 204 "), "{deleted}");
    let refused = sectors(&fresh, "_indices/u/b.idx", size, &[130]).await.unwrap_err();
    assert!(refused.message.contains("is gone"), "{refused}");
    put(&s3, "_indices/u/b.idx", &content);
    let back = sectors(&fresh, "_indices/u/b.idx", size, &[130]).await.unwrap();
    assert_eq!(bytes(back), vec![130; 4096]);
    fresh.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_costs_requests_for_what_has_changed_and_not_for_the_whole_table() {
    let Some(s3) = S3::start(false).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let mut costs = Vec::new();
    for (name, rows_per_file) in [("few", 10_000), ("many", 10)] {
        let uri = format!("s3://lake/{name}");
        let create = IngestOptions { max_rows_per_file: rows_per_file, ..Default::default() };
        ingest(&lake, &[sample()], &uri, &create, |_| {}).await.unwrap();
        let config = QueryConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            tables: [(name.to_owned(), TableConfig { uri: uri.clone(), ..Default::default() })]
                .into(),
            refresh_interval: Duration::from_secs(3600),
            storage: s3.options(),
            ..QueryConfig::default()
        };
        let io = Io::start(|config| config.storage = s3.options()).await;
        let config = QueryConfig { io_nodes: vec![member(&io.node)], ..config };
        let reader = Lake::new(config.lake_options());
        let node = QueryNode::start(config, reader.clone()).await.unwrap();
        let client = client_of(&node).await;
        node.ready().await;
        let take = |row_addrs| {
            let table = name.to_owned();
            client.take(TakeRequest { table, row_addrs, ..Default::default() })
        };
        drop(take(vec![0]).await.unwrap().collect().await.unwrap());
        let fragments = client.describe(name, 0).await.unwrap().response.fragments;

        let append = IngestOptions { mode: IngestMode::Append, ..Default::default() };
        ingest(&lake, &[sample()], &uri, &append, |_| {}).await.unwrap();
        let before = reader.store_use();
        let before_io = io.describe().await.store.unwrap().reads;
        node.refresh().await;
        let used = reader.store_use();
        // Take the new fragment's first row.
        drop(take(vec![u64::from(fragments) << 32]).await.unwrap().collect().await.unwrap());
        let of_io = io.describe().await.store.unwrap().reads - before_io;
        let of_query = used.reads + used.writes - before.reads - before.writes;
        let of_version = used.version_reads - before.version_reads;
        assert_eq!(used.versions_opened - before.versions_opened, 1);
        assert!((1..=of_query).contains(&of_version), "{of_version} of {of_query}");
        println!(
            "{fragments} fragments: {of_query} requests of the query node, {of_io} of the I/O node"
        );
        costs.push((of_query, of_io));
        node.shutdown(Duration::from_secs(10)).await.unwrap();
        io.stop().await;
    }
    // The number of the I/O node's requests depends on whether its read of the row and the fill of the row's chunk
    // overlap.
    assert!(costs.iter().all(|&(query, io)| query <= 6 && io <= 20), "{costs:?}");
}

/// Writes the sample as a table with a vector index. Returns the request by which the index can be built again.
async fn indexed(s3: &S3) -> (Lake, IndexRequest) {
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    ingest(&lake, &[sample()], URI, &IngestOptions::default(), |_| {}).await.unwrap();
    let vector =
        VectorIndex { column: "vector".into(), metric: Metric::Cosine, ..Default::default() };
    let vector = IndexRequest::Vector(vector);
    build_index(&lake, URI, &vector, |_| {}).await.unwrap();
    (lake, vector)
}

/// Serves the table. The query node looks for new versions only when a test tells it to.
async fn serve_unfollowed(s3: &S3, warm_indexes: bool) -> Cluster {
    Cluster::start_with(2, &[("words", URI.as_ref())], |io, query| {
        io.storage = s3.options();
        // The I/O nodes' requests to the store are counted, so none may be sent twice.
        io.store.hedge = false;
        query.storage = s3.options();
        query.refresh_interval = Duration::from_secs(3600);
        query.tables.get_mut("words").unwrap().warm_indexes = warm_indexes;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_rebuilt_index_are_on_the_drives_before_its_version_is_served() {
    let Some(s3) = S3::start(false).await else { return };
    let (lake, vector) = indexed(&s3).await;
    let cluster = serve_unfollowed(&s3, false).await;
    warm_rows(&cluster).await;
    let asked = search(by_vector((0..384).map(|at| at as f32 - 100.0).collect()));
    let before = cluster.client.search(asked.clone()).await.unwrap();
    assert_eq!(warm(&cluster, &[]).await.unwrap().extents_failed, 0);

    rebuild(&cluster, &lake, &vector).await;
    let read = store_reads(&cluster.io).await;
    // Each I/O node opens the version, with one request.
    let opened: Vec<_> = read.iter().map(|reads| reads + 1).collect();
    let after = cluster.client.search(asked).await.unwrap();
    assert!(after.version > before.version, "the new version is served");
    assert_eq!(synsets(&after.rows)[0], synsets(&before.rows)[0]);
    assert_eq!(store_reads(&cluster.io).await, opened, "the drives have the new index");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_index_in_use_are_read_ahead_though_nobody_searched_the_version_before() {
    let Some(s3) = S3::start(false).await else { return };
    let (lake, vector) = indexed(&s3).await;
    let scalar = IndexRequest::Scalar { column: "domain".into() };
    build_index(&lake, URI, &scalar, |_| {}).await.unwrap();
    let near = search(by_vector((0..384).map(|at| at as f32 - 100.0).collect()));
    let filtered = SearchRequest { by: None, filter: "domain = 43".into(), ..near.clone() };
    for (index, asked) in [(vector, near), (scalar, filtered)] {
        let cluster = serve_unfollowed(&s3, false).await;
        cluster.client.search(asked).await.unwrap();
        assert_eq!(warm(&cluster, &[]).await.unwrap().extents_failed, 0);

        // Nobody searches the version that has only more rows.
        let append = IngestOptions { mode: IngestMode::Append, ..Default::default() };
        ingest(&lake, &[sample()], URI, &append, |_| {}).await.unwrap();
        cluster.query.refresh().await;
        rebuild(&cluster, &lake, &index).await;
        let filled = warm(&cluster, &[]).await.unwrap();
        assert_eq!(filled.extents_found, filled.extents_total, "the drives have the new index");
        cluster.stop().await;
    }
}

/// Returns the names of the index files of a version, and the number of their blocks.
async fn index_files(lake: &Lake, version: u64) -> (Vec<(String, u64)>, u64) {
    let table = lake.open_version(URI, version).await.unwrap();
    let files = table.files(&[]).await.unwrap();
    let files: Vec<_> =
        files.iter().map(|it| (it.path.as_str().to_owned(), it.bytes.unwrap())).collect();
    let blocks = blocks_of(&files);
    (files, blocks)
}

/// Returns the number of blocks of files.
fn blocks_of(files: &[(String, u64)]) -> u64 {
    files.iter().map(|(_, bytes)| bytes.div_ceil(512 << 10)).sum()
}

/// Builds an index again, and has the query node serve the new version. Its files must be on the drives before that,
/// unless the I/O nodes take longer than the 5 s for which a version waits for them (`NEW_VERSION_PATIENCE`). The drives
/// must have all files of the version before.
async fn rebuild(cluster: &Cluster, lake: &Lake, index: &IndexRequest) {
    let version = lake.open(URI).await.unwrap().version();
    let (old_files, _) = index_files(lake, version).await;
    build_index(lake, URI, index, |_| {}).await.unwrap();
    let version = lake.open(URI).await.unwrap().version();
    let (mut new_files, _) = index_files(lake, version).await;
    new_files.retain(|file| !old_files.contains(file));
    let wanted = blocks(&cluster.io).await + blocks_of(&new_files);
    let began = Instant::now();
    cluster.query.refresh().await;
    let waited = began.elapsed();
    let there = blocks(&cluster.io).await;
    assert!(there >= wanted || waited >= Duration::from_secs(5), "{there} of {wanted} blocks");
    until_filled(&cluster.io, wanted).await;
}

/// Waits until the drives of all I/O nodes have this number of blocks of files, and no fill runs.
async fn until_filled(io: &[Io], wanted: u64) {
    let until = soon();
    loop {
        let there = blocks(io).await;
        let mut running = 0;
        for io in io {
            running += io.describe().await.fills_running;
        }
        if there >= wanted && running == 0 {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{there} of {wanted} blocks, {running} fills");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the number of blocks of files on the drives of all I/O nodes.
async fn blocks(io: &[Io]) -> u64 {
    let mut blocks = 0;
    for io in io {
        let tables = io.describe().await.tables;
        blocks += tables
            .iter()
            .filter(|it| it.table.contains("/files"))
            .map(|it| it.extents)
            .sum::<u64>();
    }
    blocks
}

#[tokio::test(flavor = "multi_thread")]
async fn with_warm_indexes_new_files_are_read_ahead_though_a_caller_waits_for_their_version() {
    let Some(s3) = S3::start(false).await else { return };
    let (lake, vector) = indexed(&s3).await;
    let cluster = serve_unfollowed(&s3, true).await;
    cluster.query.ready().await;
    assert_eq!(warm(&cluster, &[]).await.unwrap().extents_failed, 0);
    let old_blocks = blocks(&cluster.io).await;
    build_index(&lake, URI, &vector, |_| {}).await.unwrap();
    let version = lake.open(URI).await.unwrap().version();
    let (_, new_blocks) = index_files(&lake, version).await;

    // For this caller, the version is served before its indexes are loaded. Nobody searches it.
    let headers = format!("x-lancedb-min-version: {version}\r\n");
    let counted = http(&cluster, "POST", "/v1/table/words/count_rows/", &headers).await;
    assert!(counted.starts_with("HTTP/1.1 200"), "{counted}");
    until_filled(&cluster.io, old_blocks + new_blocks).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_an_index_that_no_version_in_use_names_are_evicted() {
    let Some(s3) = S3::start(false).await else { return };
    let (lake, vector) = indexed(&s3).await;
    let first = lake.open(URI).await.unwrap().version();
    let cluster = Cluster::start_with(2, &[("words", URI.as_ref())], |io, query| {
        io.storage = s3.options();
        query.storage = s3.options();
        query.refresh_interval = Duration::from_secs(3600);
        query.versions_max = 1;
    })
    .await;
    warm_rows(&cluster).await;
    assert_eq!(warm(&cluster, &[]).await.unwrap().extents_failed, 0);
    let asked = search(by_vector((0..384).map(|at| at as f32 - 100.0).collect()));
    let expected = cluster.client.search(asked.clone()).await.unwrap();
    let (old_files, old_blocks) = index_files(&lake, first).await;
    assert_eq!(blocks(&cluster.io).await, old_blocks);

    // Rows are appended, and the index is built again, which replaces its files.
    let append = IngestOptions { mode: IngestMode::Append, ..Default::default() };
    ingest(&lake, &[sample()], URI, &append, |_| {}).await.unwrap();
    build_index(&lake, URI, &vector, |_| {}).await.unwrap();
    cluster.query.refresh().await;
    cluster.client.search(asked.clone()).await.unwrap();
    assert_eq!(warm(&cluster, &[]).await.unwrap().extents_failed, 0);
    let second = lake.open(URI).await.unwrap().version();
    let (_, new_blocks) = index_files(&lake, second).await;
    assert_eq!(blocks(&cluster.io).await, old_blocks + new_blocks);

    // While a request's version names the old index, it stays.
    let old_version = SearchRequest { version: first, ..asked.clone() };
    let again = cluster.client.search(old_version.clone()).await.unwrap();
    assert_eq!((again.version, synsets(&again.rows)), (first, synsets(&expected.rows)));
    cluster.query.release_dropped_files().await;
    assert_eq!(blocks(&cluster.io).await, old_blocks + new_blocks);

    // A version without an index takes its place among the versions that are kept open.
    let other = SearchRequest { version: first - 1, ..asked.clone() };
    let until = soon();
    while blocks(&cluster.io).await > new_blocks {
        assert!(tokio::time::Instant::now() < until, "the blocks are still there");
        cluster.client.search(other.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        cluster.query.release_dropped_files().await;
    }
    assert_eq!(blocks(&cluster.io).await, new_blocks, "the new index stays");
    until_filled(&cluster.io, new_blocks).await;
    let read = store_reads(&cluster.io).await;
    let after = cluster.client.search(asked).await.unwrap();
    assert_eq!(after.version, second);
    assert_eq!(store_reads(&cluster.io).await, read, "the drives have the new index");

    // A reader of the old version gets the bytes that a new I/O node reads from the store.
    let witness = Io::start(|config| config.storage = s3.options()).await;
    for (path, size) in &old_files {
        let all: Vec<u32> = (0..size.div_ceil(4096) as u32).collect();
        let stored = bytes(sectors(&witness, path, 0, &all).await.unwrap());
        for io in &cluster.io {
            assert!(bytes(sectors(io, path, *size, &all).await.unwrap()) == stored, "{path}");
        }
    }
    witness.stop().await;
    let again = cluster.client.search(old_version).await.unwrap();
    assert_eq!((again.version, synsets(&again.rows)), (first, synsets(&expected.rows)));

    // Bad input gets an error that names it.
    let release = |table: &str, file: &str, bytes| ReleaseRequest {
        table_uri: table.into(),
        file: file.into(),
        file_bytes: bytes,
    };
    for (request, reason, said) in [
        (release(URI, &old_files[0].0, 0), Reason::BadArgument, "file_bytes"),
        (release(URI, "data/x.lance", 7), Reason::BadArgument, "_indices"),
        (release("s3://elsewhere/words", "_indices/u/a.idx", 7), Reason::TableNotServed, "serve"),
        (release(URI, "_indices/u/a.idx", u64::MAX), Reason::TooLarge, "16 TiB"),
    ] {
        let refused =
            cluster.io[0].client.release(request, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.reason, reason, "{refused}");
        assert!(refused.message.contains(said), "{refused}");
    }
    cluster.stop().await;
}
