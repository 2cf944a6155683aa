//! Stream: rows from the I/O nodes that own them, all at the same time.
//!
//! What an I/O node can't answer, or isn't to be asked now, is answered from the table within the same
//! deadline: correct is more important than fast. An I/O node that says it has too much to do is not
//! helped by that, and the caller is told.

use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use client::fetch::{Metric, Reply, Rerank, StageTimes, TableVersion, UNANSWERED};
use distance::Query;
use futures::FutureExt;
use futures::future::try_join_all;
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::{Fault, Reason};

use super::assemble::{Part, assemble};
use super::plan::{Share, all_to_one, plan};
use super::score::Vectors;
use super::table::table_rows;
use crate::counted::counted;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::io_tier::{Node, Routes};
use crate::state::State;
use crate::tables::OpenTable;

/// What a stage cost the I/O tier.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// I/O nodes asked.
    pub nodes: usize,
    /// Their counts together; times are not added.
    pub times: StageTimes,
    /// Rows that this node read from the table, because an I/O node could not answer.
    pub fallback_rows: usize,
    /// The I/O node that took longest, and where its time went.
    pub slowest: Option<(String, StageTimes)>,
    slowest_took: Duration,
}

impl Cost {
    /// In words.
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

    /// Adds what one share cost: an I/O node's time, or nothing but rows from the table.
    fn account(&mut self, routes: &Routes, share: &Share, from: From) {
        match from {
            Some((took, times)) => {
                let node = routes.nodes()[share.owner].client.endpoint();
                self.add(&node.to_string(), took, &times);
            }
            None => self.fallback_rows += share.addrs.len(),
        }
    }

    fn add(&mut self, node: &str, took: Duration, times: &StageTimes) {
        self.nodes += 1;
        self.times.drive_reads += times.drive_reads;
        self.times.drive_bytes += times.drive_bytes;
        self.times.ram_hits += times.ram_hits;
        self.times.table_rows += times.table_rows;
        if took >= self.slowest_took {
            self.slowest_took = took;
            self.slowest = Some((node.to_owned(), *times));
        }
    }
}

/// Rows, as they travel.
#[derive(Debug)]
pub struct Fetched {
    /// Those that there are, in the request's order, of the wire's types.
    pub rows: RecordBatch,
    /// Places of those that there are not, ascending.
    pub missing: Vec<u32>,
    /// What they cost.
    pub cost: Cost,
}

impl Fetched {
    /// Rows of which nothing is wanted but that they are there.
    pub fn of_no_columns(rows: usize) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::empty());
        let rows = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        Ok(Self { rows, missing: Vec::new(), cost: Cost::default() })
    }
}

fn shares(routes: &Routes, open: &OpenTable, addrs: &[RowAddr]) -> Vec<Share> {
    match routes.nodes().len() {
        // Without any, the share is the table's.
        0 | 1 => all_to_one(addrs),
        _ => plan(addrs, |addr| routes.owner(open, addr)),
    }
}

/// The rows at `addrs`.
pub async fn fetch_rows(
    state: &State,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    columns: &[String],
    deadline: Deadline,
) -> Result<Fetched> {
    let wire_schema = open.wire_schema_of(columns)?;
    let mut cost = Cost::default();
    if addrs.is_empty() {
        return Ok(Fetched { rows: RecordBatch::new_empty(wire_schema), missing: vec![], cost });
    }
    let routes = &state.tier.routes();
    let shares = shares(routes, open, addrs);
    let asked = |share| Asked { state, routes, open, columns, share, rerank: None, deadline };
    let fetches = shares.into_iter().map(|share| asked(share).rows().boxed());
    let mut parts = Vec::new();
    for answer in try_join_all(fetches).await? {
        cost.account(routes, &answer.share, answer.from);
        let Answer { share, rows, missing, .. } = answer;
        parts.push(Part { places: share.places, rows, missing });
    }
    let (rows, missing) = assemble(&parts, addrs.len(), &wire_schema)?;
    Ok(Fetched { rows, missing, cost })
}

/// How rows are scored.
#[derive(Clone, Copy, Debug)]
pub struct Scoring<'a> {
    /// The vector column.
    pub column: &'a str,
    /// The query vector.
    pub query: &'a [f32],
    /// How distance is measured.
    pub metric: Metric,
    /// How many of the nearest rows are wanted.
    pub k: usize,
}

/// Exact distances of the rows at `addrs`: of each I/O node at least the `k` nearest.
pub async fn score_rows(
    state: &State,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    scoring: Scoring<'_>,
    deadline: Deadline,
) -> Result<(Vec<(RowAddr, f32)>, Cost)> {
    let Scoring { column, query, metric, k } = scoring;
    let columns = [column.to_owned()];
    let in_place = open.can_score_in_place(column);
    let rerank = in_place.then(|| Rerank::new(query, metric, k as u32));
    let query = &Query::new(query.to_vec(), metric);
    let routes = &state.tier.routes();
    let shares = shares(routes, open, addrs);
    let scores = shares.into_iter().map(|share| {
        let (rerank, columns) = (rerank.as_ref(), columns.as_slice());
        Asked { state, routes, open, columns, share, rerank, deadline }.distances(query).boxed()
    });
    let (mut cost, mut all) = (Cost::default(), Vec::new());
    for (share, from, scored) in try_join_all(scores).await? {
        cost.account(routes, &share, from);
        all.extend(scored);
    }
    Ok((all, cost))
}

fn score_here(
    addrs: &[RowAddr],
    missing: &[u32],
    rows: &RecordBatch,
    query: &Query,
) -> Result<Vec<(RowAddr, f32)>> {
    let vectors = Vectors::of(rows.column(0))?;
    let mut gone = missing.iter().peekable();
    let present = (0u32..).zip(addrs).filter(|(at, _)| gone.next_if_eq(&at).is_none());
    let pairs = present.zip(vectors.distances(query));
    Ok(pairs.filter_map(|((_, &addr), distance)| Some((addr, distance?))).collect())
}

/// How long an I/O node took, and what for; `None` if the table answered.
type From = Option<(Duration, StageTimes)>;

/// The rows of one share.
struct Answer {
    share: Share,
    from: From,
    rows: RecordBatch,
    missing: Vec<u32>,
}

/// What is asked of one I/O node.
struct Asked<'a> {
    state: &'a State,
    /// The same for the whole of a stage, whatever list comes meanwhile.
    routes: &'a Routes,
    open: &'a Arc<OpenTable>,
    columns: &'a [String],
    share: Share,
    rerank: Option<&'a Rerank>,
    deadline: Deadline,
}

impl Asked<'_> {
    async fn rows(self) -> Result<Answer> {
        let (rows, missing, from) = match self.ask_node().await? {
            Some((reply, took)) => {
                let (missing, times) = (reply.missing.clone(), reply.times);
                (reply.into_rows()?, missing, Some((took, times)))
            }
            None => {
                let (rows, missing) = self.read_table().await?;
                (rows, missing, None)
            }
        };
        Ok(Answer { share: self.share, from, rows, missing })
    }

    /// The distances of the rows: the k nearest if the node scores them, or of all of them.
    async fn distances(self, query: &Query) -> Result<(Share, From, Vec<(RowAddr, f32)>)> {
        let (rows, missing, from) = match self.ask_node().await? {
            Some((reply, took)) => {
                let from = Some((took, reply.times));
                if self.rerank.is_some() {
                    return Ok((self.share, from, reply.into_neighbors()?));
                }
                let missing = reply.missing.clone();
                (reply.into_rows()?, missing, from)
            }
            None => {
                let (rows, missing) = self.read_table().await?;
                (rows, missing, None)
            }
        };
        let scored = score_here(&self.share.addrs, &missing, &rows, query)?;
        Ok((self.share, from, scored))
    }

    /// The node's answer, and how long it took; `None` if the table is to answer instead.
    async fn ask_node(&self) -> Result<Option<(Reply, Duration)>> {
        self.deadline.check("fetch")?;
        if self.columns.is_empty() {
            // Only whether the rows are there.
            return Ok(None);
        }
        let Some(node) = self.routes.nodes().get(self.share.owner) else {
            self.state.shared.count_fallback(self.share.addrs.len());
            return Ok(None);
        };
        let endpoint = node.client.endpoint();
        if let Some(why) = node.why_not() {
            debug!(node = %endpoint, "the table answers: {why}");
            self.state.shared.count_fallback(self.share.addrs.len());
            return Ok(None);
        }
        let began = Instant::now();
        match self.ask(node).await {
            Ok(reply) => {
                node.ejection.succeeded();
                Ok(Some((reply, began.elapsed())))
            }
            Err(fault) => {
                if blames_node(&fault, began.elapsed()) {
                    if node.ejection.failed(Instant::now(), &fault.message) {
                        self.state.shared.io_nodes.count_ejection();
                    }
                } else if has_answered(&fault) {
                    node.ejection.succeeded();
                }
                if !table_may_answer(fault.reason) {
                    return Err(fault.into());
                }
                self.deadline.check("fetch")?;
                match fault.reason {
                    // The client has said so when it lost the node.
                    Reason::NodeUnavailable => {
                        debug!(node = %endpoint, "the table answers: {fault}")
                    }
                    _ => warn!(node = %endpoint, "the table answers: {fault}"),
                }
                self.state.shared.count_fallback(self.share.addrs.len());
                Ok(None)
            }
        }
    }

    async fn ask(&self, node: &Node) -> std::result::Result<Reply, Fault> {
        let client = &node.client;
        let (table, deadline) = (&self.open.table, self.deadline.of_io_nodes());
        let (uri, version, identity) = (table.uri(), table.version(), self.open.identity.as_str());
        let table = TableVersion { uri, version, identity };
        let projection = client.open(table, self.columns, deadline).await?;
        let rerank = self.rerank.cloned();
        client.fetch(&projection, self.share.addrs.clone(), rerank, deadline).await
    }

    async fn read_table(&self) -> Result<(RecordBatch, Vec<u32>)> {
        let (open, addrs) = (Arc::clone(self.open), self.share.addrs.clone());
        let columns = self.columns.to_vec();
        let read = async move { table_rows(&open, &addrs, &columns).await }.boxed();
        self.state.shared.turns.in_background("fetch", self.deadline, read).await
    }
}

/// A deadline shorter than this says more of the caller than of the node that didn't keep to it.
const PATIENCE: Duration = Duration::from_millis(250);

/// Whether a failure after so long counts towards the ejection of the node that it is of.
fn blames_node(fault: &Fault, took: Duration) -> bool {
    match fault.reason {
        // One that says so itself was waiting for the table's store.
        Reason::DeadlineExceeded => took >= PATIENCE && fault.metadata.contains_key(UNANSWERED),
        Reason::Internal | Reason::BadProtocol => true,
        // Its client knows, and needs no time to find out.
        Reason::NodeUnavailable
        // It does what it can.
        | Reason::Overloaded
        | Reason::TooLarge
        | Reason::Cancelled
        // It is the table, the store, or the request.
        | Reason::StoreUnreachable
        | Reason::StoreRefused
        | Reason::TableDamaged
        | Reason::UnsupportedType
        | Reason::TableNotFound
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

/// Whether the node itself said so.
fn has_answered(fault: &Fault) -> bool {
    fault.reason != Reason::NodeUnavailable && !fault.metadata.contains_key(UNANSWERED)
}

/// Whether the table is read instead when an I/O node fails for this reason.
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
