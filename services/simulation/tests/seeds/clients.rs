//! Clients: each requests rows of tables repeatedly, and compares every answer with the truth.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::{FixedSizeBinaryArray, RecordBatch};
use client::fetch::{
    Counters, FetchClient, FetchContext, FetchOptions, Flow, Instant, Metric, Outcome, Priority,
    Projection, Reply, Rerank, TableFile, TableVersion,
};
use client::{Endpoint, Network};
use wire::fetch::{ReleaseRequest, WarmRequest};
use wire::{Fault, Reason};

use crate::dice::Dice;
use crate::files::{FILES, File};
use crate::network::Net;
use crate::store::OVERWRITTEN;
use crate::trace::Trace;
use crate::truth::{DIMENSION, TABLES, Version, nowhere};

/// Conditions of a phase of a run.
#[derive(Debug, Default)]
pub struct Wishes {
    /// Whether faults are injected, so that requests may be refused.
    pub is_rough: Cell<bool>,
    /// Whether clients should end once their batches are answered.
    pub is_to_end: Cell<bool>,
    /// Whether a node was restarted in this phase, without other faults. Set when the restart begins.
    pub is_restarting: Cell<bool>,
}

/// Counts of the events that all clients of a run have observed.
#[derive(Debug, Default)]
pub struct Seen {
    /// Fetches answered with rows, with distances, or with sectors of files.
    pub answers: Cell<u64>,
    /// Rows that the answers contain, or among which they contain the nearest.
    pub rows: Cell<u64>,
    /// Rows that nodes read from a table for the answers, as the nodes report them. A row counts once for each pack
    /// that it was read for.
    pub table_rows: Cell<u64>,
    /// Sectors of files that answers contained.
    pub sectors: Cell<u64>,
    /// Answers with sectors of a file that was overwritten for a while.
    pub overwritten: Cell<u64>,
    /// Reads that were refused because the file was overwritten since it was opened.
    pub overwritten_refused: Cell<u64>,
    /// Nodes that have refused such a read and have not answered a read of the same file since, with the file's path.
    pub refusing: RefCell<BTreeSet<(usize, &'static str)>>,
    /// Answers with sectors of a file, by a node that had refused a read of it before.
    pub overwritten_answered: Cell<u64>,
    /// Blocks of files that were released.
    pub released: Cell<u64>,
    /// Sectors that a node read from the store because it had just released their blocks.
    pub released_read: Cell<u64>,
    /// Refusals, by reason.
    pub refusals: RefCell<BTreeMap<&'static str, u64>>,
    /// Requests that failed because a node was unavailable, while no faults were injected.
    pub unavailable_in_calm: Cell<u64>,
    /// Groups of concurrent fetches that were dropped before their last answer.
    pub dropped: Cell<u64>,
    /// Messages that strangers sent. Many of them violate the protocol.
    pub strange: Cell<u64>,
    /// Descriptions of nodes that observers checked.
    pub looks: Cell<u64>,
    /// Descriptions of a node that was not ready.
    pub looks_before_ready: Cell<u64>,
    /// Checks of the guarantees of tables that already held bytes in the previous description.
    pub minima: Cell<u64>,
    /// Checks of the maxima of tables that used at least half of their maximum.
    pub maxima: Cell<u64>,
    /// Checks of pinned tables that already held bytes in the previous description.
    pub pinned: Cell<u64>,
    /// Keys that were found.
    pub keys_found: Cell<u64>,
    /// Keys that no row has.
    pub keys_absent: Cell<u64>,
    /// Rows that were fetched for a key and have another one.
    pub rows_with_another_key: Cell<u64>,
    /// Merges of runs of key indexes.
    pub run_merges: Cell<u64>,
    /// Versions that were published while keys were looked up.
    pub versions_published: Cell<u64>,
    /// A description of the first violation.
    pub wrong: RefCell<Option<String>>,
}

impl Seen {
    /// Returns the number of requests refused because of overload.
    pub fn overloaded(&self) -> u64 {
        self.refusals.borrow().get(Reason::Overloaded.as_str()).copied().unwrap_or_default()
    }
}

/// The environment of clients, strangers and observers.
#[derive(Clone)]
pub struct Around {
    pub net: Net,
    /// The names of all nodes.
    pub names: Rc<[String]>,
    pub wishes: Rc<Wishes>,
    /// Whether nodes keep blocks of files that they have read from the store.
    pub store_keeps_blocks: bool,
    pub seen: Rc<Seen>,
    pub trace: Trace,
}

impl Around {
    /// Records a violation. Only the first is kept.
    pub fn wrong(&self, who: impl Display, what: impl Display) {
        let what = format!("{who} at {} ms: {what}", self.trace.now_ms());
        self.seen.wrong.borrow_mut().get_or_insert(what);
    }

    /// Counts a refusal. It is a violation unless a fault or overload explains it.
    pub fn refused(&self, who: impl Display, fault: &Fault) {
        *self.seen.refusals.borrow_mut().entry(fault.reason.as_str()).or_default() += 1;
        let may_be = match fault.reason {
            // A stream that finds no memory for a message ends. `World::calm` checks that a node shed batches or was
            // restarted in that case.
            Reason::NodeUnavailable if !self.wishes.is_rough.get() => {
                count(&self.seen.unavailable_in_calm, 1);
                true
            }
            Reason::NodeUnavailable => true,
            Reason::StoreUnreachable | Reason::TableDamaged | Reason::DeadlineExceeded => {
                self.wishes.is_rough.get()
            }
            // Overload is expected: there are many clients, and queues are short.
            Reason::Overloaded => true,
            _ => false,
        };
        if !may_be {
            self.wrong(who, format_args!("refused: {:?}: {fault}", fault.reason));
        }
    }
}

/// One client.
pub struct Client {
    number: usize,
    dice: Dice,
    nodes: Vec<FetchClient>,
    options: FetchOptions,
    around: Around,
}

/// One request.
struct Ask {
    version: &'static Version,
    columns: Vec<String>,
    addrs: Vec<RowAddr>,
    rerank: Option<(Vec<f32>, Metric, u32)>,
    context: FetchContext,
}

/// A request for sectors of a file.
struct SectorsAsk {
    file: &'static File,
    /// The file's size, or 0 if the client does not know it.
    bytes: u64,
    sectors: std::ops::Range<u32>,
    /// Whether to release the file's blocks first.
    is_released: bool,
}

/// Returns the size of an opened file, or 0 if the node does not say it.
fn size_in(file: &Projection) -> u64 {
    let size = file.schema().metadata().get("file_bytes");
    size.and_then(|size| size.parse().ok()).unwrap_or_default()
}

/// Adds `more` to a counter.
pub fn count(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

/// Returns the settings of a client, so small that runs reach its bounds.
pub fn options(dice: &mut Dice, around: &Around) -> FetchOptions {
    FetchOptions {
        streams: 1 + dice.below(2),
        queue_batches_max: [4, 64][dice.below(2)],
        projections_max: 2 + dice.below(6),
        stream_window_bytes: [65_535, 1 << 20][dice.below(2)],
        connection_window_bytes: 2 << 20,
        backoff_max: Duration::from_millis(500),
        jitter_seed: dice.any(),
        network: Network::Simulated(Arc::new(around.net.clone())),
        ..FetchOptions::default()
    }
}

/// Returns a client of the node with this name. Must be called within the clients' runtime.
pub fn dial(name: &str, options: &FetchOptions) -> FetchClient {
    let endpoint: Endpoint = format!("{name}:7071").parse().unwrap();
    FetchClient::new(endpoint, options.clone()).unwrap()
}

/// Checks that the clients of a run without faults hold nothing once their requests are answered or dropped.
pub async fn check_idle(nodes: &[FetchClient], around: &Around, who: impl Display) {
    let totals: Vec<_> = nodes.iter().map(FetchClient::counters).collect();
    let idle = |it: &Counters| it.waiting_batches == 0 && it.outstanding_rows == 0;
    around.trace.say(format_args!("{who} ends: {totals:?}"));
    // The credits of a dropped fetch are returned with its late answer.
    if !around.wishes.is_rough.get() && !totals.iter().all(idle) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let totals: Vec<_> = nodes.iter().map(FetchClient::counters).collect();
        if !totals.iter().all(idle) {
            around.wrong(who, format_args!("credits did not come back: {totals:?}"));
        }
    }
}

impl Client {
    /// Creates a client of all nodes. Must be called within the clients' runtime.
    pub fn new(seed: u64, number: usize, around: Around) -> Self {
        let mut dice = Dice::new(seed, &format!("client {number}"));
        let options = options(&mut dice, &around);
        let nodes = around.names.iter().map(|name| dial(name, &options)).collect();
        Self { number, dice, nodes, options, around }
    }

    /// Sends requests until [`Wishes::is_to_end`] is set.
    pub async fn run(mut self) {
        while !self.around.wishes.is_to_end.get() {
            let pause = self.dice.ms(0..=12);
            tokio::time::sleep(pause).await;
            if self.dice.per_mille(15) && self.around.wishes.is_rough.get() {
                let node = self.dice.below(self.nodes.len());
                self.around
                    .trace
                    .say(format_args!("client {} begins anew with {node}", self.number));
                self.nodes[node] = dial(&self.around.names[node], &self.options);
            }
            self.turn().await;
        }
        check_idle(&self.nodes, &self.around, format_args!("client {}", self.number)).await;
    }

    /// Sends a few concurrent fetches, or one fetch of a file's sectors, to one node.
    async fn turn(&mut self) {
        let node = self.dice.below(self.nodes.len());
        let client = self.nodes[node].clone();
        if self.dice.per_mille(100) {
            let ask = self.ask_for_sectors();
            return self.fetch_sectors(&client, node, ask).await;
        }
        let asks: Vec<_> = (0..1 + self.dice.below(3)).map(|_| self.ask()).collect();
        let patience = self.dice.per_mille(80).then(|| self.dice.ms(0..=40));
        let this = &*self;
        let fetches = asks.into_iter().map(|ask| this.fetch(&client, node, ask));
        let fetches = futures::future::join_all(fetches);
        match patience {
            None => drop(fetches.await),
            Some(patience) => {
                if tokio::time::timeout(patience, fetches).await.is_err() {
                    count(&self.around.seen.dropped, 1);
                }
            }
        }
    }

    fn ask(&mut self) -> Ask {
        let dice = &mut self.dice;
        let version = {
            let versions = &TABLES[[0, 0, 0, 0, 1, 1, 2][dice.below(7)]];
            dice.pick(versions)
        };
        let mut columns: Vec<String> =
            version.schema.fields().iter().map(|field| field.name().clone()).collect();
        for _ in 0..dice.below(columns.len()) {
            columns.swap_remove(dice.below(columns.len()));
        }
        let rows = match dice.below(20) {
            0 => 1 + dice.below(400),
            1..=9 => 1 + dice.below(8),
            _ => 1 + dice.below(60),
        };
        let hot = dice.per_mille(500);
        let addrs = (0..rows).map(|_| address(dice, version, hot)).collect();
        let is_scored = dice.per_mille(250) && version.schema.column_with_name("vector").is_some();
        let rerank = is_scored.then(|| {
            columns = vec!["vector".into()];
            let metric = [Metric::L2, Metric::Cosine, Metric::Dot][dice.below(3)];
            let k = 1 + dice.below(rows + 3) as u32;
            ((0..DIMENSION).map(|_| dice.unit()).collect(), metric, k)
        });
        let patience = match self.around.wishes.is_rough.get() && dice.per_mille(300) {
            true => dice.ms(1..=60),
            false => Duration::from_secs(60),
        };
        let priority = [Priority::Interactive, Priority::Batch][dice.below(2)];
        let flow = Flow::new(dice.in_range(0..=3), 1 + dice.below(3) as u32);
        let context =
            FetchContext { priority, flow, ..FetchContext::from(Instant::now() + patience) };
        Ask { version, columns, addrs, rerank, context }
    }

    async fn fetch(&self, client: &FetchClient, node: usize, ask: Ask) {
        let outcome = self.answer(client, &ask).await;
        let said = match &outcome {
            Ok((_, reply)) => format!("{} missing, {:?}", reply.missing.len(), reply.times()),
            Err(fault) => format!("{:?}: {fault}", fault.reason),
        };
        let (uri, version, rows) = (ask.version.uri, ask.version.version, ask.addrs.len());
        let number = self.number;
        self.around.trace.say(format_args!(
            "client {number}, node {node}: {rows} rows of {uri} {version}: {said}"
        ));
        match outcome {
            Ok((projection, reply)) => {
                count(&self.around.seen.answers, 1);
                count(&self.around.seen.rows, (rows - reply.missing.len()) as u64);
                count(&self.around.seen.table_rows, reply.times().table_rows.into());
                if let Err(why) = ask.check(&projection, reply) {
                    self.wrong(format_args!(
                        "{rows} rows of {uri} {version}, {:?}: {why}",
                        ask.columns
                    ));
                }
            }
            Err(fault) => self.around.refused(format_args!("client {}", self.number), &fault),
        }
    }

    fn ask_for_sectors(&mut self) -> SectorsAsk {
        let dice = &mut self.dice;
        let file = dice.pick(&FILES);
        let bytes = match dice.below(10) {
            0..=3 => 0,
            // The file may be overwritten by other bytes just now.
            4..=6 if self.around.wishes.is_rough.get() => file.content(true).bytes(),
            _ => file.bytes,
        };
        // A range of up to 150 sectors, which may extend beyond the file's end.
        let sectors = file.content(false).sectors() as usize;
        let first = dice.below(sectors) as u32;
        let count = [1, 2, 150][dice.below(3)];
        let sectors = first..first + 1 + dice.below(count) as u32;
        SectorsAsk { file, bytes, sectors, is_released: dice.per_mille(400) }
    }

    async fn fetch_sectors(&self, client: &FetchClient, node: usize, ask: SectorsAsk) {
        let SectorsAsk { file, bytes, sectors, is_released } = ask;
        let mut evicted = 0;
        if is_released {
            let (table_uri, path) = (file.table.to_owned(), file.path.to_owned());
            let release = ReleaseRequest { table_uri, file: path, file_bytes: file.bytes };
            match client.release(release, Duration::from_secs(60)).await {
                Ok(blocks) => evicted = blocks,
                Err(fault) => {
                    self.around.refused(format_args!("client {}, a release", self.number), &fault);
                }
            }
        }
        count(&self.around.seen.released, evicted);
        let deadline = Instant::now() + Duration::from_secs(60);
        let reply = async {
            let (uri, path) = (file.table, file.path);
            let opened = client.open_file(TableFile { uri, path, bytes }, deadline).await?;
            // Query nodes fetch sectors only of files whose size they know.
            let bytes = size_in(&opened);
            let opened = client.open_file(TableFile { uri, path, bytes }, deadline).await?;
            let addrs = sectors.clone().map(|sector| RowAddr::new(0, sector)).collect();
            let reply = client.fetch(&opened, addrs, None, deadline).await?;
            Ok::<_, Fault>((opened, reply))
        };
        let reply = reply.await;
        let said = reply.as_ref().map_or_else(ToString::to_string, |_| "answered".to_owned());
        self.around.trace.say(format_args!(
            "client {}, node {node}: sectors {sectors:?} of {}: {said}",
            self.number, file.path
        ));
        let (projection, reply) = match reply {
            Ok(reply) => reply,
            // A file that was overwritten since it was opened is refused for as long as a stream has it open.
            Err(fault) if fault.metadata.contains_key(OVERWRITTEN) => {
                self.around.seen.refusing.borrow_mut().insert((node, file.path));
                return count(&self.around.seen.overwritten_refused, 1);
            }
            Err(fault) => {
                return self.around.refused(format_args!("client {}", self.number), &fault);
            }
        };
        count(&self.around.seen.answers, 1);
        count(&self.around.seen.sectors, (sectors.len() - reply.missing.len()) as u64);
        if evicted > 0 && !self.around.store_keeps_blocks {
            count(&self.around.seen.released_read, reply.times().table_rows.into());
        }
        let size = size_in(&projection);
        let Some(content) = file.content_of(size).filter(|_| bytes == 0 || bytes == size) else {
            return self.wrong(format_args!("{} never had {size} bytes", file.path));
        };
        count(&self.around.seen.overwritten, u64::from(content.is_other));
        let is_back = self.around.seen.refusing.borrow_mut().remove(&(node, file.path));
        count(&self.around.seen.overwritten_answered, u64::from(is_back));
        let is_missing = |it: &(u32, u32)| it.1 >= content.sectors();
        let missing: Vec<u32> =
            (0..).zip(sectors.clone()).filter(is_missing).map(|it| it.0).collect();
        let truth: Vec<u8> =
            sectors.clone().filter_map(|it| content.sector(it)).flatten().collect();
        let is_missing = reply.missing == missing;
        let bytes = reply.into_rows().map(|rows| {
            let column = rows.column(0).as_any().downcast_ref::<FixedSizeBinaryArray>();
            column.is_some_and(|column| column.values().as_slice() == truth)
        });
        if !is_missing || bytes != Ok(true) {
            self.wrong(format_args!("sectors {sectors:?} of {} are not the truth", file.path));
        }
    }

    async fn answer(&self, client: &FetchClient, ask: &Ask) -> Result<(Projection, Reply), Fault> {
        let identity = format!("{} {}", ask.version.uri, ask.version.version);
        let table = TableVersion {
            uri: ask.version.uri,
            branch: "",
            version: ask.version.version,
            identity: &identity,
        };
        let projection = client.open(table, &ask.columns, ask.context.deadline).await?;
        let rerank = ask.rerank.as_ref();
        let rerank = rerank.map(|(query, metric, k)| Rerank::new(query, *metric, *k));
        let reply = client.fetch(&projection, ask.addrs.clone(), rerank, ask.context).await?;
        Ok((projection, reply))
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) {
        self.around.wrong(format_args!("client {}", self.number), what);
    }
}

/// Returns an address, mostly of an existing row. `hot` restricts it to the first rows of a fragment.
fn address(dice: &mut Dice, version: &Version, hot: bool) -> RowAddr {
    if dice.per_mille(20) {
        let nowhere: Vec<_> = nowhere().into_iter().collect();
        return RowAddr::from_u64(*dice.pick(&nowhere));
    }
    let info = dice.pick(&version.infos);
    let rows = if hot { info.physical_rows.min(100) } else { info.physical_rows };
    RowAddr::new(info.id, dice.below(rows as usize) as u32)
}

impl Ask {
    /// Compares a reply with the truth.
    fn check(&self, projection: &Projection, reply: Reply) -> Result<(), String> {
        let places = (0..).zip(&self.addrs);
        let missing: Vec<u32> =
            places.filter(|(_, addr)| !self.version.has(**addr)).map(|(at, _)| at).collect();
        if reply.missing != missing {
            return Err(format!("missing are {:?}, not {missing:?}", reply.missing));
        }
        let there: Vec<_> =
            self.addrs.iter().copied().filter(|&addr| self.version.has(addr)).collect();
        match (reply.outcome, &self.rerank) {
            (Outcome::Rows(rows), None) => {
                let truth = self.version.rows(&there, &self.columns);
                let truth =
                    RecordBatch::try_new(Arc::clone(projection.schema()), truth.columns().to_vec());
                match truth {
                    Ok(truth) if truth == rows => Ok(()),
                    Ok(_) => Err(format!("{} rows are not the truth", rows.num_rows())),
                    Err(error) => Err(format!("the schema is another: {error}")),
                }
            }
            (Outcome::Neighbors(near), Some((query, metric, k))) => {
                self.check_near(&there, &near, query, *metric, *k as usize)
            }
            _ => Err("rows for distances, or distances for rows".into()),
        }
    }

    fn check_near(
        &self,
        there: &[RowAddr],
        near: &[(RowAddr, f32)],
        query: &[f32],
        metric: Metric,
        k: usize,
    ) -> Result<(), String> {
        let distance = |addr: RowAddr| distance(query, &self.version.vector(addr), metric);
        let mut truth: Vec<_> = there.iter().map(|&addr| (distance(addr), addr)).collect();
        truth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        truth.truncate(k);
        if near.len() != truth.len() {
            return Err(format!("{} are near, not {}", near.len(), truth.len()));
        }
        for (&(addr, said), (right, _)) in near.iter().zip(&truth) {
            let tolerance = 1e-4 * right.abs().max(1.0);
            let own = distance(addr);
            if (f64::from(said) - right).abs() > tolerance || (own - right).abs() > tolerance {
                return Err(format!("{addr:?} is said to be {said} away, not {own} or {right}"));
            }
        }
        Ok(())
    }
}

/// Computes a distance in double precision, by its definition.
fn distance(query: &[f32], vector: &[f32], metric: Metric) -> f64 {
    let sum = |term: fn(f64, f64) -> f64| {
        let pairs = query.iter().zip(vector);
        pairs.map(|(&q, &x)| term(q.into(), x.into())).sum::<f64>()
    };
    match metric {
        Metric::L2 => sum(|q, x| (q - x) * (q - x)),
        Metric::Dot => 1.0 - sum(|q, x| q * x),
        Metric::Cosine => 1.0 - sum(|q, x| q * x) / (sum(|q, _| q * q) * sum(|_, x| x * x)).sqrt(),
    }
}

/// Asks a node to fill all extents of a version. Returns the number of extents that failed.
pub async fn warm(net: &Net, node: &str, version: &Version) -> Result<u64, Fault> {
    let network = Network::Simulated(Arc::new(net.clone()));
    let options = FetchOptions { streams: 1, network, jitter_seed: 0, ..FetchOptions::default() };
    let endpoint: Endpoint = format!("{node}:7071").parse().unwrap();
    let client = FetchClient::new(endpoint, options)?;
    let request = WarmRequest {
        table_uri: version.uri.to_owned(),
        version: version.version,
        ..WarmRequest::default()
    };
    let mut steps = client.warm(request).await?;
    let mut last = None;
    while let Some(step) = futures::StreamExt::next(&mut steps).await {
        last = Some(step?);
    }
    let last = last.ok_or_else(|| Fault::new(Reason::Internal, "Warm ended without a word"))?;
    match last.extents_done + last.extents_failed == last.extents_total {
        true => Ok(last.extents_failed),
        false => Err(Fault::new(Reason::Internal, "Warm ended early")),
    }
}
