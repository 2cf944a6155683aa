//! The query node's metrics: what they are, what a core counts for them, and how they are collected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lake::{cache_samples, store_samples};
use telemetry::{Buckets, Histogram, Samples, Scale, Source, process_samples, tls_samples};
use tonic::Code;
use wire::Reason;
use wire::query::{Calls, MemberState};

use crate::state::{NodeState, ShardState};

telemetry::metrics! {
    pub static METRICS;
    CALL_DURATION = Histogram "rpc.server.call.duration" "s" ["rpc.method", "rpc.response.status_code"] "How long calls took; of streams, each request (GetStream) or the whole (Take, Warm)";
    FAILED = Counter "bireme.query.failures" "{request}" ["error.type"] "Requests answered with an error, by its reason";
    STAGE_DURATION = Histogram "bireme.query.stage.duration" "s" ["stage"] "Where requests' time goes, by stage";
    SEARCHES = Counter "bireme.query.searches" "{search}" ["by", "via", "index"] "Searches by `vector`, `text` or `filter`, of the index's partitions directly or by Lance's scanner, and the kind of index: Lance's name of it, `none` where rows are compared one by one, `planned` for filters, whose indexes Lance's plan chooses";
    CANDIDATES = Histogram "bireme.query.search.candidates" "{row}" ["index"] "Rows that a search's index named";
    NPROBES = Histogram "bireme.query.search.nprobes" "{partition}" ["index"] "Index partitions that a vector search was to look into";
    UNDER_WAY = Gauge "bireme.query.requests.under_way" "{request}" [] "Searches and Gets that have come and are not answered, wherever they wait: for a core, their turn, an index, or rows. It grows when a node has more to do than it can; the long ones, Take and Warm, are not counted";
    QUEUE = Gauge "bireme.query.queue" "{search}" [] "Searches, table reads and looks at placement that wait, in the longer of the two queues";
    QUEUE_LIMIT = Gauge "bireme.query.queue.limit" "{search}" [] "How many may wait; one more is refused";
    TRAFFIC_MEMORY = Gauge "bireme.query.traffic_memory.usage" "By" [] "Memory held for callers: connections, requests as they arrive, their rows, and replies until they are sent";
    TRAFFIC_MEMORY_LIMIT = Gauge "bireme.query.traffic_memory.limit" "By" [] "What it may come to";
    CONNECTIONS = Gauge "bireme.query.connections" "{connection}" [] "Connections of callers";
    CONNECTIONS_LIMIT = Gauge "bireme.query.connections.limit" "{connection}" [] "How many there may be; a newcomer has the place of one that is idle";
    CONNECTIONS_EVICTED = Counter "bireme.query.connections.evicted" "{connection}" [] "Idle connections that were closed for newcomers";
    CONNECTIONS_REFUSED = Counter "bireme.query.connections.refused" "{connection}" [] "Newcomers that were refused: all connections had streams, or half of them were their address's";
    FETCH_DURATION = Histogram "bireme.query.fetch.duration" "s" [] "From asking an I/O node for a request's share of rows to its answer";
    FETCH_ROWS = Histogram "bireme.query.fetch.rows" "{row}" [] "Rows of such a share";
    FALLBACK_ROWS = Counter "bireme.query.fallback.rows" "{row}" [] "Rows answered from the table, because an I/O node could not";
    IO_NODES = Gauge "bireme.query.io_nodes" "{node}" ["state"] "I/O nodes by state: `ready`, `joining`, `draining`, `away`, `ejected`";
    STREAMS = Gauge "bireme.query.io_node.streams" "{stream}" ["io_node"] "Streams to an I/O node that are connected";
    OUTSTANDING = Gauge "bireme.query.io_node.outstanding" "{row}" ["io_node"] "Rows asked of an I/O node and not answered yet";
    WAITING = Gauge "bireme.query.io_node.waiting" "{batch}" ["io_node"] "Batches that are not sent yet: they wait for an I/O node's credit, or for room on the connection";
    CREDIT_LIMIT = Gauge "bireme.query.io_node.credit.limit" "{row}" ["io_node"] "How many rows the I/O node lets be outstanding on the streams that are connected; those that are use it up";
    CREDIT_WAITS = Counter "bireme.query.io_node.credit.waits" "{batch}" ["io_node"] "Batches that had to wait for an I/O node's credit";
    CREDIT_WAIT_TIME = Counter "bireme.query.io_node.credit.wait.time" "s" ["io_node"] "How long they waited, together";
    GENERATION = Gauge "bireme.query.membership.generation" "{list}" [] "Lists of I/O nodes that were taken";
    REFUSED = Counter "bireme.query.membership.refused" "{list}" [] "Lists of I/O nodes that were refused";
    SOURCE_FAILURES = Counter "bireme.query.membership.failures" "{failure}" [] "Times that the list's source could not be read";
    EJECTIONS = Counter "bireme.query.membership.ejections" "{ejection}" [] "Times that an I/O node was let be for failing";
    TABLE_VERSION = Gauge "bireme.query.table.version" "{version}" ["table"] "The version of a table that is served; 0 for one that can't be opened";
    TABLE_ROWS = Gauge "bireme.query.table.rows" "{row}" ["table"] "Its rows";
}

macro_rules! names {
    ($($(#[$doc:meta])* $of:ident { $($variant:ident = $name:literal,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $of { $(#[doc = $name] $variant,)* }

        impl $of {
            const NAMES: &'static [&'static str] = &[$($name,)*];
        })*
    };
}

names! {
    /// An rpc of `bireme.query.v1.QueryService`.
    Rpc {
        Search = "bireme.query.v1.QueryService/Search",
        Get = "bireme.query.v1.QueryService/Get",
        GetStream = "bireme.query.v1.QueryService/GetStream",
        Take = "bireme.query.v1.QueryService/Take",
        ListTables = "bireme.query.v1.QueryService/ListTables",
        DescribeTable = "bireme.query.v1.QueryService/DescribeTable",
        Warm = "bireme.query.v1.QueryService/Warm",
        Placement = "bireme.query.v1.QueryService/Placement",
        Status = "bireme.query.v1.QueryService/Status",
    }
    /// A stage of a request.
    Stage {
        Validate = "validate",
        Lookup = "lookup",
        Vector = "vector",
        Search = "search",
        Rerank = "rerank",
        Rank = "rank",
        Fetch = "fetch",
        Assemble = "assemble",
        Reply = "reply",
    }
    /// What a search goes by.
    SearchBy {
        Vector = "vector",
        Text = "text",
        Filter = "filter",
    }
    /// How an index was searched.
    SearchVia {
        Partitions = "partitions",
        Scanner = "scanner",
    }
    /// The kind of an index, as Lance names it; there is a bound to how many there are.
    IndexKind {
        Unindexed = "none",
        Planned = "planned",
        Inverted = "Inverted",
        IvfFlat = "IVF_FLAT",
        IvfPq = "IVF_PQ",
        IvfSq = "IVF_SQ",
        IvfRq = "IVF_RQ",
        IvfHnswFlat = "IVF_HNSW_FLAT",
        IvfHnswPq = "IVF_HNSW_PQ",
        IvfHnswSq = "IVF_HNSW_SQ",
        Other = "other",
    }
}

impl Rpc {
    /// Service and method.
    pub fn path(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether how many of it are under way says how busy the node is: others go on for as long as their callers read.
    fn is_short(self) -> bool {
        matches!(self, Self::Search | Self::Get | Self::GetStream)
    }
}

impl Stage {
    /// As callers are told.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl IndexKind {
    const OF_VECTORS: [Self; 7] = [
        Self::IvfFlat,
        Self::IvfPq,
        Self::IvfSq,
        Self::IvfRq,
        Self::IvfHnswFlat,
        Self::IvfHnswPq,
        Self::IvfHnswSq,
    ];

    /// Of an index on vectors, by Lance's name.
    pub fn of_vectors(name: &str) -> Self {
        let is_named = |kind: &Self| Self::NAMES[*kind as usize] == name;
        Self::OF_VECTORS.into_iter().find(is_named).unwrap_or(Self::Other)
    }
}

/// gRPC's codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A code's name as gRPC writes it.
pub fn code_name(code: Code) -> &'static str {
    CODES[i32::from(code) as usize]
}

const RPCS: usize = Rpc::NAMES.len();
const STAGES: usize = Stage::NAMES.len();
const BYS: usize = SearchBy::NAMES.len();
const VIAS: usize = SearchVia::NAMES.len();
const KINDS: usize = IndexKind::NAMES.len();

/// What one core counts. Only its own tasks write to it.
pub struct ShardMetrics {
    /// By rpc and code; most of them never come to be.
    calls: [[OnceLock<Histogram>; CODES.len()]; RPCS],
    failures: Vec<AtomicU64>,
    under_way: AtomicU64,
    stages: [Histogram; STAGES],
    /// Most of them never come to be, as of the next two.
    searches: [[[AtomicU64; KINDS]; VIAS]; BYS],
    candidates: [OnceLock<Histogram>; KINDS],
    nprobes: [OnceLock<Histogram>; KINDS],
    fetch_times: Histogram,
    fetch_rows: Histogram,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        Self {
            calls: Default::default(),
            failures: Reason::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            under_way: AtomicU64::new(0),
            stages: std::array::from_fn(|_| Histogram::new(Scale::Seconds)),
            searches: Default::default(),
            candidates: Default::default(),
            nprobes: Default::default(),
            fetch_times: Histogram::new(Scale::Seconds),
            fetch_rows: Histogram::new(Scale::Whole),
        }
    }
}

impl ShardMetrics {
    fn ended(&self, rpc: Rpc, code: Code, took: Duration) {
        let calls = &self.calls[rpc as usize][i32::from(code) as usize];
        calls.get_or_init(|| Histogram::new(Scale::Seconds)).record_time(took);
    }

    /// An rpc has come.
    pub fn started(&self, rpc: Rpc) {
        self.under_way.fetch_add(u64::from(rpc.is_short()), Ordering::Relaxed);
    }

    /// One that came is no longer under way, whatever came of it.
    pub fn finished(&self, rpc: Rpc) {
        self.under_way.fetch_sub(u64::from(rpc.is_short()), Ordering::Relaxed);
    }

    /// An rpc's caller has gone before it was answered.
    pub fn abandoned(&self, rpc: Rpc, took: Duration) {
        self.ended(rpc, Code::Cancelled, took);
    }

    /// An rpc was answered.
    pub fn answered(&self, rpc: Rpc, fault: Option<Reason>, took: Duration) {
        self.ended(rpc, fault.map_or(Code::Ok, Reason::code), took);
        if let Some(at) = fault.and_then(|fault| Reason::ALL.iter().position(|&it| it == fault)) {
            self.failures[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A stage has ended.
    pub fn stage(&self, stage: Stage, took: Duration) {
        self.stages[stage as usize].record_time(took);
    }

    /// An index of a `kind` was searched, in `nprobes` partitions if it has any, and named so many `rows`.
    pub fn searched(
        &self,
        by: SearchBy,
        via: SearchVia,
        kind: IndexKind,
        nprobes: Option<usize>,
        rows: usize,
    ) {
        self.searches[by as usize][via as usize][kind as usize].fetch_add(1, Ordering::Relaxed);
        let record = |of_kinds: &[OnceLock<Histogram>; KINDS], count: usize| {
            let histogram = of_kinds[kind as usize].get_or_init(|| Histogram::new(Scale::Whole));
            histogram.record(count as u64);
        };
        record(&self.candidates, rows);
        nprobes.into_iter().for_each(|nprobes| record(&self.nprobes, nprobes));
    }

    /// An I/O node has answered.
    pub fn fetched(&self, rows: usize, took: Duration) {
        self.fetch_times.record_time(took);
        self.fetch_rows.record(rows as u64);
    }

    fn calls(&self) -> impl Iterator<Item = &Histogram> {
        self.calls.iter().flatten().filter_map(OnceLock::get)
    }

    /// Requests answered since the start.
    pub fn requests(&self) -> u64 {
        self.calls().map(|calls| calls.buckets().count()).sum()
    }

    /// Of those, with an error.
    pub fn errors(&self) -> u64 {
        self.failures.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// A node, to be asked for its metrics.
pub struct NodeMetrics(pub Arc<NodeState>);

impl Source for NodeMetrics {
    async fn collect(&self) -> Samples {
        let Self(shared) = self;
        let cores = shared.cores();
        let mut samples = Samples::default();
        requests(&mut samples, &cores);
        fetches(&mut samples, shared, &cores);
        io_nodes(&mut samples, shared, &cores);
        tables(&mut samples, shared);
        store_samples(&mut samples, &shared.catalog.store_use());
        cache_samples(&mut samples, &shared.catalog.cache_use().await);
        let server = shared.tls.as_ref().and_then(|tls| tls.expires());
        let client = shared.io_nodes.tls.as_ref().and_then(|tls| tls.expires());
        tls_samples(&mut samples, server, client);
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

/// How long the requests of each rpc took, as Status tells it.
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

/// A histogram of all cores.
fn merged<'a>(
    cores: &'a [Arc<ShardState>],
    of: impl Fn(&'a ShardMetrics) -> Option<&'a Histogram>,
) -> Buckets {
    let mut sum = Buckets::default();
    cores.iter().filter_map(|core| of(&core.metrics)).for_each(|it| sum.add(&it.buckets()));
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
    samples.add(&TRAFFIC_MEMORY, &[], cores.iter().map(|core| core.memory.used()).sum::<u64>());
    samples.add(
        &TRAFFIC_MEMORY_LIMIT,
        &[],
        cores.iter().map(|core| core.memory.max()).sum::<u64>(),
    );
    let connections = shared.places.counts();
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
        let name = &node.seat.name;
        let everywhere = routes.iter().flat_map(|routes| routes.nodes());
        let of_node = everywhere.filter(|it| it.seat.name == *name);
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
    samples.add(&EJECTIONS, &[], shared.io_nodes.ejected());
}

fn tables(samples: &mut Samples, shared: &NodeState) {
    for table in shared.catalog.list() {
        let current = table.current.as_ref();
        let version = current.map_or(0, |open| open.version());
        samples.add(&TABLE_VERSION, &[&table.name], version);
        samples.add(&TABLE_ROWS, &[&table.name], current.map_or(0, |it| it.table.row_count()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_that_grpc_gives_them() {
        assert_eq!(code_name(Code::Ok), "OK");
        assert_eq!(code_name(Code::ResourceExhausted), "RESOURCE_EXHAUSTED");
        assert_eq!(code_name(Code::Unauthenticated), "UNAUTHENTICATED");
    }

    #[test]
    fn an_index_is_of_a_kind_that_is_known_or_another() {
        assert_eq!(IndexKind::of_vectors("IVF_RQ"), IndexKind::IvfRq);
        assert_eq!(IndexKind::of_vectors("IVF_HNSW_SQ"), IndexKind::IvfHnswSq);
        for unknown in ["Vector", "IVF_HNSW_RQ", "planned", "none", ""] {
            assert_eq!(IndexKind::of_vectors(unknown), IndexKind::Other, "{unknown}");
        }
    }

    #[test]
    fn each_answer_counts_once() {
        let metrics = ShardMetrics::default();
        metrics.answered(Rpc::Get, None, Duration::from_millis(1));
        metrics.answered(Rpc::Get, Some(Reason::KeyNotFound), Duration::from_millis(2));
        metrics.answered(Rpc::Search, Some(Reason::Overloaded), Duration::from_millis(3));
        assert_eq!((metrics.requests(), metrics.errors()), (3, 2));
    }
}
