//! Fetches the slices of a stage, each from its I/O node, or from the table.
//!
//! If the I/O node cannot answer, or should not be asked now (`slices.rs` decides that), the table answers within the
//! same deadline, which is slow but correct. The exceptions are in `io_nodes/faults.rs`. For example, if the I/O node is
//! overloaded, the caller gets the error, because reading the table would only add load.

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use client::fetch::{Outcome, Predicate, Reply, Rerank, TableVersion};
use distance::Query;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use telemetry::child_of;
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::{Fault, ParentSpan, Reason, memory_of};

use super::cost::{Cost, SliceSource};
use super::plan::{NodeSlice, all_to_one};
use super::predicate_filter::PredicateFilter;
use super::score::score_here;
use super::slices::slices;
use super::table_rows::table_rows;
use crate::error::Result;
use crate::io_nodes::Node;
use crate::io_nodes::Routes;
use crate::io_nodes::table_may_answer;
use crate::request_context::RequestContext;
use crate::state::{Ask, HeldRows, ShardState};
use crate::tables::{OpenTable, row_bytes};
use crate::trace::{NodeCall, TableRead};

/// The approximate maximum size in bytes of the vectors that are read from the table at a time, to be scored. One read
/// is enough for the candidates of most searches.
const VECTOR_BYTES_AT_ONCE: usize = 4 << 20;

/// The answer for one slice, and its source.
pub struct SliceAnswer<T> {
    /// The slice. Its owner is `None` if the table was read in place of the I/O node.
    pub slice: NodeSlice,
    pub source: SliceSource,
    pub answer: T,
}

/// The fetches of one stage of a request: one for each slice of its rows.
#[derive(Clone, Copy)]
pub struct StageFetch<'a> {
    pub state: &'a ShardState,
    /// The routes of the whole stage, even if the list of I/O nodes changes in the meantime.
    pub routes: &'a Routes,
    pub open: &'a Arc<OpenTable>,
    pub columns: &'a [String],
    pub rerank: Option<&'a Rerank>,
    pub context: RequestContext,
}

impl<'a> StageFetch<'a> {
    /// Has `ask` fetch each slice of the rows at `addrs`, concurrently, and adds the cost to `cost`.
    pub async fn each<T>(
        self,
        addrs: &[RowAddr],
        cost: &mut Cost,
        ask: impl Fn(SliceFetch<'a>) -> BoxFuture<'a, Result<SliceAnswer<T>>>,
    ) -> Result<Vec<(NodeSlice, T)>> {
        let asked = self.plan(addrs, cost).into_iter().map(|slice| ask(self.fetch(slice)));
        let answers = try_join_all(asked).await?.into_iter();
        Ok(answers
            .map(|SliceAnswer { slice, source, answer }| {
                cost.account(self.routes, &slice, source);
                (slice, answer)
            })
            .collect())
    }

    /// Divides the rows at `addrs` into slices.
    pub fn plan(self, addrs: &[RowAddr], cost: &mut Cost) -> Vec<NodeSlice> {
        let Self { state, routes, open, context, .. } = self;
        let began = std::time::Instant::now();
        let slices = match self.columns {
            // Without columns it only matters which rows exist, and the table knows that.
            [] => all_to_one(addrs, None),
            _ => slices(state, routes, open, addrs, context),
        };
        cost.planned(state, began, slices.len());
        slices
    }

    /// Returns the fetch of a slice.
    pub fn fetch(self, slice: NodeSlice) -> SliceFetch<'a> {
        SliceFetch { stage: self, slice, source: SliceSource::default() }
    }
}

/// The fetch of one slice, from its I/O node or from the table.
pub struct SliceFetch<'a> {
    stage: StageFetch<'a>,
    slice: NodeSlice,
    source: SliceSource,
}

impl SliceFetch<'_> {
    /// Fetches the slice's rows. Returns those that exist, and the positions of the others in the slice.
    pub async fn rows(mut self) -> Result<SliceAnswer<(RecordBatch, Vec<u32>)>> {
        let rows = self.fetch_rows().await?;
        Ok(self.answered(rows))
    }

    /// Like [`rows`](Self::rows), but also returns the slice and its source if the fetch fails.
    pub async fn try_rows(mut self) -> SliceAnswer<Result<(RecordBatch, Vec<u32>)>> {
        let rows = self.fetch_rows().await;
        self.answered(rows)
    }

    async fn fetch_rows(&mut self) -> Result<(RecordBatch, Vec<u32>)> {
        match self.ask_node(None).await? {
            Some(reply) => rows_and_missing(reply),
            None => self.read_table(self.slice.addrs.clone()).await,
        }
    }

    /// Returns distances: of the `k` nearest rows if the I/O node scores them, else of all rows.
    pub async fn distances(mut self, query: &Query) -> Result<SliceAnswer<Vec<(RowAddr, f32)>>> {
        let scored = match self.ask_node(None).await? {
            Some(reply) if self.stage.rerank.is_some() => reply.into_neighbors()?,
            Some(reply) => {
                let (rows, missing) = rows_and_missing(reply)?;
                score_here(&self.slice.addrs, &missing, &rows, query)?
            }
            None => self.distances_of_table(query).await?,
        };
        Ok(self.answered(scored))
    }

    /// Returns the positions, among the slice's rows, of those that pass `filter`.
    pub async fn passing(mut self, filter: &PredicateFilter) -> Result<SliceAnswer<Vec<u32>>> {
        let passing = match self.ask_node(Some(&filter.wire)).await? {
            Some(Reply { outcome: Outcome::Passing(passing), .. }) => passing,
            // A node that does not know predicates answers with the rows.
            Some(reply) => {
                let (rows, missing) = rows_and_missing(reply)?;
                let _held = self.hold_rows(memory_of(rows.columns()))?;
                filter.passing(self.slice.addrs.len(), &missing, &rows)?
            }
            None => self.passing_of_table(filter).await?,
        };
        Ok(self.answered(passing))
    }

    fn answered<T>(self, answer: T) -> SliceAnswer<T> {
        SliceAnswer { slice: self.slice, source: self.source, answer }
    }

    /// Computes the distances of rows of the table.
    async fn distances_of_table(&mut self, query: &Query) -> Result<Vec<(RowAddr, f32)>> {
        let StageFetch { open, columns, .. } = self.stage;
        let schema = open.wire_schema_of(columns)?;
        let row_bytes = row_bytes(&schema).unwrap_or(open.packed_row_bytes);
        let rows_max = (VECTOR_BYTES_AT_ONCE / row_bytes.max(1)).max(1);
        let mut scored = Vec::with_capacity(self.slice.addrs.len());
        for part in parts(self.slice.addrs.len(), rows_max) {
            let bytes = part.len().saturating_mul(row_bytes);
            let (_held, rows, missing) = self.read_part(part.clone(), bytes).await?;
            scored.extend(score_here(&self.slice.addrs[part], &missing, &rows, query)?);
        }
        Ok(scored)
    }

    /// Evaluates `filter` for rows of the table.
    async fn passing_of_table(&mut self, filter: &PredicateFilter) -> Result<Vec<u32>> {
        let mut passing = Vec::new();
        for part in parts(self.slice.addrs.len(), filter.rows_at_once()) {
            let bytes = filter.bytes_of(part.len());
            let (_held, rows, missing) = self.read_part(part.clone(), bytes).await?;
            let of_part = filter.passing(part.len(), &missing, &rows)?;
            passing.extend(of_part.into_iter().map(|at| at + part.start as u32));
        }
        Ok(passing)
    }

    /// Reads a part of the slice's rows, of about `bytes` bytes, from the table. Returns the memory that they hold, the
    /// rows that exist, and the positions of the others in the part.
    async fn read_part(
        &mut self,
        part: Range<usize>,
        bytes: usize,
    ) -> Result<(HeldRows, RecordBatch, Vec<u32>)> {
        let mut held = self.hold_rows(bytes)?;
        let (rows, missing) = self.read_table(self.slice.addrs[part].to_vec()).await?;
        held.hold(memory_of(rows.columns()), self.stage.context.flow())?;
        Ok((held, rows, missing))
    }

    /// Holds memory for rows of `bytes` bytes.
    fn hold_rows(&self, bytes: usize) -> Result<HeldRows> {
        let mut held = HeldRows::new(&self.stage.state.row_memory);
        held.hold(bytes, self.stage.context.flow())?;
        Ok(held)
    }

    /// Returns the I/O node's reply, or `None` if the table should answer instead: the slice then belongs to the table.
    async fn ask_node(&mut self, predicate: Option<&Predicate>) -> Result<Option<Reply>> {
        self.stage.context.check("fetch")?;
        let Some(owner) = self.slice.owner else { return Ok(None) };
        let node = &self.stage.routes.nodes()[owner];
        let endpoint = node.client.endpoint();
        let began = Instant::now();
        let is_traced = self.stage.state.shared.tracer.is_on();
        // The call gets its own span only if spans are exported.
        let span =
            self.stage.context.span.map(|span| if is_traced { child_of(span) } else { span });
        let answer = self.ask(node, predicate, span).await;
        let took = began.elapsed();
        self.stage
            .state
            .metrics
            .fetched(answer.as_ref().ok().map(|_| self.slice.addrs.len()), took);
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
        node.health.judge(answer.as_ref().err(), took);
        match answer {
            Ok(reply) => {
                self.source.node = Some((took, reply.times()));
                Ok(Some(reply))
            }
            Err(fault) => {
                if !table_may_answer(fault.reason) {
                    return Err(fault.into());
                }
                self.stage.context.check("fetch")?;
                let trace = self.stage.context.trace_id();
                match fault.reason {
                    // The client has already logged the loss of the node.
                    Reason::NodeUnavailable => {
                        debug!(node = %endpoint, trace_id = trace, "the table answers: {fault}");
                    }
                    _ => warn!(node = %endpoint, trace_id = trace, "the table answers: {fault}"),
                }
                self.stage.state.shared.count_fallback(self.slice.addrs.len());
                self.slice.owner = None;
                Ok(None)
            }
        }
    }

    /// Asks the I/O node for the slice's rows, for their distances if there is a rerank, or for those that pass the
    /// predicate.
    async fn ask(
        &self,
        node: &Node,
        predicate: Option<&Predicate>,
        span: Option<ParentSpan>,
    ) -> std::result::Result<Reply, Fault> {
        let client = &node.client;
        let (table, context) = (&self.stage.open.table, self.stage.context.for_io_nodes(span));
        let (uri, version, identity) =
            (table.uri(), table.version(), self.stage.open.identity.as_str());
        let table = TableVersion { uri, branch: self.stage.open.branch(), version, identity };
        let projection = client.open(table, self.stage.columns, context.deadline).await?;
        if let Some(predicate) = predicate {
            return client.check(&projection, &self.slice.addrs, predicate, context).await;
        }
        let rerank = self.stage.rerank.cloned();
        client.fetch(&projection, self.slice.addrs.clone(), rerank, context).await
    }

    /// Reads the rows at `addrs`, which are all of the slice or a part, from the table.
    async fn read_table(&mut self, addrs: Vec<RowAddr>) -> Result<(RecordBatch, Vec<u32>)> {
        let began = std::time::Instant::now();
        let (open, count) = (Arc::clone(self.stage.open), addrs.len());
        let columns = self.stage.columns.to_vec();
        let read = async move { table_rows(&open, &addrs, &columns).await }.boxed();
        let admission = &self.stage.state.shared.admission;
        let ask = Ask { during: "fetch", rows: count, context: self.stage.context };
        let rows = admission.run_in_background(ask, read).await?;
        if self.stage.state.shared.tracer.is_on() {
            let ended = std::time::Instant::now();
            let before = self.source.table.take();
            let (rows, began) = before.map_or((0, began), |read| (read.rows, read.began));
            self.source.table = Some(TableRead { rows: rows + count, began, ended });
        }
        Ok(rows)
    }
}

/// Divides `rows` rows of a slice into parts of at most `rows_max` rows, so that those that are read from the table at
/// the same time take little memory.
fn parts(rows: usize, rows_max: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(rows_max).map(move |from| from..rows.min(from + rows_max))
}

/// Returns the rows of a reply, and the positions of the missing ones among the slice's rows.
fn rows_and_missing(mut reply: Reply) -> Result<(RecordBatch, Vec<u32>)> {
    let missing = std::mem::take(&mut reply.missing);
    Ok((reply.into_rows()?, missing))
}
