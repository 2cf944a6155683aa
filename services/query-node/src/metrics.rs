//! The query node's metrics: what they are, what a core counts for them, and how they are collected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lake::{cache_samples, store_samples};
use telemetry::{Buckets, Histogram, Samples, Scale, Source, process_samples};
use tonic::Code;
use wire::Reason;
use wire::query::{Calls, MemberState};

use crate::state::{Shared, State};

telemetry::metrics! {
    pub static METRICS;
    CALL_DURATION = Histogram "rpc.server.call.duration" "s" ["rpc.method", "rpc.response.status_code"] "How long calls took; of streams, each request (GetStream) or the whole (Take, Warm)";
    FAILED = Counter "bireme.query.failures" "{request}" ["error.type"] "Requests answered with an error, by its reason";
    STAGE_DURATION = Histogram "bireme.query.stage.duration" "s" ["stage"] "Where requests' time goes, by stage";
    SEARCHES = Counter "bireme.query.searches" "{search}" ["by", "via"] "Searches by `vector`, `text` or `filter`, of the index's partitions directly or by Lance's scanner";
    CANDIDATES = Histogram "bireme.query.search.candidates" "{row}" [] "Rows that a search's index named";
    NPROBES = Histogram "bireme.query.search.nprobes" "{partition}" [] "Index partitions that a vector search was to look into";
    QUEUE = Gauge "bireme.query.queue" "{search}" [] "Searches and table reads that wait for their turn";
    QUEUE_LIMIT = Gauge "bireme.query.queue.limit" "{search}" [] "How many may wait; one more is refused";
    FETCH_DURATION = Histogram "bireme.query.fetch.duration" "s" [] "From asking an I/O node for a request's share of rows to its answer";
    FETCH_ROWS = Histogram "bireme.query.fetch.rows" "{row}" [] "Rows of such a share";
    FALLBACK_ROWS = Counter "bireme.query.fallback.rows" "{row}" [] "Rows answered from the table, because an I/O node could not";
    IO_NODES = Gauge "bireme.query.io_nodes" "{node}" ["state"] "I/O nodes by state: `ready`, `joining`, `draining`, `away`, `ejected`";
    STREAMS = Gauge "bireme.query.io_node.streams" "{stream}" ["io_node"] "Streams to an I/O node that are connected";
    OUTSTANDING = Gauge "bireme.query.io_node.outstanding" "{row}" ["io_node"] "Rows asked of an I/O node and not answered yet";
    WAITING = Gauge "bireme.query.io_node.waiting" "{batch}" ["io_node"] "Batches that wait for an I/O node's credit";
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
}

impl Rpc {
    /// Service and method.
    pub fn path(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl Stage {
    /// As callers are told.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
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

/// What one core counts. Only its own tasks write to it.
pub struct CoreMetrics {
    /// By rpc and code; most of them never come to be.
    calls: [[OnceLock<Histogram>; CODES.len()]; RPCS],
    failures: Vec<AtomicU64>,
    stages: [Histogram; STAGES],
    searches: [[AtomicU64; VIAS]; BYS],
    candidates: Histogram,
    nprobes: Histogram,
    fetch_times: Histogram,
    fetch_rows: Histogram,
}

impl Default for CoreMetrics {
    fn default() -> Self {
        Self {
            calls: Default::default(),
            failures: Reason::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            stages: std::array::from_fn(|_| Histogram::new(Scale::Seconds)),
            searches: Default::default(),
            candidates: Histogram::new(Scale::Whole),
            nprobes: Histogram::new(Scale::Whole),
            fetch_times: Histogram::new(Scale::Seconds),
            fetch_rows: Histogram::new(Scale::Whole),
        }
    }
}

impl CoreMetrics {
    fn ended(&self, rpc: Rpc, code: Code, took: Duration) {
        let calls = &self.calls[rpc as usize][i32::from(code) as usize];
        calls.get_or_init(|| Histogram::new(Scale::Seconds)).record_time(took);
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

    /// An index was searched.
    pub fn searched(&self, by: SearchBy, via: SearchVia, nprobes: Option<usize>, rows: usize) {
        self.searches[by as usize][via as usize].fetch_add(1, Ordering::Relaxed);
        self.candidates.record(rows as u64);
        nprobes.into_iter().for_each(|nprobes| self.nprobes.record(nprobes as u64));
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
pub struct NodeMetrics(pub Arc<Shared>);

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
pub fn calls(cores: &[Arc<State>]) -> Vec<Calls> {
    let of_rpc = |(at, path): (usize, &&str)| {
        let mut seconds = Buckets::default();
        for code in 0..CODES.len() {
            seconds.add(&together(cores, |core| core.calls[at][code].get()));
        }
        let rpc = path.rsplit('/').next().unwrap_or(path).to_owned();
        (seconds.count() > 0).then(|| Calls { rpc, seconds: Some((&seconds).into()) })
    };
    Rpc::NAMES.iter().enumerate().filter_map(of_rpc).collect()
}

/// A histogram of all cores.
fn together<'a>(
    cores: &'a [Arc<State>],
    of: impl Fn(&'a CoreMetrics) -> Option<&'a Histogram>,
) -> Buckets {
    let mut sum = Buckets::default();
    cores.iter().filter_map(|core| of(&core.metrics)).for_each(|it| sum.add(&it.buckets()));
    sum
}

fn count<'a>(cores: &'a [Arc<State>], of: impl Fn(&'a CoreMetrics) -> &'a AtomicU64) -> u64 {
    cores.iter().map(|core| of(&core.metrics).load(Ordering::Relaxed)).sum()
}

fn requests(samples: &mut Samples, cores: &[Arc<State>]) {
    for (rpc, path) in Rpc::NAMES.iter().enumerate() {
        for (code, name) in CODES.iter().enumerate() {
            let calls = together(cores, |core| core.calls[rpc][code].get());
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
        let times = together(cores, |core| Some(&core.stages[stage]));
        samples.add(&STAGE_DURATION, &[name], times);
    }
    for (by, by_name) in SearchBy::NAMES.iter().enumerate() {
        for (via, via_name) in SearchVia::NAMES.iter().enumerate() {
            let searches = count(cores, |core| &core.searches[by][via]);
            samples.add(&SEARCHES, &[by_name, via_name], searches);
        }
    }
    samples.add(&CANDIDATES, &[], together(cores, |core| Some(&core.candidates)));
    samples.add(&NPROBES, &[], together(cores, |core| Some(&core.nprobes)));
}

fn fetches(samples: &mut Samples, shared: &Shared, cores: &[Arc<State>]) {
    samples.add(&QUEUE, &[], shared.turns.waiting() as u64);
    samples.add(&QUEUE_LIMIT, &[], shared.config.search_queue_max as u64);
    samples.add(&FETCH_DURATION, &[], together(cores, |core| Some(&core.fetch_times)));
    samples.add(&FETCH_ROWS, &[], together(cores, |core| Some(&core.fetch_rows)));
    samples.add(&FALLBACK_ROWS, &[], shared.fallback_rows());
}

fn io_nodes(samples: &mut Samples, shared: &Shared, cores: &[Arc<State>]) {
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
        samples.add(&STREAMS, &[name], sum(|it| it.streams_up));
        samples.add(&OUTSTANDING, &[name], sum(|it| it.outstanding_rows));
        samples.add(&WAITING, &[name], sum(|it| it.waiting_batches));
    }
    let report = shared.io_nodes.report();
    samples.add(&GENERATION, &[], shared.io_nodes.views().borrow().generation);
    samples.add(&REFUSED, &[], report.refused);
    samples.add(&SOURCE_FAILURES, &[], report.failures);
    samples.add(&EJECTIONS, &[], shared.io_nodes.ejected());
}

fn tables(samples: &mut Samples, shared: &Shared) {
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
    fn each_answer_counts_once() {
        let metrics = CoreMetrics::default();
        metrics.answered(Rpc::Get, None, Duration::from_millis(1));
        metrics.answered(Rpc::Get, Some(Reason::KeyNotFound), Duration::from_millis(2));
        metrics.answered(Rpc::Search, Some(Reason::Overloaded), Duration::from_millis(3));
        assert_eq!((metrics.requests(), metrics.errors()), (3, 2));
    }
}
