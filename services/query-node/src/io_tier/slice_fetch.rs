//! Fetches one slice: from its I/O node, or from the table.
//!
//! If the I/O node cannot answer, or should not be asked now (`slices.rs` decides that), the table answers within the
//! same deadline, which is slow but correct. The exceptions are in `faults.rs`. For example, if the I/O node is
//! overloaded, the caller gets the error, because reading the table would only add load.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use client::fetch::{Outcome, Predicate, Reply, Rerank, TableVersion};
use distance::Query;
use futures::FutureExt;
use telemetry::child_of;
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::{Fault, ParentSpan, Reason};

use super::cost::SliceSource;
use super::faults::table_may_answer;
use super::node::Node;
use super::plan::NodeSlice;
use super::predicate_filter::PredicateFilter;
use super::routes::Routes;
use super::score::score_here;
use super::table_rows::table_rows;
use crate::admission::Ask;
use crate::error::Result;
use crate::held_rows::HeldRows;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;
use crate::trace::{NodeCall, TableRead};

/// One slice with its rows and their source.
pub struct SliceAnswer {
    pub slice: NodeSlice,
    pub source: SliceSource,
    pub rows: RecordBatch,
    pub missing: Vec<u32>,
}

/// The fetch of one slice, from its I/O node or from the table.
pub struct SliceFetch<'a> {
    pub state: &'a ShardState,
    /// The routes of the whole stage, even if the list of I/O nodes changes in the meantime.
    pub routes: &'a Routes,
    pub open: &'a Arc<OpenTable>,
    pub columns: &'a [String],
    pub slice: NodeSlice,
    pub rerank: Option<&'a Rerank>,
    pub context: RequestContext,
    pub source: SliceSource,
}

impl SliceFetch<'_> {
    /// Fetches the slice's rows.
    pub async fn rows(mut self) -> Result<SliceAnswer> {
        let (rows, missing) = match self.ask_node(None).await? {
            Some(reply) => rows_and_missing(reply)?,
            None => self.read_table(self.slice.addrs.clone()).await?,
        };
        Ok(SliceAnswer { slice: self.slice, source: self.source, rows, missing })
    }

    /// Returns distances: of the `k` nearest rows if the I/O node scores them, else of all rows.
    pub async fn distances(
        mut self,
        query: &Query,
    ) -> Result<(NodeSlice, SliceSource, Vec<(RowAddr, f32)>)> {
        let (rows, missing) = match self.ask_node(None).await? {
            Some(reply) if self.rerank.is_some() => {
                return Ok((self.slice, self.source, reply.into_neighbors()?));
            }
            Some(reply) => rows_and_missing(reply)?,
            None => self.read_table(self.slice.addrs.clone()).await?,
        };
        let scored = score_here(&self.slice.addrs, &missing, &rows, query)?;
        Ok((self.slice, self.source, scored))
    }

    /// Returns the positions, among the slice's rows, of those that pass `filter`.
    pub async fn passing(
        mut self,
        filter: &PredicateFilter,
    ) -> Result<(NodeSlice, SliceSource, Vec<u32>)> {
        let passing = match self.ask_node(Some(&filter.wire)).await? {
            Some(Reply { outcome: Outcome::Passing(passing), .. }) => passing,
            // A node that does not know predicates answers with the rows.
            Some(reply) => {
                let (rows, missing) = rows_and_missing(reply)?;
                let _held = self.hold_rows(rows.get_array_memory_size())?;
                filter.passing(self.slice.addrs.len(), &missing, &rows)?
            }
            None => self.passing_of_table(filter).await?,
        };
        Ok((self.slice, self.source, passing))
    }

    /// Evaluates `filter` for rows of the table. Reads few rows at a time, so that they take little memory.
    async fn passing_of_table(&mut self, filter: &PredicateFilter) -> Result<Vec<u32>> {
        let mut passing = Vec::new();
        let rows_max = filter.rows_at_once();
        for from in (0..self.slice.addrs.len()).step_by(rows_max) {
            let addrs = &self.slice.addrs[from..];
            let addrs = addrs[..addrs.len().min(rows_max)].to_vec();
            let count = addrs.len();
            let mut held = self.hold_rows(filter.bytes_of(count))?;
            let (rows, missing) = self.read_table(addrs).await?;
            held.hold(rows.get_array_memory_size(), self.context.flow())?;
            let of_part = filter.passing(count, &missing, &rows)?;
            passing.extend(of_part.into_iter().map(|at| at + from as u32));
        }
        Ok(passing)
    }

    /// Holds memory for rows of `bytes` bytes.
    fn hold_rows(&self, bytes: usize) -> Result<HeldRows> {
        let mut held = HeldRows::new(&self.state.row_memory);
        held.hold(bytes, self.context.flow())?;
        Ok(held)
    }

    /// Returns the I/O node's reply, or `None` if the table should answer instead.
    async fn ask_node(&mut self, predicate: Option<&Predicate>) -> Result<Option<Reply>> {
        self.context.check("fetch")?;
        let Some(owner) = self.slice.owner else { return Ok(None) };
        let node = &self.routes.nodes()[owner];
        let endpoint = node.client.endpoint();
        let began = Instant::now();
        let is_traced = self.state.shared.tracer.is_on();
        // The call gets its own span only if spans are exported.
        let span = self.context.span.map(|span| if is_traced { child_of(span) } else { span });
        let answer = self.ask(node, predicate, span).await;
        let took = began.elapsed();
        self.state.metrics.fetched(answer.as_ref().ok().map(|_| self.slice.addrs.len()), took);
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

    /// Asks the I/O node for the slice's rows, for their distances if there is a rerank, or for those that pass the
    /// predicate.
    async fn ask(
        &self,
        node: &Node,
        predicate: Option<&Predicate>,
        span: Option<ParentSpan>,
    ) -> std::result::Result<Reply, Fault> {
        let client = &node.client;
        let (table, context) = (&self.open.table, self.context.for_io_nodes(span));
        let (uri, version, identity) = (table.uri(), table.version(), self.open.identity.as_str());
        let table = TableVersion { uri, branch: self.open.branch(), version, identity };
        let projection = client.open(table, self.columns, context.deadline).await?;
        if let Some(predicate) = predicate {
            return client.check(&projection, &self.slice.addrs, predicate, context).await;
        }
        let rerank = self.rerank.cloned();
        client.fetch(&projection, self.slice.addrs.clone(), rerank, context).await
    }

    /// Reads the rows at `addrs`, which are all of the slice or a part, from the table.
    async fn read_table(&mut self, addrs: Vec<RowAddr>) -> Result<(RecordBatch, Vec<u32>)> {
        let began = std::time::Instant::now();
        let (open, count) = (Arc::clone(self.open), addrs.len());
        let columns = self.columns.to_vec();
        let read = async move { table_rows(&open, &addrs, &columns).await }.boxed();
        let admission = &self.state.shared.admission;
        let ask = Ask { during: "fetch", rows: count, context: self.context };
        let rows = admission.run_in_background(ask, read).await?;
        if self.state.shared.tracer.is_on() {
            let ended = std::time::Instant::now();
            let before = self.source.table.take();
            let (rows, began) = before.map_or((0, began), |read| (read.rows, read.began));
            self.source.table = Some(TableRead { rows: rows + count, began, ended });
        }
        Ok(rows)
    }
}

/// Returns the rows of a reply, and the positions of the missing ones among the slice's rows.
fn rows_and_missing(mut reply: Reply) -> Result<(RecordBatch, Vec<u32>)> {
    let missing = std::mem::take(&mut reply.missing);
    Ok((reply.into_rows()?, missing))
}
