//! Reply: sends the outcome of a request to its stream.

use tokio::time::Instant;
use wire::fetch::fetch_response::Kind;
use wire::fetch::reply::Outcome;
use wire::fetch::{Error, Neighbors, Passing, Reply};
use wire::{ArrowBatch, Fault, Reason};

use super::assemble::{Assembled, finish};
use super::replica::end_graces;
use super::requests::Request;
use super::timeline::BatchTimeline;
use super::{Core, trace};
use crate::error::fault_of;
use crate::shard::{HeldBytes, RequestNo, SessionNo};

/// Bytes that a batch or its reply takes in addition to rows: for structures, and the text of a fault.
pub const BATCH_BYTES: u64 = 1 << 10;

/// Bytes that a row takes in a reply in addition to its columns: for an index among the missing rows, an address and a
/// distance.
const ROW_BYTES: u64 = 16;

/// Bytes of a neighbour: an address and a distance.
const NEIGHBOR_BYTES: usize = 12;

/// Answers a request whose rows have all arrived.
pub(super) fn reply(core: &Core, no: RequestNo) {
    let Some(mut request) = end(core, no) else { return };
    let began = Instant::now();
    let from_table = request.rows_from_table();
    let outcome = outcome(&mut request);
    if let Ok(outcome) = &outcome {
        count(core, &request, from_table, outcome);
    }
    let timeline = BatchTimeline::new(&request.times, began, Instant::now());
    timeline.record(&core.histograms);
    let exported = trace::answered(core, &request, &timeline, outcome.as_ref().err());
    let reply = Reply {
        id: request.batch_id,
        outcome: Some(outcome.unwrap_or_else(|fault| Outcome::Error(fault.into()))),
        missing: std::mem::take(&mut request.missing),
        times: Some(timeline.to_wire(&request.times, exported)),
    };
    let rows = request.addrs.len();
    let own = shrunk(std::mem::take(&mut request.held), BATCH_BYTES + rows as u64 * ROW_BYTES);
    let held = own.and(request.reply_held.take().unwrap_or_default());
    send(core, request.session, rows, reply, Some(held));
}

/// Counts a batch that is served. `from_table` of its rows were read from the table.
fn count(core: &Core, request: &Request, from_table: usize, outcome: &Outcome) {
    let (served, read) = match request.projection.table.file() {
        None => (&core.stats.rows, &core.stats.table_rows),
        Some(_) => (&core.stats.file_sectors, &core.stats.stored_sectors),
    };
    served.add(request.rows() as u64);
    read.add(from_table as u64);
    core.stats.batches.add(1);
    if let Some(line) = &request.projection.audit {
        let (rows, bytes) = size(outcome, request.rows());
        line.add(rows, bytes);
    }
}

/// Ends a request with a fault.
pub fn fail(core: &Core, no: RequestNo, fault: Fault) {
    let Some(mut request) = end(core, no) else { return };
    trace::failed(core, &request, &fault);
    let (id, rows) = (request.batch_id, request.addrs.len());
    let held = std::mem::take(&mut request.held);
    refuse(core, request.session, id, rows, fault, Some(held));
}

/// Answers a batch that has no request, or whose request has ended, with a fault. The reply keeps as much of the
/// batch's memory as it needs.
pub fn refuse(
    core: &Core,
    session: SessionNo,
    id: u64,
    rows: usize,
    fault: Fault,
    held: Option<HeldBytes>,
) {
    let outcome = Some(Outcome::Error(Error::from(fault)));
    let held = held.map(|held| shrunk(held, BATCH_BYTES));
    send(core, session, rows, Reply { id, outcome, missing: Vec::new(), times: None }, held);
}

/// Releases the memory beyond `bytes_max`.
fn shrunk(mut held: HeldBytes, bytes_max: u64) -> HeldBytes {
    held.shrink(held.bytes().saturating_sub(bytes_max));
    held
}

/// Ends the requests of a closed stream. They get no replies.
pub fn abandon(core: &Core, session: SessionNo) {
    let dropped = core.requests.borrow_mut().drop_session(session);
    core.stats.dropped.add(dropped as u64);
    end_graces(core);
}

fn outcome(request: &mut Request) -> Result<Outcome, Fault> {
    match finish(request).map_err(|error| fault_of(&error))? {
        Assembled::Columns(columns) => {
            let batch = ArrowBatch::from_columns(request.rows(), &columns);
            let batch = batch.map_err(|e| Fault::new(Reason::Internal, e.to_string()))?;
            if batch.bytes() > wire::MESSAGE_BYTES_MAX / 4 * 3 {
                let what = "the reply is larger than a message may be: ask for fewer rows a batch";
                return Err(Fault::new(Reason::TooLarge, what));
            }
            Ok(Outcome::Rows(batch))
        }
        Assembled::Nearest(nearest) => Ok(Outcome::Neighbors(Neighbors {
            row_addrs: nearest.iter().map(|&(position, _)| request.addr(position)).collect(),
            distances: nearest.iter().map(|&(_, distance)| distance).collect(),
        })),
        Assembled::Passing(mut rows) => {
            // The columns are not sent.
            request.reply_held = None;
            if let Some(present) = &request.present {
                rows.iter_mut().for_each(|row| *row = present[*row as usize]);
            }
            Ok(Outcome::Passing(Passing { rows }))
        }
    }
}

/// Returns the number of rows that are sent, and their size in bytes. The batch asked for `rows` rows that exist.
fn size(outcome: &Outcome, rows: usize) -> (usize, usize) {
    match outcome {
        Outcome::Rows(batch) => (rows, batch.bytes()),
        Outcome::Neighbors(near) => (near.row_addrs.len(), near.row_addrs.len() * NEIGHBOR_BYTES),
        Outcome::Passing(passing) => (passing.rows.len(), passing.rows.len() * size_of::<u32>()),
        Outcome::Error(_) => (0, 0),
    }
}

fn end(core: &Core, no: RequestNo) -> Option<Box<Request>> {
    let request = core.requests.borrow_mut().remove(no);
    end_graces(core);
    request
}

/// Returns the credits that a batch takes and its reply returns. An empty batch, which is always refused, takes one
/// too, so that credits also bound the number of empty batches.
pub fn credits_for(rows: usize) -> u32 {
    u32::try_from(rows.max(1)).unwrap_or(u32::MAX)
}

/// Sends a reply. The batch's credits are returned when the reply is handed to the connection.
fn send(core: &Core, session: SessionNo, rows: usize, reply: Reply, held: Option<HeldBytes>) {
    core.activity.add();
    if let Some(session) = core.sessions.borrow_mut().get_mut(session) {
        session.batches.remove(&reply.id);
        session.send(Kind::Reply(reply), credits_for(rows), held);
    }
}
