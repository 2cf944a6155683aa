//! One core's counters and histograms, and the values of their labels: rpcs, stages, kinds of searches.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use telemetry::{Histogram, Scale};
use tonic::Code;
use wire::{CODES, Reason};

use crate::error::QueryError;

macro_rules! names {
    ($($(#[$doc:meta])* $group:ident { $($variant:ident = $name:literal,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $group { $(#[doc = $name] $variant,)* }

        impl $group {
            pub const NAMES: &'static [&'static str] = &[$($name,)*];
        })*
    };
}

names! {
    /// An rpc of `bireme.query.v1.QueryService`, or a kind of plain HTTP calls.
    Rpc {
        Search = "bireme.query.v1.QueryService/Search",
        Get = "bireme.query.v1.QueryService/Get",
        GetStream = "bireme.query.v1.QueryService/GetStream",
        Lookup = "bireme.query.v1.QueryService/Lookup",
        Take = "bireme.query.v1.QueryService/Take",
        Count = "bireme.query.v1.QueryService/Count",
        ListTables = "bireme.query.v1.QueryService/ListTables",
        DescribeTable = "bireme.query.v1.QueryService/DescribeTable",
        ListVersions = "bireme.query.v1.QueryService/ListVersions",
        ListTags = "bireme.query.v1.QueryService/ListTags",
        Tune = "bireme.query.v1.QueryService/Tune",
        Warm = "bireme.query.v1.QueryService/Warm",
        Placement = "bireme.query.v1.QueryService/Placement",
        Status = "bireme.query.v1.QueryService/Status",
        HttpQuery = "http/query",
        HttpCountRows = "http/count_rows",
        HttpDescribe = "http/describe",
        HttpWarm = "http/warm",
    }
    /// A stage of a request.
    Stage {
        Validate = "validate",
        Lookup = "lookup",
        Vector = "vector",
        Search = "search",
        Filter = "filter",
        Rerank = "rerank",
        Rank = "rank",
        Fetch = "fetch",
        Assemble = "assemble",
        Reply = "reply",
    }
    /// The criterion of a search.
    SearchBy {
        Vector = "vector",
        Text = "text",
        Filter = "filter",
    }
    /// The way in which a search was run: directly on indexes, by Lance's scanner, by scoring the few rows that pass a
    /// filter, or by comparing a vector with every row, without an index.
    SearchVia {
        Index = "index",
        Scanner = "scanner",
        Scored = "scored",
        Exhaustive = "exhaustive",
    }
    /// The way in which a key was looked up: in the key index alone, or in the table, by its BTREE or a scan.
    KeyVia {
        KeyIndex = "key_index",
        Table = "table",
    }
    /// The kind of an index: Lance's name, `none` if rows are compared one by one, `planned` for a search by a filter
    /// alone, whose indexes Lance chooses, or `other`. The set is closed, which bounds the number of label values.
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
    /// Returns the service and method, or the name of the kind of plain HTTP calls.
    pub fn path(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns whether this is a kind of plain HTTP calls, rather than an rpc of gRPC.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::HttpQuery | Self::HttpCountRows | Self::HttpDescribe | Self::HttpWarm)
    }

    /// Returns whether the rpc counts as work in progress: a search, a Get, a group of batches of a Lookup, a count, or
    /// a query over plain HTTP until its answer is sent in pieces ([`Call::waits_for_reader`](crate::call::Call)).
    /// Takes, Tunes and Warms do not count: they last for as long as their callers read, which says nothing about the
    /// node's load.
    fn is_short(self) -> bool {
        matches!(
            self,
            Self::Search
                | Self::Get
                | Self::GetStream
                | Self::Lookup
                | Self::Count
                | Self::HttpQuery
                | Self::HttpCountRows
        )
    }
}

impl Stage {
    /// Returns the stage's name, as `explain` and traces show it.
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

    /// Returns the kind of a vector index from Lance's name.
    pub fn of_vectors(name: &str) -> Self {
        let is_named = |kind: &Self| Self::NAMES[*kind as usize] == name;
        Self::OF_VECTORS.into_iter().find(is_named).unwrap_or(Self::Other)
    }
}

const RPCS: usize = Rpc::NAMES.len();
const STAGES: usize = Stage::NAMES.len();
const BYS: usize = SearchBy::NAMES.len();
const VIAS: usize = SearchVia::NAMES.len();
const KINDS: usize = IndexKind::NAMES.len();

/// One core's counters and histograms. Only the core's own tasks write to them.
pub struct ShardMetrics {
    /// Durations by rpc and code. Created when first used: most combinations never occur.
    pub calls: [[OnceLock<Histogram>; CODES.len()]; RPCS],
    pub failures: Vec<AtomicU64>,
    /// Requests that the access policy refused, by cause, in the order of [`QueryError::refusals`].
    pub refusals: Vec<AtomicU64>,
    /// Short rpcs in progress. Each request of a GetStream counts, and each group of batches of a Lookup.
    pub under_way: AtomicU64,
    pub stages: [Histogram; STAGES],
    pub searches: [[[AtomicU64; KINDS]; VIAS]; BYS],
    /// The numbers of rows that searches returned, by kind of index. Created when first used, as is `nprobes`.
    pub candidates: [OnceLock<Histogram>; KINDS],
    pub nprobes: [OnceLock<Histogram>; KINDS],
    pub fresh_rows: AtomicU64,
    pub filtered_rows: AtomicU64,
    /// Keys that were looked up, by way ([`KeyVia`]).
    pub keys: [AtomicU64; KeyVia::NAMES.len()],
    pub gathered: AtomicU64,
    pub fetch_times: Histogram,
    pub fetch_rows: Histogram,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        Self {
            calls: Default::default(),
            failures: Reason::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            refusals: QueryError::refusals().map(|_| AtomicU64::new(0)).collect(),
            under_way: AtomicU64::new(0),
            stages: std::array::from_fn(|_| Histogram::new(Scale::Seconds)),
            searches: Default::default(),
            candidates: Default::default(),
            nprobes: Default::default(),
            fresh_rows: AtomicU64::new(0),
            filtered_rows: AtomicU64::new(0),
            keys: Default::default(),
            gathered: AtomicU64::new(0),
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

    /// Counts an rpc that has begun as work in progress, if it is short.
    pub fn started(&self, rpc: Rpc) {
        self.under_way.fetch_add(u64::from(rpc.is_short()), Ordering::Relaxed);
    }

    /// Removes an rpc that has ended, with or without an answer, from the work in progress.
    pub fn finished(&self, rpc: Rpc) {
        self.under_way.fetch_sub(u64::from(rpc.is_short()), Ordering::Relaxed);
    }

    /// Returns whether more than one short rpc is in progress on the core.
    pub fn are_several_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 1
    }

    /// Records an rpc that its caller cancelled.
    pub fn abandoned(&self, rpc: Rpc, took: Duration) {
        self.ended(rpc, Code::Cancelled, took);
    }

    /// Records an rpc that was answered.
    pub fn answered(&self, rpc: Rpc, fault: Option<Reason>, took: Duration) {
        self.ended(rpc, fault.map_or(Code::Ok, Reason::code), took);
        fault.into_iter().for_each(|reason| self.failed(reason));
    }

    /// Counts a request, or one batch of a Lookup stream, that was answered with an error.
    pub fn failed(&self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|&it| it == reason) {
            self.failures[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that the access policy refused. `cause` is one of [`QueryError::refusals`].
    pub fn refused(&self, cause: &str) {
        if let Some(at) = QueryError::refusals().position(|it| it == cause) {
            self.refusals[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the duration of a stage.
    pub fn stage(&self, stage: Stage, took: Duration) {
        self.stages[stage as usize].record_time(took);
    }

    /// Records a search of an index of kind `kind` that returned `rows` rows. `nprobes` is the number of partitions to
    /// search, if the index has partitions.
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
        // For `Scored`, all rows that pass the filter are scored, and no index has returned candidates.
        if via != SearchVia::Scored {
            record(&self.candidates, rows);
        }
        nprobes.into_iter().for_each(|nprobes| record(&self.nprobes, nprobes));
    }

    /// Records that a search compared `rows` rows that the column's index does not cover.
    pub fn compared_fresh(&self, rows: usize) {
        self.fresh_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Records that a filter was evaluated for `rows` candidates of a search.
    pub fn filtered(&self, rows: usize) {
        self.filtered_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Records the number of requests that shared a look-up and a fetch.
    pub fn gathered(&self, requests: usize) {
        self.gathered.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// Records the number of keys that were looked up in the key index alone, and in the table.
    pub fn looked_up(&self, by_index: usize, in_table: usize) {
        self.keys[KeyVia::KeyIndex as usize].fetch_add(by_index as u64, Ordering::Relaxed);
        self.keys[KeyVia::Table as usize].fetch_add(in_table as u64, Ordering::Relaxed);
    }

    /// Records a fetch from an I/O node that took `took` and returned `rows` rows. `rows` is `None` if the fetch
    /// failed: its rows count as fallback rows if this node then reads them from the table.
    pub fn fetched(&self, rows: Option<usize>, took: Duration) {
        self.fetch_times.record_time(took);
        rows.into_iter().for_each(|rows| self.fetch_rows.record(rows as u64));
    }

    fn calls(&self) -> impl Iterator<Item = &Histogram> {
        self.calls.iter().flatten().filter_map(OnceLock::get)
    }

    /// Returns the number of requests that have ended since the start.
    pub fn requests(&self) -> u64 {
        self.calls().map(|calls| calls.buckets().count()).sum()
    }

    /// Returns the number of requests, and of batches of Lookup streams, that were answered with an error since the
    /// start.
    pub fn errors(&self) -> u64 {
        self.failures.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_of_indexes_are_other() {
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
