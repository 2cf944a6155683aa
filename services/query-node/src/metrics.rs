//! The query node's metrics: their definitions, and their collection from each core's counters.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stores::{cache_samples, store_samples};
use telemetry::{
    Buckets, Histogram, Samples, Source, handshake_samples, process_samples, tls_samples,
};
use wire::query::{Calls, MemberState};
use wire::{CODES, Reason};

use crate::counters::{IndexKind, KeyVia, Rpc, SearchBy, SearchVia, ShardMetrics, Stage};
use crate::error::QueryError;
use crate::key_index::{PageOutcome, RunSource};
use crate::state::{NodeState, ShardState};
use crate::tables::Listed;

telemetry::metrics! {
    pub static METRICS;
    CALL_DURATION = Histogram "rpc.server.call.duration" "s" ["rpc.method", "rpc.response.status_code"] "Duration of calls: for GetStream of each request, for Lookup of each group of batches that are looked up together, for Take and Warm of the whole stream";
    FAILED = Counter "bireme.query.failures" "{request}" ["error.type"] "Requests answered with an error, by reason";
    DENIED = Counter "bireme.query.denied" "{request}" ["error.type"] "Requests that the access policy refused, by cause: what is wrong with the caller's credentials, such as `expired` or `bad_signature`; `forbidden`, `unknown_table` (there is none, or the caller may not see it), or the limit of the grant that was reached, such as `concurrent`";
    GRANT_REQUESTS = Counter "bireme.query.grant.requests" "{request}" ["grant"] "Requests that ran under a grant of the access policy";
    GRANT_REFUSED = Counter "bireme.query.grant.refused" "{request}" ["grant"] "Requests refused because a limit of the grant was reached";
    GRANT_ROWS = Counter "bireme.query.grant.rows" "{row}" ["grant"] "Rows returned under a grant";
    GRANT_BYTES = Counter "bireme.query.grant.bytes" "By" ["grant"] "Bytes of rows returned under a grant";
    GRANT_WAITING = Gauge "bireme.query.grant.waiting" "{request}" ["grant"] "Requests of a grant that wait for a permit: searches, look-ups, table reads, Placement and Warm. Grants are served in proportion to their weights";
    STAGE_DURATION = Histogram "bireme.query.stage.duration" "s" ["stage"] "Duration of requests' stages. For requests that share work, `fetch` includes the look-up";
    SEARCHES = Counter "bireme.query.searches" "{search}" ["by", "via", "index"] "Searches: by `vector`, `text` or a `filter` alone (a hybrid search counts once for each of the former two, and a search that is repeated for its lower bound counts twice); via an `index`, via Lance's `scanner`, `scored` if so few rows pass the filter that all of them are scored, or `exhaustive` if a vector is compared with every row, because there is no index or the request wants none; and by the kind of the index that is read: Lance's name, `none` if rows are compared one by one, `planned` for filters, whose indexes Lance's plan chooses";
    CANDIDATES = Histogram "bireme.query.search.candidates" "{row}" ["index"] "Rows that the index returned for a search";
    NPROBES = Histogram "bireme.query.search.nprobes" "{partition}" ["index"] "Index partitions that a vector search was asked to search";
    FRESH_COMPARED = Counter "bireme.query.search.fresh_rows" "{row}" [] "Rows that an index does not cover and that a search by vector or words compared one by one, in addition to its candidates";
    FILTERED = Counter "bireme.query.search.filtered_rows" "{row}" [] "Candidates for which the I/O nodes evaluated the filter of a search, because the rows that pass it are not known";
    KEYS = Counter "bireme.query.keys" "{key}" ["via"] "Keys that were looked up: via the `key_index` alone, or via the `table`, by its BTREE or a scan, because there is no key index, it has no run for some data files, one of its pages could not be read, or a key has more candidates than it returns";
    GATHERED = Counter "bireme.query.gathered" "{request}" [] "Gets, and groups of batches of a Lookup stream, that shared a look-up and a fetch with others that waited on the same core";
    KEY_INDEX_MEMORY = Gauge "bireme.query.key_index.usage" "By" [] "Memory of the key indexes of all tables, and of the run that is being built";
    KEY_INDEX_MEMORY_LIMIT = Gauge "bireme.query.key_index.limit" "By" [] "Maximum of the memory of key indexes";
    KEY_INDEX_RUNS = Counter "bireme.query.key_index.runs" "{run}" ["source"] "Runs of key indexes by where they came from: a `file` beside the table, which `bireme index` or a node wrote; the key `column`; the `merge` of other runs; or `pages`: a file of which only the head is in memory, because the run does not fit into `key_index`";
    KEY_INDEX_REFUSED = Counter "bireme.query.key_index.refused" "{file}" [] "Files of persisted runs that were not used, or only in part, because they are damaged or of an unknown format. `bireme index --key-runs` replaces them";
    KEY_INDEX_WRITTEN = Counter "bireme.query.key_index.written" "{run}" [] "Runs of key indexes that the node wrote to files beside their tables (`tables.NAME.write_key_runs`)";
    KEY_INDEX_WRITE_FAILURES = Counter "bireme.query.key_index.write_failures" "{attempt}" [] "Attempts to write the runs of a table's key index that failed. The log has the reason. The node tries again after an hour";
    KEY_INDEX_PAGES = Counter "bireme.query.key_index.pages" "{page}" ["outcome"] "Pages of 4,096 bytes that look-ups read of key indexes that are not in memory: they were `read`, were `damaged`, or reading them `failed`. Keys of the latter two are looked up in the table";
    RECALL_CURVES_REFUSED = Counter "bireme.query.recall_curves.refused" "{file}" [] "Files of recall curves that were not used, because they are damaged or of an unknown format. `bireme tune` writes new ones";
    UNDER_WAY = Gauge "bireme.query.requests.under_way" "{request}" [] "Searches, Gets and batches of Lookups in progress, whether they wait for a core, a permit, an index, or rows. It grows when a node is overloaded. Takes, Warms, and answers over plain HTTP that are sent in pieces are not counted: they last for as long as their callers read";
    QUEUE = Gauge "bireme.query.queue" "{search}" [] "Searches, look-ups, counts, table reads, and requests of Placement, Warm and Tune that wait, in the longest of the queues";
    QUEUE_LIMIT = Gauge "bireme.query.queue.limit" "{search}" [] "Maximum number that may wait in each queue; further requests are refused";
    SHED = Counter "bireme.query.requests.shed" "{request}" [] "Requests, messages of streams, and replies refused because the memory for callers was full. They are not among `bireme.query.failures`, and only such replies are among the calls. Requests whose rows found no memory are among the failures";
    TRAFFIC_MEMORY = Gauge "bireme.query.traffic_memory.usage" "By" [] "Memory held for callers: connections, requests as they arrive, rows, and replies until they are sent";
    TRAFFIC_MEMORY_LIMIT = Gauge "bireme.query.traffic_memory.limit" "By" [] "Maximum of the memory held for callers";
    CONNECTIONS = Gauge "bireme.query.connections" "{connection}" [] "Open connections of callers";
    CONNECTIONS_LIMIT = Gauge "bireme.query.connections.limit" "{connection}" [] "Maximum number of connections; a new one replaces one that is idle";
    CONNECTIONS_EVICTED = Counter "bireme.query.connections.evicted" "{connection}" [] "Idle connections that were closed for new ones";
    CONNECTIONS_REFUSED = Counter "bireme.query.connections.refused" "{connection}" [] "New connections that were refused: all others had streams, or half of all were from the same address";
    FETCH_DURATION = Histogram "bireme.query.fetch.duration" "s" [] "Duration of an I/O node's answer to its part of a request's rows";
    FETCH_ROWS = Histogram "bireme.query.fetch.rows" "{row}" [] "Rows of a request that one I/O node returned";
    FALLBACK_ROWS = Counter "bireme.query.fallback.rows" "{row}" [] "Rows that this node read from the table itself, because no I/O node could be asked, or the one that was asked failed";
    IO_NODES = Gauge "bireme.query.io_nodes" "{node}" ["state"] "I/O nodes by state: `ready`, `joining`, `draining`, `away`, `ejected`";
    STREAMS = Gauge "bireme.query.io_node.streams" "{stream}" ["io_node"] "Connected streams to an I/O node";
    OUTSTANDING = Gauge "bireme.query.io_node.outstanding" "{row}" ["io_node"] "Rows requested from an I/O node and not yet answered";
    WAITING = Gauge "bireme.query.io_node.waiting" "{batch}" ["io_node"] "Batches not yet sent: they wait for an I/O node's credit, or for room on the connection";
    CREDIT_LIMIT = Gauge "bireme.query.io_node.credit.limit" "{row}" ["io_node"] "Maximum number of outstanding rows that the I/O node allows on all connected streams together";
    CREDIT_WAITS = Counter "bireme.query.io_node.credit.waits" "{batch}" ["io_node"] "Batches that had to wait for an I/O node's credit";
    CREDIT_WAIT_TIME = Counter "bireme.query.io_node.credit.wait.time" "s" ["io_node"] "Total time that batches waited for an I/O node's credit";
    GENERATION = Gauge "bireme.query.membership.generation" "{list}" [] "Views of the I/O nodes so far: each change of the list, or of a node's state or share, makes a new one";
    REFUSED = Counter "bireme.query.membership.refused" "{list}" [] "Lists of I/O nodes that were refused. Consecutive ones with the same error count once";
    SOURCE_FAILURES = Counter "bireme.query.membership.failures" "{failure}" [] "Failures to read the list's source. Consecutive ones with the same error count once";
    SOURCE_UNREADABLE = Gauge "bireme.query.membership.unreadable" "{source}" [] "1 while the list's source cannot be read: the last list stays in use";
    LIST_INVALID = Gauge "bireme.query.membership.invalid" "{source}" [] "1 while the source has a list that is refused: the last valid list stays in use";
    EJECTIONS = Counter "bireme.query.membership.ejections" "{ejection}" [] "Ejections of I/O nodes that failed repeatedly";
    TABLE_VERSION = Gauge "bireme.query.table.version" "{version}" ["table"] "The version of a table that is served; 0 if the table cannot be opened";
    TABLE_ROWS = Gauge "bireme.query.table.rows" "{row}" ["table"] "Rows of the version that is served";
    TABLE_UNINDEXED_ROWS = Gauge "bireme.query.table.unindexed_rows" "{row}" ["table", "index"] "Rows of the version that is served that an index does not cover. Until the index is updated, each search by vector or by words compares them one by one, and a filter or a key is looked for in them by a scan. Reported once a search or a description has loaded the table's indexes";
    TABLE_KEY_INDEX_SIZE = Gauge "bireme.query.table.key_index.size" "By" ["table"] "Memory of a table's key index, for all versions in use. Reported once the key column is indexed";
    TABLE_KEY_INDEX_PAGED = Gauge "bireme.query.table.key_index.paged" "By" ["table"] "Pages of a table's key index that are not in memory, because they do not fit into `key_index`: look-ups read those that they need through the I/O nodes. Reported once the key column is indexed";
    TABLE_KEY_INDEX_MISSING = Gauge "bireme.query.table.key_index.missing_rows" "{row}" ["table"] "Rows of the version that is served that the key index lacks: their keys are looked up in the table. Reported once the key column is indexed";
}

/// Collects the metrics of a node.
pub struct NodeMetrics(pub Arc<NodeState>);

impl Source for NodeMetrics {
    async fn collect(&self) -> Samples {
        let Self(shared) = self;
        let cores = shared.cores();
        let mut samples = Samples::default();
        requests(&mut samples, &cores);
        grants(&mut samples, shared);
        fetches(&mut samples, shared, &cores);
        io_nodes(&mut samples, shared, &cores);
        tables(&mut samples, shared);
        store_samples(&mut samples, &shared.catalog.store_use());
        cache_samples(&mut samples, &shared.catalog.cache_use().await);
        let server = shared.tls.as_ref().and_then(|tls| tls.expires());
        let client = shared.io_nodes.tls.as_ref().and_then(|tls| tls.expires());
        tls_samples(&mut samples, server, client);
        handshake_samples(&mut samples, shared.tls.iter().flat_map(|tls| tls.refusals()));
        process_samples(&mut samples);
        samples
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    async fn is_alive(&self) -> bool {
        self.0.cores_answer().await
    }
}

/// Returns the durations of each rpc's requests, for Status.
pub fn calls(cores: &[Arc<ShardState>]) -> Vec<Calls> {
    let of_rpc = |(at, path): (usize, &&str)| {
        let mut seconds = Buckets::default();
        for code in 0..CODES.len() {
            seconds.add(&merged(cores, |core| core.calls[at][code].get()));
        }
        let rpc = path.rsplit('/').next().unwrap_or(path).to_owned();
        (seconds.count() > 0).then(|| Calls { rpc, seconds: Some((&seconds).into()) })
    };
    Rpc::NAMES.iter().enumerate().filter_map(of_rpc).collect()
}

/// Merges a histogram of all cores.
fn merged<'a>(
    cores: &'a [Arc<ShardState>],
    select: impl Fn(&'a ShardMetrics) -> Option<&'a Histogram>,
) -> Buckets {
    let mut sum = Buckets::default();
    cores.iter().filter_map(|core| select(&core.metrics)).for_each(|it| sum.add(&it.buckets()));
    sum
}

fn count<'a>(cores: &'a [Arc<ShardState>], of: impl Fn(&'a ShardMetrics) -> &'a AtomicU64) -> u64 {
    cores.iter().map(|core| of(&core.metrics).load(Ordering::Relaxed)).sum()
}

fn requests(samples: &mut Samples, cores: &[Arc<ShardState>]) {
    for (rpc, path) in Rpc::NAMES.iter().enumerate() {
        for (code, name) in CODES.iter().enumerate() {
            let calls = merged(cores, |core| core.calls[rpc][code].get());
            if calls.count() > 0 {
                samples.add(&CALL_DURATION, &[path, name], calls);
            }
        }
    }
    for (at, reason) in Reason::ALL.iter().enumerate() {
        let failures = count(cores, |core| &core.failures[at]);
        samples.add(&FAILED, &[&reason.as_str()], failures);
    }
    for (at, cause) in QueryError::refusals().enumerate() {
        samples.add(&DENIED, &[&cause], count(cores, |core| &core.refusals[at]));
    }
    for (stage, name) in Stage::NAMES.iter().enumerate() {
        let times = merged(cores, |core| Some(&core.stages[stage]));
        samples.add(&STAGE_DURATION, &[name], times);
    }
    for (by, by_name) in SearchBy::NAMES.iter().enumerate() {
        for (via, via_name) in SearchVia::NAMES.iter().enumerate() {
            for (kind, kind_name) in IndexKind::NAMES.iter().enumerate() {
                let searches = count(cores, |core| &core.searches[by][via][kind]);
                if searches > 0 {
                    samples.add(&SEARCHES, &[by_name, via_name, kind_name], searches);
                }
            }
        }
    }
    samples.add(&FRESH_COMPARED, &[], count(cores, |core| &core.fresh_rows));
    samples.add(&FILTERED, &[], count(cores, |core| &core.filtered_rows));
    for (via, name) in KeyVia::NAMES.iter().enumerate() {
        samples.add(&KEYS, &[name], count(cores, |core| &core.keys[via]));
    }
    samples.add(&GATHERED, &[], count(cores, |core| &core.gathered));
    for (kind, name) in IndexKind::NAMES.iter().enumerate() {
        let candidates = merged(cores, |core| core.candidates[kind].get());
        let nprobes = merged(cores, |core| core.nprobes[kind].get());
        for (metric, counts) in [(&CANDIDATES, candidates), (&NPROBES, nprobes)] {
            if counts.count() > 0 {
                samples.add(metric, &[name], counts);
            }
        }
    }
}

fn fetches(samples: &mut Samples, shared: &NodeState, cores: &[Arc<ShardState>]) {
    samples.add(&UNDER_WAY, &[], count(cores, |core| &core.under_way));
    samples.add(&QUEUE, &[], shared.admission.waiting() as u64);
    samples.add(&QUEUE_LIMIT, &[], shared.config.search_queue_max as u64);
    samples.add(&SHED, &[], cores.iter().map(|core| core.memory.refused()).sum::<u64>());
    samples.add(&TRAFFIC_MEMORY, &[], cores.iter().map(|core| core.memory.used()).sum::<u64>());
    samples.add(
        &TRAFFIC_MEMORY_LIMIT,
        &[],
        cores.iter().map(|core| core.memory.max()).sum::<u64>(),
    );
    let connections = shared.connection_slots.counts();
    samples.add(&CONNECTIONS, &[], connections.open as u64);
    samples.add(&CONNECTIONS_LIMIT, &[], connections.max as u64);
    samples.add(&CONNECTIONS_EVICTED, &[], connections.evicted);
    samples.add(&CONNECTIONS_REFUSED, &[], connections.refused);
    samples.add(&FETCH_DURATION, &[], merged(cores, |core| Some(&core.fetch_times)));
    samples.add(&FETCH_ROWS, &[], merged(cores, |core| Some(&core.fetch_rows)));
    samples.add(&FALLBACK_ROWS, &[], shared.fallback_rows());
}

fn io_nodes(samples: &mut Samples, shared: &NodeState, cores: &[Arc<ShardState>]) {
    let routes: Vec<_> = cores.iter().map(|core| core.tier.routes()).collect();
    let nodes = || routes.first().into_iter().flat_map(|routes| routes.nodes());
    for (state, name) in [
        (MemberState::Ready, "ready"),
        (MemberState::Joining, "joining"),
        (MemberState::Draining, "draining"),
        (MemberState::Away, "away"),
        (MemberState::Ejected, "ejected"),
    ] {
        let of_state = nodes().filter(|node| node.state() == state).count();
        samples.add(&IO_NODES, &[&name], of_state as u64);
    }
    for node in nodes() {
        let name = &node.member.name;
        let everywhere = routes.iter().flat_map(|routes| routes.nodes());
        let of_node = everywhere.filter(|it| it.member.name == *name);
        let counters: Vec<_> = of_node.map(|it| it.client.counters()).collect();
        let sum = |of: fn(&client::fetch::Counters) -> usize| {
            counters.iter().map(of).sum::<usize>() as u64
        };
        let total = |of: fn(&client::fetch::Counters) -> u64| counters.iter().map(of).sum::<u64>();
        samples.add(&STREAMS, &[name], sum(|it| it.streams_up));
        samples.add(&OUTSTANDING, &[name], sum(|it| it.outstanding_rows));
        samples.add(&WAITING, &[name], sum(|it| it.waiting_batches));
        samples.add(&CREDIT_LIMIT, &[name], sum(|it| it.credit_rows));
        samples.add(&CREDIT_WAITS, &[name], total(|it| it.credit_waits));
        let wait_us = total(|it| it.credit_wait_us);
        samples.add(&CREDIT_WAIT_TIME, &[name], wait_us as f64 / 1e6);
    }
    let report = shared.io_nodes.report();
    samples.add(&GENERATION, &[], shared.io_nodes.views().borrow().generation);
    samples.add(&REFUSED, &[], report.refused);
    samples.add(&SOURCE_FAILURES, &[], report.failures);
    let is_refused = report.error.map(|error| error.is_refusal());
    samples.add(&SOURCE_UNREADABLE, &[], u64::from(is_refused == Some(false)));
    samples.add(&LIST_INVALID, &[], u64::from(is_refused == Some(true)));
    samples.add(&EJECTIONS, &[], shared.io_nodes.ejected());
}

fn grants(samples: &mut Samples, shared: &NodeState) {
    for grant in shared.access.grants() {
        let (name, used) = (grant.name(), grant.used());
        samples.add(&GRANT_REQUESTS, &[&name], used.requests);
        samples.add(&GRANT_REFUSED, &[&name], used.refused);
        samples.add(&GRANT_ROWS, &[&name], used.rows);
        samples.add(&GRANT_BYTES, &[&name], used.bytes);
        samples.add(&GRANT_WAITING, &[&name], shared.admission.waiting_of(grant.flow()) as u64);
    }
}

fn tables(samples: &mut Samples, shared: &NodeState) {
    let (max, used) = shared.catalog.key_index_memory();
    samples.add(&KEY_INDEX_MEMORY, &[], used);
    samples.add(&KEY_INDEX_MEMORY_LIMIT, &[], max);
    let (runs, refused) = shared.catalog.key_index_runs();
    for (source, runs) in RunSource::NAMES.iter().zip(runs) {
        samples.add(&KEY_INDEX_RUNS, &[source], runs);
    }
    samples.add(&KEY_INDEX_REFUSED, &[], refused);
    let (written, failures) = shared.catalog.key_index_writes();
    samples.add(&KEY_INDEX_WRITTEN, &[], written);
    samples.add(&KEY_INDEX_WRITE_FAILURES, &[], failures);
    for (outcome, pages) in PageOutcome::NAMES.iter().zip(shared.catalog.key_index_pages()) {
        samples.add(&KEY_INDEX_PAGES, &[outcome], pages);
    }
    samples.add(&RECALL_CURVES_REFUSED, &[], shared.catalog.recall_curves_refused());
    // A table of a folder has metrics only while it is open or after it could not be opened: a folder may have
    // thousands.
    let has_metrics =
        |it: &Listed| !it.opens_on_request || it.current.is_some() || it.fault.is_some();
    for table in shared.catalog.list().into_iter().filter(has_metrics) {
        let current = table.current.as_ref();
        let version = current.map_or(0, |open| open.version());
        samples.add(&TABLE_VERSION, &[&table.name], version);
        samples.add(&TABLE_ROWS, &[&table.name], current.map_or(0, |it| it.table.row_count()));
        let keys = current.and_then(|it| it.keys.as_ref()).map(|keys| keys.report());
        if let Some(keys) = keys.filter(|keys| keys.is_wanted) {
            samples.add(&TABLE_KEY_INDEX_SIZE, &[&table.name], keys.bytes);
            samples.add(&TABLE_KEY_INDEX_PAGED, &[&table.name], keys.paged_bytes);
            samples.add(&TABLE_KEY_INDEX_MISSING, &[&table.name], keys.uncovered_rows);
        }
        for index in current.and_then(|it| it.table.loaded_indexes()).into_iter().flatten() {
            let labels: [&dyn Display; 2] = [&table.name, &index.name];
            samples.add(&TABLE_UNINDEXED_ROWS, &labels, index.rows_uncovered);
        }
    }
}
