//! Batches under way on a core.

use std::collections::BTreeSet;
use std::sync::Arc;

use pack::Assembler;
use tokio::time::Instant;
use wire::ParentSpan;

use super::{HeldBytes, SessionNo};
use crate::directory::ExtentNo;
use crate::stages::decode::RerankBy;
use crate::stages::read::Priority;
use crate::stages::rerank::Scorer;
use crate::table::Projection;

/// Names a batch under way. A number is never given out twice, so a piece that outlives its
/// request finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNo {
    place: u32,
    serial: u64,
}

impl RequestNo {
    /// Which request of its core it is, in the order in which they began.
    pub fn serial(self) -> u64 {
        self.serial
    }
}

/// Where a row of a part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// A row of an extent on a drive.
    Extent(ExtentNo, u32),
    /// The table itself; a row of the part's image, once that has come.
    Table(u32),
}

/// What is made of the rows.
pub enum Gather {
    /// Columns, by part.
    Rows(Vec<Assembler>),
    /// Distances.
    Score(Scorer),
}

/// A batch under way.
pub struct Request {
    /// The stream it came over.
    pub session: SessionNo,
    /// The client's name for it.
    pub batch_id: u64,
    /// What is asked for.
    pub projection: Arc<Projection>,
    /// The rows asked for; credits come back for all of them.
    pub addrs: Vec<u64>,
    /// Places in `addrs` of the rows that exist, when not all of them do: position to place.
    pub present: Option<Vec<u32>>,
    /// Places in `addrs` of those that don't.
    pub missing: Vec<u32>,
    /// What to score the rows by, if they are not to be sent.
    pub rerank: Option<RerankBy>,
    /// Which of the pieces that wait go first.
    pub priority: Priority,
    /// The caller's span, if it traces.
    pub span: Option<ParentSpan>,
    /// When the answer is of no use any more.
    pub deadline: Instant,
    /// Where each row comes from, by part and position.
    pub sources: Vec<Vec<RowSource>>,
    /// Rows from the table, by part, in the order of their `RowSource::Table` numbers.
    pub images: Vec<Option<pack::Extent>>,
    /// Positions that drives have failed to deliver, by part: they come from the table.
    pub refused: Vec<BTreeSet<u32>>,
    /// The rows as far as they have come; `None` until all sources are known.
    pub gather: Option<Gather>,
    /// The memory that the batch itself holds, and then its reply.
    pub held: HeldBytes,
    /// The memory that its rows from the table hold.
    pub images_held: HeldBytes,
    /// The memory that its reply holds.
    pub reply_held: Option<HeldBytes>,
    /// Pieces that have not come yet.
    pub pieces_left: u32,
    /// Images that have not come yet.
    pub images_left: u32,
    /// Where the time went.
    pub times: RequestTimes,
}

/// Where a request's time went, and what it cost.
#[derive(Clone, Debug)]
pub struct RequestTimes {
    /// When it arrived.
    pub arrived: Instant,
    /// When its rows were located, and its pieces began to wait.
    pub located: Option<Instant>,
    /// When its first read was asked of a drive.
    pub reading: Option<Instant>,
    /// Physical reads that it caused.
    pub drive_reads: u32,
    /// Bytes of those.
    pub drive_bytes: u64,
    /// Sectors found in RAM.
    pub ram_hits: u32,
    /// Rows from the table.
    pub table_rows: u32,
}

impl RequestTimes {
    /// The clock starts.
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
    /// Bytes that it holds of the core's memory for traffic.
    pub fn held_bytes(&self) -> u64 {
        let reply = self.reply_held.as_ref().map_or(0, HeldBytes::bytes);
        self.held.bytes() + self.images_held.bytes() + reply
    }

    /// How many rows exist, and so are answered.
    pub fn rows(&self) -> usize {
        self.present.as_ref().map_or(self.addrs.len(), Vec::len)
    }

    /// The address of the row at `position`.
    pub fn addr(&self, position: usize) -> u64 {
        match &self.present {
            Some(present) => self.addrs[present[position] as usize],
            None => self.addrs[position],
        }
    }
}

/// The batches under way, by place.
#[derive(Default)]
pub struct Requests {
    places: Vec<Option<(u64, Box<Request>)>>,
    free: Vec<u32>,
    under_way: BTreeSet<u64>,
    next_serial: u64,
}

impl Requests {
    /// Adds a request.
    pub fn add(&mut self, request: Request) -> RequestNo {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.under_way.insert(serial);
        let entry = Some((serial, Box::new(request)));
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = entry;
                place
            }
            None => {
                self.places.push(entry);
                self.places.len() as u32 - 1
            }
        };
        RequestNo { place, serial }
    }

    /// The request, if it is still under way.
    pub fn get_mut(&mut self, no: RequestNo) -> Option<&mut Request> {
        match self.places.get_mut(no.place as usize)? {
            Some((serial, request)) if *serial == no.serial => Some(request),
            _ => None,
        }
    }

    /// Ends a request.
    pub fn remove(&mut self, no: RequestNo) -> Option<Box<Request>> {
        self.get_mut(no)?;
        self.under_way.remove(&no.serial);
        self.free.push(no.place);
        self.places[no.place as usize].take().map(|(_, request)| request)
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// The serial number of the oldest request under way; of the next one if there is none.
    pub fn oldest(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next_serial)
    }

    /// The serial number that the next request gets.
    pub fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// Ends the requests of a stream that is gone; how many.
    pub fn drop_session(&mut self, session: SessionNo) -> usize {
        let of_session = |(place, entry): (usize, &Option<(u64, Box<Request>)>)| {
            let (serial, request) = entry.as_ref()?;
            let no = RequestNo { place: place as u32, serial: *serial };
            (request.session == session).then_some(no)
        };
        let gone: Vec<_> = self.places.iter().enumerate().filter_map(of_session).collect();
        gone.iter().for_each(|&no| drop(self.remove(no)));
        gone.len()
    }
}
