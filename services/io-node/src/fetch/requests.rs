//! Batches under way on a core.
//!
//! A *part* is the columns that a batch requests from one pack of the table. A row's *position* is its index among the
//! requested rows that exist.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pack::Assembler;
use predicate::Evaluator;
use scheduler::{Flow, Priority};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use wire::ParentSpan;

use super::rerank::{RerankBy, Scorer};
use crate::extent::ExtentNo;
use crate::shard::{HeldBytes, RequestNo, SessionNo};
use crate::table::Projection;

/// The source of one part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// A row of an extent on a drive.
    Extent(ExtentNo, u32),
    /// The table itself: a row of the part's image, once that has arrived. An image holds the part's rows that were
    /// read from the table, encoded as an extent.
    Table(u32),
}

/// The destination of a batch's rows as they arrive.
pub enum Gather {
    /// The rows are put into columns, by part.
    Rows(Vec<Assembler>),
    /// The rows are scored, and only their distances are kept.
    Score(Scorer),
}

/// A batch under way.
pub struct Request {
    /// The stream over which the batch arrived.
    pub session: SessionNo,
    /// The client's id of the batch.
    pub batch_id: u64,
    /// The requested columns.
    pub projection: Arc<Projection>,
    /// The requested rows. Credits are returned for all of them.
    pub addrs: Vec<u64>,
    /// For each position, the row's index in `addrs`. `None` if all requested rows exist.
    pub present: Option<Vec<u32>>,
    /// Indexes in `addrs` of rows that do not exist.
    pub missing: Vec<u32>,
    /// The query to score the rows by, if distances are requested instead of rows.
    pub rerank: Option<RerankBy>,
    /// The predicate to evaluate for the rows, if the caller asks which of them pass.
    pub predicate: Option<Evaluator>,
    /// The priority of the batch's waiting pieces.
    pub priority: Priority,
    /// The flow that the batch belongs to.
    pub flow: Flow,
    /// The caller's span, if the call is traced.
    pub span: Option<ParentSpan>,
    /// The batch's deadline. Pieces that still wait then are not read.
    pub deadline: Instant,
    /// The source of each row, by part and position.
    pub sources: Vec<Vec<RowSource>>,
    /// The images that have arrived, by part. The rows of each are in the order of their `RowSource::Table` numbers.
    pub images: Vec<Option<pack::Extent>>,
    /// Positions of the rows that drives failed to deliver, by part. These rows are read from the table.
    pub undelivered: Vec<BTreeSet<u32>>,
    /// The rows that have arrived so far; `None` until the images that the request waits for have arrived.
    pub gather: Option<Gather>,
    /// The memory that the batch itself holds. It passes to the reply.
    pub held: HeldBytes,
    /// The memory that the batch's rows from the table hold.
    pub images_held: HeldBytes,
    /// The memory that the batch's reply holds.
    pub reply_held: Option<HeldBytes>,
    /// The bytes of the reply, as counted in [`Requests::reply_bytes_of`] for the batch's flow.
    pub reply_bytes: u64,
    /// The number of pieces that have not arrived yet.
    pub pieces_left: u32,
    /// The number of requested images that have not arrived yet.
    pub images_left: u32,
    /// Stop the reads of the table that go on when the request ends, because it was cancelled or has failed.
    pub table_reads: Vec<DropGuard>,
    /// Durations and costs.
    pub times: RequestTimes,
}

/// The times at which a request's stages began, and the costs of the request.
#[derive(Clone, Debug)]
pub struct RequestTimes {
    /// The time at which the request arrived.
    pub arrived: Instant,
    /// The time at which the request's pieces began to wait. By then, all rows were located, and those from the table
    /// had arrived.
    pub located: Option<Instant>,
    /// The time at which the first of the `drive_reads` was submitted to a drive.
    pub reading: Option<Instant>,
    /// The number of physical reads that the request caused. A read that several requests share counts for only one of
    /// them: the one whose piece begins first on the drive.
    pub drive_reads: u32,
    /// The bytes of the physical reads that the request caused.
    pub drive_bytes: u64,
    /// The number of sectors found in RAM.
    pub ram_hits: u32,
    /// The number of rows requested from the table, once per part.
    pub table_rows: u32,
}

impl RequestTimes {
    /// Creates the times of a request that arrived at `arrived`.
    pub fn new(arrived: Instant) -> Self {
        let (located, reading) = (None, None);
        Self {
            arrived,
            located,
            reading,
            drive_reads: 0,
            drive_bytes: 0,
            ram_hits: 0,
            table_rows: 0,
        }
    }
}

impl Request {
    /// Returns the bytes of the core's traffic memory that the request holds.
    pub fn held_bytes(&self) -> u64 {
        let reply = self.reply_held.as_ref().map_or(0, HeldBytes::bytes);
        self.held.bytes() + self.images_held.bytes() + reply
    }

    /// Returns the number of rows that exist, and so are answered.
    pub fn rows(&self) -> usize {
        self.present.as_ref().map_or(self.addrs.len(), Vec::len)
    }

    /// Returns the number of rows of which at least one part came from the table.
    pub fn rows_from_table(&self) -> usize {
        let is_table = |source: &RowSource| matches!(source, RowSource::Table(_));
        match self.sources.as_slice() {
            _ if self.images.iter().all(Option::is_none) => 0,
            [sources] => sources.iter().filter(|source| is_table(source)).count(),
            parts => {
                let is_from_table =
                    |row: &usize| parts.iter().any(|sources| is_table(&sources[*row]));
                (0..self.rows()).filter(is_from_table).count()
            }
        }
    }

    /// Returns the address of the row at `position`.
    pub fn addr(&self, position: usize) -> u64 {
        match &self.present {
            Some(present) => self.addrs[present[position] as usize],
            None => self.addrs[position],
        }
    }
}

/// The batches under way.
#[derive(Default)]
pub struct Requests {
    /// The requests by [`RequestNo::index`], each with its serial number. `None` if the entry is free.
    entries: Vec<Option<(u64, Box<Request>)>>,
    /// Indexes in `entries` that are free.
    free: Vec<u32>,
    /// The serial numbers of all requests under way.
    under_way: BTreeSet<u64>,
    next_serial: u64,
    /// The bytes of the replies to requests under way, by the id of the flow. Flows without such replies have no entry.
    reply_bytes: HashMap<u64, u64>,
}

impl Requests {
    /// Adds a request.
    pub fn add(&mut self, request: Request) -> RequestNo {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.under_way.insert(serial);
        let entry = Some((serial, Box::new(request)));
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        RequestNo { index, serial }
    }

    /// Returns the request if it is still under way.
    #[inline]
    pub fn get_mut(&mut self, no: RequestNo) -> Option<&mut Request> {
        match self.entries.get_mut(no.index as usize)? {
            Some((serial, request)) if *serial == no.serial => Some(request),
            _ => None,
        }
    }

    /// Returns the bytes of the replies to a flow's requests under way.
    pub fn reply_bytes_of(&self, flow: Flow) -> u64 {
        self.reply_bytes.get(&flow.id()).copied().unwrap_or_default()
    }

    /// Sets the bytes of the reply to a request, and updates the sum of its flow.
    pub fn set_reply_bytes(&mut self, no: RequestNo, bytes: u64) {
        let Some(request) = self.get_mut(no) else { return };
        let (flow, before) = (request.flow, std::mem::replace(&mut request.reply_bytes, bytes));
        let of_flow = self.reply_bytes_of(flow) + bytes - before;
        match of_flow {
            0 => self.reply_bytes.remove(&flow.id()),
            of_flow => self.reply_bytes.insert(flow.id(), of_flow),
        };
    }

    /// Removes a request that has ended.
    pub fn remove(&mut self, no: RequestNo) -> Option<Box<Request>> {
        self.get_mut(no)?;
        self.set_reply_bytes(no, 0);
        self.under_way.remove(&no.serial);
        self.free.push(no.index);
        self.entries[no.index as usize].take().map(|(_, request)| request)
    }

    /// Returns the number of requests under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Returns the serial number of the oldest request under way, or the next serial number if there is none.
    pub fn oldest(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next_serial)
    }

    /// Returns the serial number of the next request.
    pub fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// Removes all requests of a closed stream. Returns their number.
    pub fn drop_session(&mut self, session: SessionNo) -> usize {
        let of_session = |(index, entry): (usize, &Option<(u64, Box<Request>)>)| {
            let (serial, request) = entry.as_ref()?;
            let no = RequestNo { index: index as u32, serial: *serial };
            (request.session == session).then_some(no)
        };
        let gone: Vec<_> = self.entries.iter().enumerate().filter_map(of_session).collect();
        gone.iter().for_each(|&no| drop(self.remove(no)));
        gone.len()
    }
}
