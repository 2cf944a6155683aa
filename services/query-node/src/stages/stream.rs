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
use client::fetch::{Metric, Reply, Rerank, StageTimes, TableVersion, UNANSWERED, add_counts};
use distance::Query;
use futures::FutureExt;
use futures::future::try_join_all;
use telemetry::{Span, child_of};
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::{Fault, ParentSpan, Reason};

use super::assemble::{Part, assemble};
use super::plan::{Share, all_to_one, plan};
use super::score::Vectors;
use super::table::table_rows;
use crate::counted::counted;
use crate::error::Result;
use crate::io_tier::{Node, Routes};
use crate::state::State;
use crate::tables::OpenTable;
use crate::terms::Terms;

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
    pub slowest: Option<(Arc<str>, StageTimes)>,
    slowest_took: Duration,
    /// What was asked of whom, for the request's trace.
    pub spans: Vec<Span>,
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

    /// Says in the request's trace that its rows were planned since `began`.
    fn planned(&mut self, state: &State, began: std::time::Instant) {
        if state.shared.tracer.is_on() {
            self.spans.push(Span::new("plan", began, std::time::Instant::now()));
        }
    }

    /// Adds what one share cost: an I/O node's time, or nothing but rows from the table.
    fn account(&mut self, routes: &Routes, share: &Share, from: From) {
        self.spans.extend(from.spans);
        match (share.owner, from.node) {
            (Some(owner), Some((took, times))) => {
                self.add(&routes.nodes()[owner].address, took, &times);
            }
            _ => self.fallback_rows += share.addrs.len(),
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

/// Who is asked for what. Rows of nodes that aren't to be asked now are one share, so that they are one read of the
/// table.
fn shares(
    state: &State,
    routes: &Routes,
    open: &OpenTable,
    addrs: &[RowAddr],
    terms: Terms,
) -> Vec<Share> {
    let may_ask = |owner: usize| {
        let node = &routes.nodes()[owner];
        let why_not = node.why_not();
        if let Some(why) = why_not {
            let trace = || terms.trace_id();
            debug!(node = %node.client.endpoint(), trace_id = trace(), "the table answers: {why}");
        }
        why_not.is_none()
    };
    let shares = match routes.nodes().len() {
        0 => all_to_one(addrs, None),
        1 => all_to_one(addrs, may_ask(0).then_some(0)),
        nodes => plan(addrs, nodes, |addr| routes.owner(open, addr), may_ask),
    };
    for share in shares.iter().filter(|share| share.owner.is_none()) {
        state.shared.count_fallback(share.addrs.len());
    }
    shares
}

/// The rows at `addrs`.
pub async fn fetch_rows(
    state: &State,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    columns: &[String],
    terms: Terms,
) -> Result<Fetched> {
    let wire_schema = open.wire_schema_of(columns)?;
    let mut cost = Cost::default();
    if addrs.is_empty() {
        return Ok(Fetched { rows: RecordBatch::new_empty(wire_schema), missing: vec![], cost });
    }
    let routes = &state.tier.routes();
    let began = std::time::Instant::now();
    let shares = match columns {
        // Only whether the rows are there.
        [] => all_to_one(addrs, None),
        _ => shares(state, routes, open, addrs, terms),
    };
    cost.planned(state, began);
    let (rerank, from) = (None, From::default);
    let asked = |share| Asked { state, routes, open, columns, share, rerank, terms, from: from() };
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
    terms: Terms,
) -> Result<(Vec<(RowAddr, f32)>, Cost)> {
    let Scoring { column, query, metric, k } = scoring;
    let columns = [column.to_owned()];
    let in_place = open.can_score_in_place(column);
    let rerank = in_place.then(|| Rerank::new(query, metric, k as u32));
    let query = &Query::new(query.to_vec(), metric);
    let routes = &state.tier.routes();
    let (mut cost, mut all) = (Cost::default(), Vec::new());
    let began = std::time::Instant::now();
    let shares = shares(state, routes, open, addrs, terms);
    cost.planned(state, began);
    let scores = shares.into_iter().map(|share| {
        let (rerank, columns) = (rerank.as_ref(), columns.as_slice());
        let from = From::default();
        Asked { state, routes, open, columns, share, rerank, terms, from }.distances(query).boxed()
    });
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

/// Who answered.
#[derive(Default)]
struct From {
    /// How long an I/O node took, and what for; `None` if the table answered.
    node: Option<(Duration, StageTimes)>,
    spans: Vec<Span>,
}

/// The rows of one share.
struct Answer {
    share: Share,
    from: From,
    rows: RecordBatch,
    missing: Vec<u32>,
}

/// What is asked of one I/O node, or of the table.
struct Asked<'a> {
    state: &'a State,
    /// The same for the whole of a stage, whatever list comes meanwhile.
    routes: &'a Routes,
    open: &'a Arc<OpenTable>,
    columns: &'a [String],
    share: Share,
    rerank: Option<&'a Rerank>,
    terms: Terms,
    from: From,
}

impl Asked<'_> {
    async fn rows(mut self) -> Result<Answer> {
        let (rows, missing) = match self.ask_node().await? {
            Some(reply) => {
                let missing = reply.missing.clone();
                (reply.into_rows()?, missing)
            }
            None => self.read_table().await?,
        };
        Ok(Answer { share: self.share, from: self.from, rows, missing })
    }

    /// The distances of the rows: the k nearest if the node scores them, or of all of them.
    async fn distances(mut self, query: &Query) -> Result<(Share, From, Vec<(RowAddr, f32)>)> {
        let (rows, missing) = match self.ask_node().await? {
            Some(reply) if self.rerank.is_some() => {
                return Ok((self.share, self.from, reply.into_neighbors()?));
            }
            Some(reply) => {
                let missing = reply.missing.clone();
                (reply.into_rows()?, missing)
            }
            None => self.read_table().await?,
        };
        let scored = score_here(&self.share.addrs, &missing, &rows, query)?;
        Ok((self.share, self.from, scored))
    }

    /// The node's answer; `None` if the table is to answer instead.
    async fn ask_node(&mut self) -> Result<Option<Reply>> {
        self.terms.check("fetch")?;
        let Some(owner) = self.share.owner else { return Ok(None) };
        let node = &self.routes.nodes()[owner];
        let endpoint = node.client.endpoint();
        let began = Instant::now();
        let is_traced = self.state.shared.tracer.is_on();
        // A span that nobody tells of has nothing within it.
        let span = self.terms.span.map(|span| if is_traced { child_of(span) } else { span });
        let answer = self.ask(node, span).await;
        let took = began.elapsed();
        self.state.metrics.fetched(self.share.addrs.len(), took);
        if let Some(span) = span.filter(|_| is_traced) {
            self.from.spans.reserve_exact(1 + WITHIN_MAX);
            self.from.spans.push(self.span_of(node, span, began.into_std(), &answer));
            if let Ok(reply) = &answer {
                self.from.spans.extend(within_call(span.span, reply));
            }
        }
        match answer {
            Ok(reply) => {
                node.ejection.succeeded();
                self.from.node = Some((took, reply.times));
                Ok(Some(reply))
            }
            Err(fault) => {
                if blames_node(&fault, took) {
                    if node.ejection.failed(Instant::now(), &fault.message) {
                        self.state.shared.io_nodes.count_ejection();
                    }
                } else if has_answered(&fault) {
                    node.ejection.succeeded();
                }
                if !table_may_answer(fault.reason) {
                    return Err(fault.into());
                }
                self.terms.check("fetch")?;
                let trace = self.terms.trace_id();
                match fault.reason {
                    // The client has said so when it lost the node.
                    Reason::NodeUnavailable => {
                        debug!(node = %endpoint, trace_id = trace, "the table answers: {fault}");
                    }
                    _ => warn!(node = %endpoint, trace_id = trace, "the table answers: {fault}"),
                }
                self.state.shared.count_fallback(self.share.addrs.len());
                Ok(None)
            }
        }
    }

    async fn ask(
        &self,
        node: &Node,
        span: Option<ParentSpan>,
    ) -> std::result::Result<Reply, Fault> {
        let client = &node.client;
        let (table, terms) = (&self.open.table, self.terms.of_io_nodes(span));
        let (uri, version, identity) = (table.uri(), table.version(), self.open.identity.as_str());
        let table = TableVersion { uri, version, identity };
        let projection = client.open(table, self.columns, terms.deadline).await?;
        let rerank = self.rerank.cloned();
        client.fetch(&projection, self.share.addrs.clone(), rerank, terms).await
    }

    /// What was asked of a node, as the request's trace tells it.
    fn span_of(
        &self,
        node: &Node,
        span: ParentSpan,
        began: std::time::Instant,
        answer: &std::result::Result<Reply, Fault>,
    ) -> Span {
        let mut attributes = Vec::with_capacity(8);
        attributes.extend([
            ("rpc.system.name", "grpc".into()),
            ("server.address", (&node.address).into()),
            ("bireme.io_node", (&node.name).into()),
            ("bireme.rows", self.share.addrs.len().into()),
        ]);
        if let Ok(reply) = answer {
            let times = &reply.times;
            attributes.extend([
                ("bireme.drive.reads", times.drive_reads.into()),
                ("bireme.drive.bytes", times.drive_bytes.into()),
                ("bireme.ram.hits", times.ram_hits.into()),
                ("bireme.table.rows", times.table_rows.into()),
            ]);
        }
        Span {
            id: Some(span.span),
            is_call: true,
            fault: answer.as_ref().err().map(|fault| fault.message.clone()),
            attributes,
            ..Span::new("bireme.fetch.v1.FetchService/Fetch", began, std::time::Instant::now())
        }
    }

    async fn read_table(&mut self) -> Result<(RecordBatch, Vec<u32>)> {
        let began = std::time::Instant::now();
        let (open, addrs) = (Arc::clone(self.open), self.share.addrs.clone());
        let columns = self.columns.to_vec();
        let read = async move { table_rows(&open, &addrs, &columns).await }.boxed();
        let rows = self.state.shared.turns.in_background("fetch", self.terms, read).await?;
        if self.state.shared.tracer.is_on() {
            let attributes = vec![("bireme.rows", self.share.addrs.len().into())];
            let span = Span::new("table", began, std::time::Instant::now());
            self.from.spans.push(Span { attributes, ..span });
        }
        Ok(rows)
    }
}

/// Spans within the call of an I/O node, at most.
const WITHIN_MAX: usize = 3 + NODE_STAGES.len();

/// What an I/O node does with a batch, as it tells it itself.
const NODE_STAGES: [&str; 4] = ["locate", "queue", "read", "assemble"];

/// What is within the call of an I/O node whose span is `id`: the batch's way there and back, and the node's stages unless
/// it tells of them itself, as of a batch that nobody samples and that was quick: the request may turn out slow. They are
/// put in the middle of the time that the batch was away for: the node says how long they took, and by its own clock.
fn within_call(id: u64, reply: &Reply) -> Vec<Span> {
    let Reply { way, times, .. } = reply;
    let mut spans = Vec::with_capacity(WITHIN_MAX);
    let mut add = |name, began: Instant, ended: Instant| {
        let span = Span::new(name, began.into_std(), ended.into_std());
        spans.push(Span { within: Some(id), ..span });
    };
    add("batch", way.asked, way.without_credit.unwrap_or(way.sent));
    if let Some(since) = way.without_credit {
        add("credit", since, way.sent);
    }
    add("stream", way.sent, way.answered);
    let queue_us = times.queue_us.min(times.read_us);
    let stages = [times.locate_us, queue_us, times.read_us - queue_us, times.assemble_us];
    let stages = stages.map(|us| Duration::from_micros(us.into()));
    if !times.told {
        let took = stages.iter().sum();
        let mut began = way.sent + (way.answered - way.sent).saturating_sub(took) / 2;
        for (name, took) in NODE_STAGES.into_iter().zip(stages) {
            add(name, began, began + took);
            began += took;
        }
    }
    spans
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

#[cfg(test)]
mod tests {
    use client::fetch::{Outcome, Way};

    use super::*;

    #[test]
    fn an_io_node_that_says_nothing_itself_is_told_of_by_what_it_answered() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let way =
            Way { asked: at(0), without_credit: Some(at(2)), sent: at(10), answered: at(110) };
        let times = StageTimes {
            locate_us: 5,
            read_us: 60,
            queue_us: 20,
            assemble_us: 15,
            ..Default::default()
        };
        let outcome = Outcome::Neighbors(Vec::new());
        let mut reply = Reply { outcome, missing: Vec::new(), times, way };
        let told = |reply: &Reply| {
            let us = |moment: std::time::Instant| (moment - start.into_std()).as_micros();
            let spans = within_call(7, reply);
            assert!(spans.iter().all(|span| span.within == Some(7)));
            let told = spans.iter().map(|it| (it.name.to_string(), us(it.began), us(it.ended)));
            told.collect::<Vec<_>>()
        };
        let span = |name: &str, began, ended| (name.to_owned(), began, ended);
        let ways = [span("batch", 0, 2), span("credit", 2, 10), span("stream", 10, 110)];
        let stages = [
            span("locate", 20, 25),
            span("queue", 25, 45),
            span("read", 45, 85),
            span("assemble", 85, 100),
        ];
        assert_eq!(told(&reply), [&ways[..], &stages].concat());
        reply.times.told = true;
        assert_eq!(told(&reply), ways);
        // A node may claim anything.
        reply.times = StageTimes { read_us: 500, queue_us: u32::MAX, ..times };
        reply.way.without_credit = None;
        let told = told(&reply);
        assert_eq!(told[..2], [span("batch", 0, 10), span("stream", 10, 110)]);
        assert_eq!(told[3..5], [span("queue", 15, 515), span("read", 515, 515)]);
    }
}
