//! Stream: fetches rows from the I/O nodes that own them, concurrently.
//!
//! If an I/O node cannot answer, or should not be asked now, the table answers within the same deadline: correct is
//! more important than fast. An overloaded I/O node is the exception: reading the table would not help it, so the
//! caller gets the error.

use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use client::fetch::{Metric, Reply, Rerank, StageTimes, TableVersion, UNANSWERED, add_counts};
use distance::Query;
use futures::FutureExt;
use futures::future::try_join_all;
use telemetry::child_of;
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::{Fault, ParentSpan, Reason};

use super::assemble::{SliceRows, assemble, present};
use super::plan::{NodeSlice, all_to_one, plan};
use super::score::Vectors;
use super::table::table_rows;
use crate::counted::counted;
use crate::error::Result;
use crate::io_tier::{Node, Routes};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::{OpenTable, Projection};
use crate::trace::{NodeCall, StageWork, TableRead};

/// The cost of a stage in the I/O tier.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Number of I/O nodes that answered.
    pub nodes: usize,
    /// The sums of their counts. Times are not added.
    pub times: StageTimes,
    /// Number of rows that this node read from the table, because an I/O node could not answer.
    pub fallback_rows: usize,
    /// The slowest I/O node, and the times of its stages.
    pub slowest: Option<(Arc<str>, StageTimes)>,
    slowest_took: Duration,
    /// The calls and reads, for the request's trace. Empty if spans are not exported.
    pub work: StageWork,
}

impl Cost {
    /// Describes the cost for `explain`.
    pub fn detail(&self, rows: usize) -> String {
        let StageTimes { drive_reads, drive_bytes, ram_hits, table_rows, .. } = self.times;
        let mut detail = format!(
            "{} of {}, {}, {}, {} in RAM",
            counted(rows, "row"),
            counted(self.nodes, "I/O node"),
            counted(drive_reads, "drive read"),
            counted(drive_bytes, "byte"),
            counted(ram_hits, "sector"),
        );
        for (count, whose) in
            [(table_rows as usize, "the I/O nodes"), (self.fallback_rows, "this node")]
        {
            if count > 0 {
                detail += &format!(", {} from the table by {whose}", counted(count, "row"));
            }
        }
        detail
    }

    /// Records for the trace that planning began at `began` and has ended now, with `slices` slices.
    fn planned(&mut self, state: &ShardState, began: std::time::Instant, slices: usize) {
        if state.shared.tracer.is_on() {
            self.work.planned = Some((began, std::time::Instant::now()));
            self.work.calls.reserve_exact(slices);
        }
    }

    /// Adds the cost of one slice: an I/O node's times and counts, or rows from the table.
    fn account(&mut self, routes: &Routes, slice: &NodeSlice, source: SliceSource) {
        self.work.calls.extend(source.call);
        self.work.reads.extend(source.table);
        match (slice.owner, source.node) {
            (Some(owner), Some((took, times))) => {
                self.add(&routes.nodes()[owner].address, took, &times);
            }
            _ => self.fallback_rows += slice.addrs.len(),
        }
    }

    fn add(&mut self, node: &Arc<str>, took: Duration, times: &StageTimes) {
        self.nodes += 1;
        add_counts(&mut self.times, times);
        if took >= self.slowest_took {
            self.slowest_took = took;
            self.slowest = Some((Arc::clone(node), *times));
        }
    }
}

/// Fetched rows, with wire types.
#[derive(Debug)]
pub struct Fetched {
    /// The rows that were found, in the request's order.
    pub rows: RecordBatch,
    /// Positions in the request of missing rows, ascending.
    pub missing: Vec<u32>,
    /// The cost of fetching them.
    pub cost: Cost,
}

impl Fetched {
    /// Returns `rows` rows without columns, none of them missing.
    pub fn of_no_columns(rows: usize) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::empty());
        let rows = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        Ok(Self { rows, missing: Vec::new(), cost: Cost::default() })
    }
}

/// Divides a request's rows into slices. Rows of nodes that should not be asked now form one slice, so that they cost
/// one read of the table.
fn slices(
    state: &ShardState,
    routes: &Routes,
    open: &OpenTable,
    addrs: &[RowAddr],
    context: RequestContext,
) -> Vec<NodeSlice> {
    let may_ask = |owner: usize| {
        let node = &routes.nodes()[owner];
        let reason_to_skip = node.reason_to_skip();
        if let Some(why) = reason_to_skip {
            let trace = || context.trace_id();
            debug!(node = %node.client.endpoint(), trace_id = trace(), "the table answers: {why}");
        }
        reason_to_skip.is_none()
    };
    let slices = match routes.nodes().len() {
        0 => all_to_one(addrs, None),
        1 => all_to_one(addrs, may_ask(0).then_some(0)),
        nodes => plan(addrs, nodes, |addr| routes.owner(open, addr), may_ask),
    };
    for slice in slices.iter().filter(|slice| slice.owner.is_none()) {
        state.shared.count_fallback(slice.addrs.len());
    }
    slices
}

/// Fetches the rows at `addrs`.
pub async fn fetch_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    projection: &Projection,
    context: RequestContext,
) -> Result<Fetched> {
    let Projection { columns, wire_schema, .. } = projection;
    let mut cost = Cost::default();
    if addrs.is_empty() {
        let rows = RecordBatch::new_empty(Arc::clone(wire_schema));
        return Ok(Fetched { rows, missing: vec![], cost });
    }
    let routes = &state.tier.routes();
    let began = std::time::Instant::now();
    let slices = match columns.as_slice() {
        // Without columns it only matters which rows exist, and the table knows that.
        [] => all_to_one(addrs, None),
        _ => slices(state, routes, open, addrs, context),
    };
    cost.planned(state, began, slices.len());
    let fetches = slices.into_iter().map(|slice| {
        let (rerank, source) = (None, SliceSource::default());
        SliceFetch { state, routes, open, columns, slice, rerank, context, source }.rows().boxed()
    });
    let mut fetched = Vec::new();
    for answer in try_join_all(fetches).await? {
        cost.account(routes, &answer.slice, answer.source);
        let SliceAnswer { slice, rows, missing, .. } = answer;
        fetched.push(SliceRows { places: slice.places, rows, missing });
    }
    let (rows, missing) = assemble(&fetched, addrs.len(), wire_schema)?;
    Ok(Fetched { rows, missing, cost })
}

/// The parameters of scoring.
#[derive(Clone, Copy, Debug)]
pub struct Scoring<'a> {
    /// The vector column.
    pub column: &'a str,
    /// The query vector.
    pub query: &'a [f32],
    /// The distance metric.
    pub metric: Metric,
    /// Number of nearest rows wanted.
    pub k: usize,
}

/// Returns exact distances of rows at `addrs`: at least the `k` nearest rows of each I/O node.
pub async fn score_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    scoring: Scoring<'_>,
    context: RequestContext,
) -> Result<(Vec<(RowAddr, f32)>, Cost)> {
    let Scoring { column, query, metric, k } = scoring;
    let columns = [column.to_owned()];
    let in_place = open.can_score_in_place(column);
    let rerank = in_place.then(|| Rerank::new(query, metric, k as u32));
    let query = &Query::new(query.to_vec(), metric);
    let routes = &state.tier.routes();
    let (mut cost, mut all) = (Cost::default(), Vec::new());
    let began = std::time::Instant::now();
    let slices = slices(state, routes, open, addrs, context);
    cost.planned(state, began, slices.len());
    let scores = slices.into_iter().map(|slice| {
        let (rerank, columns) = (rerank.as_ref(), columns.as_slice());
        let source = SliceSource::default();
        let fetch = SliceFetch { state, routes, open, columns, slice, rerank, context, source };
        fetch.distances(query).boxed()
    });
    for (slice, source, scored) in try_join_all(scores).await? {
        cost.account(routes, &slice, source);
        all.extend(scored);
    }
    Ok((all, cost))
}

/// Scores fetched rows on this node.
fn score_here(
    addrs: &[RowAddr],
    missing: &[u32],
    rows: &RecordBatch,
    query: &Query,
) -> Result<Vec<(RowAddr, f32)>> {
    let vectors = Vectors::of(rows.column(0))?;
    let there = present(addrs.len(), missing).map(|at| addrs[at]);
    let pairs = there.zip(vectors.distances(query));
    Ok(pairs.filter_map(|(addr, distance)| Some((addr, distance?))).collect())
}

/// The source of a slice's rows: an I/O node or the table.
#[derive(Default)]
struct SliceSource {
    /// The I/O node's duration and stage times; `None` if the table answered.
    node: Option<(Duration, StageTimes)>,
    /// The call of the I/O node, answered or failed, for the request's trace.
    call: Option<NodeCall>,
    /// The read of the table, for the request's trace.
    table: Option<TableRead>,
}

/// One slice with its rows and their source.
struct SliceAnswer {
    slice: NodeSlice,
    source: SliceSource,
    rows: RecordBatch,
    missing: Vec<u32>,
}

/// The fetch of one slice, from its I/O node or from the table.
struct SliceFetch<'a> {
    state: &'a ShardState,
    /// The routes of the whole stage, even if the list of I/O nodes changes in the meantime.
    routes: &'a Routes,
    open: &'a Arc<OpenTable>,
    columns: &'a [String],
    slice: NodeSlice,
    rerank: Option<&'a Rerank>,
    context: RequestContext,
    source: SliceSource,
}

impl SliceFetch<'_> {
    /// Fetches the slice's rows.
    async fn rows(mut self) -> Result<SliceAnswer> {
        let (rows, missing) = match self.ask_node().await? {
            Some(reply) => {
                let missing = reply.missing.clone();
                (reply.into_rows()?, missing)
            }
            None => self.read_table().await?,
        };
        Ok(SliceAnswer { slice: self.slice, source: self.source, rows, missing })
    }

    /// Returns distances: of the `k` nearest rows if the I/O node scores them, else of all rows.
    async fn distances(
        mut self,
        query: &Query,
    ) -> Result<(NodeSlice, SliceSource, Vec<(RowAddr, f32)>)> {
        let (rows, missing) = match self.ask_node().await? {
            Some(reply) if self.rerank.is_some() => {
                return Ok((self.slice, self.source, reply.into_neighbors()?));
            }
            Some(reply) => {
                let missing = reply.missing.clone();
                (reply.into_rows()?, missing)
            }
            None => self.read_table().await?,
        };
        let scored = score_here(&self.slice.addrs, &missing, &rows, query)?;
        Ok((self.slice, self.source, scored))
    }

    /// Returns the I/O node's reply, or `None` if the table should answer instead.
    async fn ask_node(&mut self) -> Result<Option<Reply>> {
        self.context.check("fetch")?;
        let Some(owner) = self.slice.owner else { return Ok(None) };
        let node = &self.routes.nodes()[owner];
        let endpoint = node.client.endpoint();
        let began = Instant::now();
        let is_traced = self.state.shared.tracer.is_on();
        // The call gets its own span only if spans are exported.
        let span = self.context.span.map(|span| if is_traced { child_of(span) } else { span });
        let answer = self.ask(node, span).await;
        let took = began.elapsed();
        self.state.metrics.fetched(self.slice.addrs.len(), took);
        if let Some(span) = span.filter(|_| is_traced) {
            let answer = match &answer {
                Ok(reply) => Ok(reply.trips.clone()),
                Err(fault) => Err(fault.message.clone()),
            };
            let (address, name) = (Arc::clone(&node.address), Arc::clone(&node.name));
            let (id, rows, began) = (span.span, self.slice.addrs.len(), began.into_std());
            let call = NodeCall { id, address, name, rows, began, ended: began + took, answer };
            self.source.call = Some(call);
        }
        match answer {
            Ok(reply) => {
                node.health.ejection.succeeded();
                self.source.node = Some((took, reply.times()));
                Ok(Some(reply))
            }
            Err(fault) => {
                if blames_node(&fault, took) {
                    if node.health.ejection.failed(Instant::now(), &fault.message) {
                        self.state.shared.io_nodes.count_ejection();
                    }
                } else if has_answered(&fault) {
                    node.health.ejection.succeeded();
                }
                if !table_may_answer(fault.reason) {
                    return Err(fault.into());
                }
                self.context.check("fetch")?;
                let trace = self.context.trace_id();
                match fault.reason {
                    // The client has already logged the loss of the node.
                    Reason::NodeUnavailable => {
                        debug!(node = %endpoint, trace_id = trace, "the table answers: {fault}");
                    }
                    _ => warn!(node = %endpoint, trace_id = trace, "the table answers: {fault}"),
                }
                self.state.shared.count_fallback(self.slice.addrs.len());
                Ok(None)
            }
        }
    }

    /// Sends the slice to the I/O node.
    async fn ask(
        &self,
        node: &Node,
        span: Option<ParentSpan>,
    ) -> std::result::Result<Reply, Fault> {
        let client = &node.client;
        let (table, context) = (&self.open.table, self.context.for_io_nodes(span));
        let (uri, version, identity) = (table.uri(), table.version(), self.open.identity.as_str());
        let table = TableVersion { uri, version, identity };
        let projection = client.open(table, self.columns, context.deadline).await?;
        let rerank = self.rerank.cloned();
        client.fetch(&projection, self.slice.addrs.clone(), rerank, context).await
    }

    /// Reads the slice from the table.
    async fn read_table(&mut self) -> Result<(RecordBatch, Vec<u32>)> {
        let began = std::time::Instant::now();
        let (open, addrs) = (Arc::clone(self.open), self.slice.addrs.clone());
        let columns = self.columns.to_vec();
        let read = async move { table_rows(&open, &addrs, &columns).await }.boxed();
        let admission = &self.state.shared.admission;
        let rows = admission.run_in_background("fetch", self.context, read).await?;
        if self.state.shared.tracer.is_on() {
            let (rows, ended) = (self.slice.addrs.len(), std::time::Instant::now());
            self.source.table = Some(TableRead { rows, began, ended });
        }
        Ok(rows)
    }
}

/// A missed deadline counts as the node's failure only if the node had at least this long.
const PATIENCE: Duration = Duration::from_millis(250);

/// Returns whether a failure, which took `took`, counts towards the node's ejection.
fn blames_node(fault: &Fault, took: Duration) -> bool {
    match fault.reason {
        // A node that reports a passed deadline itself was waiting for the table's store.
        Reason::DeadlineExceeded => took >= PATIENCE && fault.metadata.contains_key(UNANSWERED),
        Reason::Internal | Reason::BadProtocol => true,
        // The client refuses requests to an unconnected node at once, so an ejection would gain nothing.
        Reason::NodeUnavailable
        // The node is healthy, but cannot do what is asked.
        | Reason::Overloaded
        | Reason::TooLarge
        | Reason::Cancelled
        // The table, the store or the request is at fault.
        | Reason::StoreUnreachable
        | Reason::StoreRefused
        | Reason::TableDamaged
        | Reason::UnsupportedType
        | Reason::TableNotFound
        | Reason::TableNotServed
        | Reason::VersionNotFound
        | Reason::ColumnNotFound
        | Reason::RowNotFound
        | Reason::KeyNotFound
        | Reason::BadVector
        | Reason::BadFilter
        | Reason::BadArgument
        | Reason::NoIndex => false,
    }
}

/// Returns whether the node itself sent the fault.
fn has_answered(fault: &Fault) -> bool {
    fault.reason != Reason::NodeUnavailable && !fault.metadata.contains_key(UNANSWERED)
}

/// Returns whether the table is read instead when an I/O node fails for this reason.
fn table_may_answer(reason: Reason) -> bool {
    match reason {
        // More work would not help, or the answer would be the same.
        Reason::Overloaded | Reason::TooLarge | Reason::Cancelled => false,
        Reason::NodeUnavailable
        | Reason::DeadlineExceeded
        | Reason::StoreUnreachable
        | Reason::StoreRefused
        | Reason::TableDamaged
        | Reason::Internal
        | Reason::BadProtocol
        | Reason::UnsupportedType
        | Reason::TableNotFound
        | Reason::TableNotServed
        | Reason::VersionNotFound
        | Reason::ColumnNotFound
        | Reason::RowNotFound
        | Reason::KeyNotFound
        | Reason::BadVector
        | Reason::BadFilter
        | Reason::BadArgument
        | Reason::NoIndex => true,
    }
}
