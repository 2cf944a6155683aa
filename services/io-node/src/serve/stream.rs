//! One Fetch stream: its credits, its projections, its batches.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::{Batch, FetchRequest, Open, Opened, Welcome};
use wire::{Fault, Reason, schema_to_bytes};

use super::reply_body::ReplyBody;
use super::request_body::Arriving;
use crate::core::mailbox::Message;
use crate::core::{Core, Handle, HeldBytes, Outgoing, Session, SessionNo, here};
use crate::error::fault_of;
use crate::fetch::fetch;
use crate::node::Shared;
use crate::stages::reply;
use crate::table::Projection;

/// The protocol's revision within v1.
const REVISION: u32 = 1;

/// What a row of a batch holds from its arrival to its reply: its address, its source and its piece.
const ROW_BYTES: u64 = 64;

/// What a stream holds: its tasks, queues and HTTP/2's state.
pub const STREAM_BYTES: u64 = 16 << 10;

/// Opens a stream on this core: what it answers.
pub fn begin(
    shared: &Shared,
    asked: Streaming<FetchRequest>,
    arriving: Arriving,
    held: HeldBytes,
    stopping: watch::Receiver<bool>,
) -> ReplyBody {
    let (replies, answers) = mpsc::unbounded_channel();
    let config = &shared.config;
    let welcome = Welcome {
        credit_rows: config.credit_rows,
        batch_rows_max: config.batch_rows_max,
        node: config.name.clone(),
        revision: REVISION,
    };
    let _ = replies.send(Outgoing::new(Answer::Welcome(welcome), 0, None));
    let session = Session::new(replies, config.credit_rows, held);
    let core = here();
    let no = core.sessions.borrow_mut().add(session);
    // Ends the answers with a status once the asking has broken the protocol.
    let (ending, ended) = mpsc::channel(1);
    tokio::spawn(listen(no, asked, arriving, ending, stopping));
    ReplyBody::new(no, answers, ended)
}

/// A message of the stream leaves: its rows may be asked for again.
pub fn give_credit(no: SessionNo, rows: u32) {
    with(&here(), no, |session| session.credit_rows += rows);
}

/// Takes what the client asks for until it hangs up; then nothing of the stream is left.
async fn listen(
    no: SessionNo,
    mut asked: Streaming<FetchRequest>,
    arriving: Arriving,
    ending: mpsc::Sender<Status>,
    mut stopping: watch::Receiver<bool>,
) {
    // Also after a panic: what a stream leaves would hold places in the directory for ever.
    let _end = End(no);
    let outcome = loop {
        let message = tokio::select! {
            biased;
            _ = stopping.wait_for(|&stop| stop) => break Ok(()),
            message = asked.message() => message,
        };
        match message {
            Ok(Some(request)) => {
                arriving.taken();
                let obeyed = obey(&here(), no, request.kind);
                if let Err(fault) = obeyed {
                    break Err(Status::from(fault));
                }
            }
            Ok(None) => break Ok(()),
            // Of a client that has gone nobody reads it.
            Err(status) => break Err(status),
        }
    };
    match outcome {
        Ok(()) => finish(no).await,
        Err(status) => drop(ending.send(status).await),
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

/// Waits until every batch of a stream is answered; the client's going away ends it too.
async fn finish(no: SessionNo) {
    while let Some(replies) = unfinished(no) {
        tokio::select! {
            biased;
            () = replies.closed() => return,
            () = tokio::time::sleep(FINISH_POLL) => {}
        }
    }
}

/// Where the replies of a stream go that has batches under way.
fn unfinished(no: SessionNo) -> Option<mpsc::UnboundedSender<Outgoing>> {
    let core = here();
    let mut sessions = core.sessions.borrow_mut();
    sessions.get_mut(no).filter(|session| session.is_busy()).map(|s| s.replies.clone())
}

/// How often a closing stream looks whether its last batches are answered.
const FINISH_POLL: std::time::Duration = std::time::Duration::from_millis(2);

/// Does what one message asks for. An error ends the stream.
fn obey(core: &Core, no: SessionNo, kind: Option<Asked>) -> Result<(), Fault> {
    match kind {
        Some(Asked::Open(open)) => begin_open(core, no, open),
        Some(Asked::Batches(batches)) => {
            batches.batches.into_iter().try_for_each(|batch| take_batch(core, no, batch))
        }
        Some(Asked::Close(close)) => {
            let waiting = with(core, no, |session| session.close(close.handle));
            let closed = Fault::new(Reason::BadProtocol, "its projection was closed");
            for (batch, _) in waiting.unwrap_or_default() {
                reply::refuse(core, no, batch.id, batch.row_addrs.len(), closed.clone());
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
    let request = with(core, no, |session| session.batches.get(&id).copied()).flatten();
    if let Some(request) = request {
        core.stats.dropped.add(1);
        reply::fail(core, request, cancelled);
    } else if let Some(batch) = with(core, no, |session| session.stop_waiting(id)).flatten() {
        core.stats.dropped.add(1);
        reply::refuse(core, no, id, batch.row_addrs.len(), cancelled);
    }
}

fn with<T>(core: &Core, no: SessionNo, work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    core.sessions.borrow_mut().get_mut(no).map(work)
}

/// Takes a batch against its stream's credits and starts it, or lets it wait for its projection.
fn take_batch(core: &Core, no: SessionNo, batch: Batch) -> Result<(), Fault> {
    let (id, rows) = (batch.id, batch.row_addrs.len());
    let held = core.traffic_memory.hold(rows as u64 * ROW_BYTES, 0);
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
        let Some(held) = held else {
            drop(sessions);
            core.stats.shed.add(1);
            let what = "others' batches hold all memory for them; try again later";
            reply::refuse(core, no, id, rows, Fault::new(Reason::Overloaded, what));
            return Ok(());
        };
        match session.handle_mut(batch.handle) {
            Some(Handle::Opening { waiting, .. }) => {
                waiting.push((batch, held));
                return Ok(());
            }
            Some(Handle::Open(projection)) => Ok((Arc::clone(projection), batch, held)),
            Some(Handle::Failed(fault)) => Err(fault.clone()),
            None => {
                let what = format!("handle {} is not open on this stream", batch.handle);
                Err(Fault::new(Reason::BadProtocol, what))
            }
        }
    };
    match ready {
        Ok((projection, batch, held)) => fetch(core, no, projection, batch, held),
        Err(fault) => reply::refuse(core, no, id, rows, fault),
    }
    Ok(())
}

/// Has a projection opened in the background; the core's mailbox brings it back.
fn begin_open(core: &Core, no: SessionNo, open: Open) -> Result<(), Fault> {
    let Some(opening) = with(core, no, |session| session.open(open.handle)) else {
        return Ok(());
    };
    let serial = opening?;
    let tables = core.shared.tables.clone();
    let mailbox = core.shared.mailboxes[core.number].clone();
    core.shared.background.spawn(async move {
        let projection = AssertUnwindSafe(project(&tables, &open)).catch_unwind().await;
        let panicked = |_| Err(Fault::new(Reason::Internal, "opening the table panicked"));
        let projection = projection.unwrap_or_else(panicked);
        // A core that has stopped has no use for it.
        let _ =
            mailbox.send(Message::Opened { session: no, handle: open.handle, serial, projection });
    });
    Ok(())
}

async fn project(tables: &crate::table::Registry, open: &Open) -> Result<Arc<Projection>, Fault> {
    if open.version == 0 {
        let what = "version 0 is no version; name one, from 1";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let table = tables.open(&open.table_uri, open.version, &open.identity).await;
    let table = table.map_err(|error| fault_of(&error))?;
    let projection = Projection::new(table, &open.columns).map_err(|error| fault_of(&error))?;
    Ok(Arc::new(projection))
}

/// A projection is open, or can't be: tells the client, and starts the batches that waited.
pub fn opened(
    core: &Core,
    no: SessionNo,
    handle: u32,
    serial: u64,
    projection: Result<Arc<Projection>, Fault>,
) {
    let answer = match &projection {
        Ok(projection) => match schema_to_bytes(&projection.schema) {
            Ok(schema) => Opened { handle, schema, error: None },
            Err(error) => failed(handle, Fault::new(Reason::Internal, error.to_string())),
        },
        Err(fault) => failed(handle, fault.clone()),
    };
    let state = match &projection {
        Ok(projection) => Handle::Open(Arc::clone(projection)),
        Err(fault) => Handle::Failed(fault.clone()),
    };
    let waiting = with(core, no, |session| {
        let waiting = session.opened(handle, serial, state)?;
        let _ = session.replies.send(Outgoing::new(Answer::Opened(answer), 0, None));
        Some(waiting)
    });
    for (batch, held) in waiting.flatten().unwrap_or_default() {
        match &projection {
            Ok(projection) => fetch(core, no, Arc::clone(projection), batch, held),
            Err(fault) => {
                reply::refuse(core, no, batch.id, batch.row_addrs.len(), fault.clone());
            }
        }
    }
}

fn failed(handle: u32, fault: Fault) -> Opened {
    Opened { handle, schema: bytes::Bytes::new(), error: Some(fault.into()) }
}
