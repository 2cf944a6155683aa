//! A Fetch stream: its credits, projections and batches.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use connections::Connection;
use futures::FutureExt;
use tables::{FILE_COLUMN, TableUri};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use traffic::{Arriving, memory_full};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::{Batch, FetchRequest, Open, Opened, PredicateStep, Retire, Welcome};
use wire::{Fault, Reason, schema_to_bytes};

use super::reply_body::ReplyBody;
use crate::audit_line::{AuditLine, AuditedCall};
use crate::error::fault_of;
use crate::fetch::{
    Arrived, Core, NodeState, Outgoing, ProjectionHandle, Session, fetch, here, reply,
};
use crate::shard::mailbox::{Message, Opening};
use crate::shard::{HeldBytes, SessionNo};
use crate::table::{OpenTable, Projection, Registry, label};

/// The revision of the protocol within v1. Revision 2 has predicates.
const REVISION: u32 = 2;

/// Bytes that a row of a batch holds from its arrival to its reply: for its address, and for one source and one waiting
/// piece. The sources of further parts, and the further pieces of wide rows, are not counted.
const BATCH_ROW_BYTES: u64 = 64;

/// The bytes that are counted for the answer to an Open until its last byte has been sent. The bytes of a schema are
/// counted in addition. A fault is shortened to fit (`brief`).
const OPENED_BYTES: u64 = 1 << 10;

/// The maximum length, in bytes, of the message in the fault of a projection that failed to open. This fault answers
/// each batch of the projection.
const FAULT_BYTES_MAX: usize = 512;
/// The maximum length, in bytes, of a metadata value in such a fault. Longer values are left out.
const VALUE_BYTES_MAX: usize = 256;

/// Opens a stream on this core. Returns the body of its response. `audit` has the audit log's line for the stream's
/// first projection, or for the stream itself if it opens none.
pub fn begin(
    node: &NodeState,
    asked: Streaming<FetchRequest>,
    arriving: Arriving,
    connection: &Connection,
    audit: Option<(AuditedCall, AuditLine)>,
    stopping: CancellationToken,
) -> ReplyBody {
    let (replies, answers) = mpsc::unbounded_channel();
    let config = &node.config;
    let welcome = Welcome {
        credit_rows: config.credit_rows,
        batch_rows_max: config.batch_rows_max,
        node: config.name.clone(),
        revision: REVISION,
    };
    let _ = replies.send(Outgoing::new(Answer::Welcome(welcome), 0, None));
    let session = Session::new(replies, config.credit_rows, Arc::clone(connection.holder()));
    let core = here();
    let no = core.sessions.borrow_mut().add(session);
    // Carries the status that ends the response if the stream fails, for example because the client violates the
    // protocol.
    let (ending, ended) = mpsc::channel(1);
    let messages = Messages { asked, arriving, lines: audit.map(ProjectionLines::new) };
    tokio::spawn(listen(no, messages, ending, [stopping, connection.retires()]));
    ReplyBody::new(no, answers, ended)
}

/// Handles the client's messages until the client closes the stream, the stream fails or the node stops. Then removes
/// everything that belongs to the stream.
async fn listen(
    no: SessionNo,
    mut messages: Messages,
    ending: mpsc::Sender<Status>,
    [stopping, retires]: [CancellationToken; 2],
) {
    // This ends the stream even after a panic. If requests were left behind, entries of the directory could never be
    // vacated.
    let _end = End(no);
    let mut is_retired = false;
    let outcome = loop {
        let message = tokio::select! {
            biased;
            () = stopping.cancelled() => break Ok(()),
            () = retires.cancelled(), if !is_retired => {
                is_retired = true;
                with_session(&here(), no, |session| {
                    session.send(Answer::Retire(Retire {}), 0, None)
                });
                continue;
            }
            message = messages.next() => message,
        };
        match message {
            Ok(Some((request, line))) => {
                drop(messages.arriving.take());
                let obeyed = handle_request(&here(), no, request.kind, line);
                if let Err(fault) = obeyed {
                    break Err(Status::from(fault));
                }
            }
            Ok(None) => break Ok(()),
            // If the client is gone, nobody reads the status.
            Err(status) => break Err(status),
        }
    };
    match outcome {
        Ok(()) => finish(no).await,
        Err(status) => drop(ending.send(status).await),
    }
}

/// The messages of a stream's client.
struct Messages {
    asked: Streaming<FetchRequest>,
    arriving: Arriving,
    /// `None` without an audit log.
    lines: Option<ProjectionLines>,
}

/// The lines of a stream's projections in the audit log.
struct ProjectionLines {
    call: AuditedCall,
    /// The line of the first projection, until that projection is opened.
    first: Option<AuditLine>,
    /// A message that was received, and waits until the audit log has room for its line.
    waiting: Option<FetchRequest>,
}

impl ProjectionLines {
    fn new((call, mut first): (AuditedCall, AuditLine)) -> Self {
        first.ends(Ok(()));
        Self { call, first: Some(first), waiting: None }
    }
}

impl Messages {
    /// Returns the next message, and the line of the projection that it opens, if it opens one. Waits until the audit
    /// log has room for the line. Cancel-safe.
    async fn next(&mut self) -> Result<Option<(FetchRequest, Option<AuditLine>)>, Status> {
        let Some(lines) = &mut self.lines else {
            return Ok(self.asked.message().await?.map(|request| (request, None)));
        };
        if lines.waiting.is_none() {
            lines.waiting = self.asked.message().await?;
        }
        let opens = |request: &FetchRequest| matches!(request.kind, Some(Asked::Open(_)));
        let line = match &lines.waiting {
            Some(request) if opens(request) => match lines.first.take() {
                Some(first) => Some(first),
                None => Some(lines.call.line().await),
            },
            _ => None,
        };
        Ok(lines.waiting.take().map(|request| (request, line)))
    }
}

/// Ends a stream when dropped.
struct End(SessionNo);

impl Drop for End {
    fn drop(&mut self) {
        let core = here();
        core.sessions.borrow_mut().remove(self.0);
        reply::abandon(&core, self.0);
    }
}

/// Waits until every batch and every Open of a stream is answered, or the client is gone.
async fn finish(no: SessionNo) {
    while let Some(replies) = unfinished(no) {
        tokio::select! {
            biased;
            () = replies.closed() => return,
            () = tokio::time::sleep(FINISH_POLL) => {}
        }
    }
}

/// Returns the sender of a stream's replies, or `None` if the stream has no batches or openings under way.
fn unfinished(no: SessionNo) -> Option<mpsc::UnboundedSender<Outgoing>> {
    let core = here();
    let mut sessions = core.sessions.borrow_mut();
    sessions.get_mut(no).filter(|session| session.is_busy()).map(|s| s.replies.clone())
}

/// The interval at which a closing stream checks whether its last batches are answered. The end of the stream comes at
/// most this much later.
const FINISH_POLL: std::time::Duration = std::time::Duration::from_millis(2);

/// Handles one message of the client. An error ends the stream.
fn handle_request(
    core: &Core,
    no: SessionNo,
    kind: Option<Asked>,
    line: Option<AuditLine>,
) -> Result<(), Fault> {
    match kind {
        Some(Asked::Open(open)) => begin_open(core, no, open, line),
        Some(Asked::Batches(batches)) => {
            batches.batches.into_iter().try_for_each(|batch| take_batch(core, no, batch))
        }
        Some(Asked::Close(close)) => {
            let waiting = with_session(core, no, |session| session.close(close.handle));
            let closed = Fault::new(Reason::BadProtocol, "its projection was closed");
            for Arrived { batch, held, .. } in waiting.unwrap_or_default() {
                let rows = batch.row_addrs.len();
                reply::refuse(core, no, batch.id, rows, closed.clone(), Some(held));
            }
            Ok(())
        }
        Some(Asked::Cancel(cancel)) => {
            cancel_batch(core, no, cancel.id);
            Ok(())
        }
        None => Err(Fault::new(Reason::BadProtocol, "a message of an unknown kind")),
    }
}

fn cancel_batch(core: &Core, no: SessionNo, id: u64) {
    let cancelled = Fault::new(Reason::Cancelled, "the caller cancelled the batch");
    let request = with_session(core, no, |session| session.batches.get(&id).copied()).flatten();
    if let Some(request) = request {
        core.stats.dropped.add(1);
        reply::fail(core, request, cancelled);
    } else if let Some(Arrived { batch, held, .. }) =
        with_session(core, no, |session| session.stop_waiting(id)).flatten()
    {
        core.stats.dropped.add(1);
        reply::refuse(core, no, id, batch.row_addrs.len(), cancelled, Some(held));
    }
}

fn with_session<T>(core: &Core, no: SessionNo, work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    core.sessions.borrow_mut().get_mut(no).map(work)
}

/// Deducts a batch's credits and starts it, or queues it until its projection is open.
fn take_batch(core: &Core, no: SessionNo, mut batch: Batch) -> Result<(), Fault> {
    let (id, rows, at) = (batch.id, batch.row_addrs.len(), Instant::now());
    let held = core.traffic_memory.hold(batch_bytes(&batch), 0);
    let ready = {
        let mut sessions = core.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(no) else { return Ok(()) };
        let credit = session.credit_rows.checked_sub(reply::credits_for(rows));
        let Some(credit) = credit else {
            let have = session.credit_rows;
            let what = format!("a batch of {rows} rows over the {have} that credits are left for");
            return Err(Fault::new(Reason::BadProtocol, what));
        };
        if session.batches.contains_key(&id) || session.waits(id) {
            let what = format!("batch {id} is outstanding already; give each an id of its own");
            return Err(Fault::new(Reason::BadProtocol, what));
        }
        session.credit_rows = credit;
        core.stats.received.add(1);
        let Some(held) = held else {
            let is_last = session.reads_too_slowly();
            drop(sessions);
            core.stats.shed.add(1);
            let fault = memory_full();
            let held = core.traffic_memory.hold(reply::BATCH_BYTES, 0);
            if held.is_none() && is_last {
                return Err(fault);
            }
            reply::refuse(core, no, id, rows, fault, held);
            return Ok(());
        };
        match session.handle_mut(batch.handle) {
            Some(ProjectionHandle::Opening { waiting, .. }) => {
                if let Some(rerank) = &mut batch.rerank {
                    // The vector is a slice of the received message, and would keep the whole message in memory.
                    rerank.vector = Bytes::copy_from_slice(&rerank.vector);
                }
                if let Some(predicate) = &mut batch.predicate {
                    let values = predicate.steps.iter_mut().flat_map(|step| &mut step.values);
                    values.for_each(|value| *value = Bytes::copy_from_slice(value));
                }
                waiting.push(Arrived { batch, held, at });
                return Ok(());
            }
            Some(ProjectionHandle::Open { projection, .. }) => {
                Ok((Arc::clone(projection), Arrived { batch, held, at }))
            }
            Some(ProjectionHandle::Failed { fault, .. }) => Err((fault.clone(), held)),
            None => {
                let what = format!("handle {} is not open on this stream", batch.handle);
                Err((Fault::new(Reason::BadProtocol, what), held))
            }
        }
    };
    match ready {
        Ok((projection, arrived)) => fetch(core, no, projection, arrived),
        Err((fault, held)) => reply::refuse(core, no, id, rows, fault, Some(held)),
    }
    Ok(())
}

/// Returns the bytes that a batch holds from its arrival to its reply.
fn batch_bytes(batch: &Batch) -> u64 {
    let vector = batch.rerank.as_ref().map_or(0, |rerank| rerank.vector.len());
    let steps = batch.predicate.as_ref().map_or(&[][..], |predicate| &predicate.steps);
    let values = |step: &PredicateStep| -> usize {
        step.values.iter().map(|value| size_of::<Bytes>() + value.len()).sum()
    };
    let predicate: usize = steps.iter().map(|step| size_of::<PredicateStep>() + values(step)).sum();
    let rows = batch.row_addrs.len() as u64 * BATCH_ROW_BYTES;
    reply::BATCH_BYTES + rows + (vector + predicate + batch.traceparent.len()) as u64
}

/// Opens a projection in the background. The outcome arrives in the core's mailbox.
fn begin_open(
    core: &Core,
    no: SessionNo,
    open: Open,
    mut line: Option<AuditLine>,
) -> Result<(), Fault> {
    if let Some(line) = &mut line {
        let uri = TableUri::of_wire(&open.table_uri);
        line.names_table(uri.map(|uri| label(&uri)), &open.branch, open.version);
    }
    let begun = open_in_background(core, no, open, &mut line);
    if let (Err(fault), Some(line)) = (&begun, &mut line) {
        line.ends(Err(fault));
    }
    begun
}

/// Starts to open a projection in the background. Takes `line` only if the opening has started; otherwise the caller
/// keeps it.
fn open_in_background(
    core: &Core,
    no: SessionNo,
    open: Open,
    line: &mut Option<AuditLine>,
) -> Result<(), Fault> {
    let Some(opening) = with_session(core, no, |session| session.open(open.handle)) else {
        return Ok(());
    };
    let serial = opening?;
    let memory = &core.projection_memory;
    let names = [&*open.table_uri, &*open.branch, &*open.identity, &*open.file];
    let held = memory.hold(&open.columns, &names);
    let (Some(held), Some(under_way), Some(answer_held)) =
        (held, memory.hold_opening(), core.traffic_memory.hold(OPENED_BYTES, 0))
    else {
        let what = "there is no memory left for another projection; close some, read your answers, or try again later";
        let fault = Fault::new(Reason::Overloaded, what);
        line.iter_mut().for_each(|line| line.ends(Err(&fault)));
        return refuse_open(core, no, open.handle, fault);
    };
    let tables = core.node.tables.clone();
    let mailbox = core.node.mailboxes[core.number].clone();
    let line = line.take();
    core.node.background.spawn(async move {
        let projection = AssertUnwindSafe(project(&tables, &open)).catch_unwind().await;
        let panicked = |_| Err(Fault::new(Reason::Internal, "opening the table panicked"));
        let projection = audited(projection.unwrap_or_else(panicked), line).map(Arc::new);
        // Sending fails if the core has stopped.
        let opening = Opening { projection, held, answer_held };
        let _ = mailbox.send(Message::Opened { session: no, handle: open.handle, serial, opening });
        drop(under_way);
    });
    Ok(())
}

/// Refuses an Open for which there is no memory. The handle is closed, because a failed one holds memory too. An error
/// ends the stream: the client leaves too many answers unread.
fn refuse_open(core: &Core, no: SessionNo, handle: u32, fault: Fault) -> Result<(), Fault> {
    core.stats.shed.add(1);
    let held = core.traffic_memory.hold(OPENED_BYTES, 0);
    let refused = with_session(core, no, |session| {
        session.cancel_open(handle);
        if held.is_none() && session.reads_too_slowly() {
            return Err(fault);
        }
        let error = Some(fault.into());
        session.send(Answer::Opened(Opened { handle, error, ..Opened::default() }), 0, held);
        Ok(())
    });
    refused.unwrap_or(Ok(()))
}

/// Gives an opened projection its line, or writes the line of a projection that could not be opened.
fn audited(
    projection: Result<Projection, Fault>,
    mut line: Option<AuditLine>,
) -> Result<Projection, Fault> {
    if let Some(line) = &mut line {
        line.ends(projection.as_ref().map(drop));
    }
    projection.map(|projection| Projection { audit: line, ..projection })
}

async fn project(tables: &Registry, open: &Open) -> Result<Projection, Fault> {
    if !open.file.is_empty() {
        let file = open_file(tables, open).await?;
        let column = [FILE_COLUMN.to_owned()];
        return Projection::new(file, &column).map_err(|error| fault_of(&error));
    }
    if open.version == 0 {
        let what = "version 0 is no version; name one, from 1";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let Open { table_uri, branch, version, identity, .. } = open;
    let table = tables.open(table_uri, branch, *version, identity).await;
    let table = table.map_err(|error| fault_of(&error))?;
    Projection::new(table, &open.columns).map_err(|error| fault_of(&error))
}

async fn open_file(tables: &Registry, open: &Open) -> Result<Arc<OpenTable>, Fault> {
    let others = [open.columns.len(), open.identity.len(), open.branch.len()];
    if open.version != 0 || others != [0; 3] {
        let what = "an Open of a file has no version, columns, identity or branch; leave them out";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let file = tables.open_file(&open.table_uri, &open.file, open.file_bytes).await;
    file.map_err(|error| fault_of(&error))
}

/// Handles the outcome of opening a projection: answers the client, and starts or refuses the batches that waited.
pub fn opened(core: &Core, no: SessionNo, handle: u32, serial: u64, opening: Opening) {
    let Opening { projection, held, answer_held } = opening;
    let opened = projection.and_then(|projection| {
        let schema = schema_to_bytes(&projection.schema);
        let schema = schema.map_err(|error| Fault::new(Reason::Internal, error.to_string()))?;
        let room = core.traffic_memory.hold(schema.len() as u64, answer_held.bytes());
        let room = room.ok_or_else(|| {
            core.stats.shed.add(1);
            memory_full()
        })?;
        Ok((projection, Opened { handle, schema, error: None }, room))
    });
    let (projection, answer, room) = match opened {
        Ok((projection, answer, room)) => (Ok(projection), answer, room),
        Err(fault) => {
            let fault = brief(fault);
            let error = Some(fault.clone().into());
            (Err(fault), Opened { handle, schema: Bytes::new(), error }, HeldBytes::default())
        }
    };
    let state = match &projection {
        Ok(projection) => {
            ProjectionHandle::Open { projection: Arc::clone(projection), _held: held }
        }
        Err(fault) => ProjectionHandle::Failed { fault: fault.clone(), _held: held },
    };
    let waiting = with_session(core, no, |session| {
        let waiting = session.opened(handle, serial, state)?;
        session.send(Answer::Opened(answer), 0, Some(answer_held.and(room)));
        Some(waiting)
    });
    for arrived in waiting.flatten().unwrap_or_default() {
        match &projection {
            Ok(projection) => fetch(core, no, Arc::clone(projection), arrived),
            Err(fault) => {
                let Arrived { batch, held, .. } = arrived;
                let rows = batch.row_addrs.len();
                reply::refuse(core, no, batch.id, rows, fault.clone(), Some(held));
            }
        }
    }
}

/// Shortens a fault so that it fits into the memory that is counted for its answer.
fn brief(mut fault: Fault) -> Fault {
    let end = fault.message.floor_char_boundary(FAULT_BYTES_MAX);
    fault.message.truncate(end);
    fault.metadata.retain(|_, value| value.len() <= VALUE_BYTES_MAX);
    fault
}

#[cfg(test)]
mod tests {
    use wire::fetch::{Predicate, Rerank};

    use super::*;

    #[test]
    fn a_batch_is_charged_for_its_rows_vector_and_trace() {
        let rerank = Rerank { vector: vec![0; 1 << 20].into(), ..Rerank::default() };
        let batch = Batch {
            row_addrs: vec![1; 10],
            rerank: Some(rerank),
            traceparent: "x".repeat(1000),
            ..Batch::default()
        };
        assert_eq!(batch_bytes(&batch), (1 << 10) + 10 * 64 + (1 << 20) + 1000);
        assert_eq!(batch_bytes(&Batch::default()), 1 << 10);
        let step = PredicateStep { values: vec![vec![0; 100].into()], ..PredicateStep::default() };
        let predicate = Some(Predicate { steps: vec![step; 3] });
        let bytes = size_of::<PredicateStep>() + size_of::<Bytes>() + 100;
        assert_eq!(
            batch_bytes(&Batch { predicate, ..Batch::default() }),
            (1 << 10) + 3 * bytes as u64
        );
    }

    #[test]
    fn a_fault_that_each_batch_repeats_is_shortened() {
        let long = "\u{fffd}".repeat(600);
        let fault =
            Fault::new(Reason::BadArgument, &*long).with("column", &long).with("table", "a");
        let fault = brief(fault);
        assert_eq!((fault.message.len(), fault.metadata.len()), (510, 1));
        assert_eq!(brief(fault.clone()), fault);
    }
}
