//! A fetch on one core, from a batch of row addresses to its reply.
//!
//! ```text
//! decode (admit) ─► locate ─┬─ all on drives ──────────────► prepare ─► RAM tier ─► coalesce ─► read
//!                           └─ some not: from the table ─► (image) ─┘                             │
//!                                                          reply ◄─ assemble or score ◄───────────┤
//!                     locate again, these rows from the table ◄── a drive failed to deliver rows ◄─┘
//! ```
//!
//! No stage waits: each leaves the request in a state from which the next event continues. The events are a batch
//! ([`fetch`]), rows from the table ([`image`]) and completed reads (`read_events.rs`, which ends in [`settle`]).
//!
//! Each stage is in the file of its name, but `prepare` is in `assemble.rs`, `read` in `reader.rs`, `score` in
//! `rerank.rs`, and rows from the table are in `table_rows.rs` and `table_reader.rs`. The stages work on the core of
//! this thread (`core_state.rs`), which has the streams (`sessions.rs`), the batches under way (`requests.rs`), the RAM
//! tier and the reader. The state that the cores share is in `node_state.rs`.
//!
//! What a batch needs is bounded at each step. A batch that finds a queue or the memory full does not wait for room: it
//! is refused with `OVERLOADED`. Clients are slowed by HTTP/2's windows, and by credits, which come back only when the
//! connection takes the reply. The bounds, in the order in which a batch meets them:
//!
//! | what | bound | where |
//! |---|---|---|
//! | bytes that arrive | the window, a message's size, traffic memory | `connections/serve.rs`, `traffic/arriving.rs` |
//! | rows of a stream | its credits; a batch beyond them ends the stream | `serve/stream.rs` |
//! | a batch | its number of rows; its bytes are traffic memory | `decode.rs`, `serve/stream.rs` |
//! | pieces that wait | the queue's length, a flow's part of it, the batch's deadline | `admit.rs` |
//! | rows from the table | reads at a time and waiting; traffic memory | `table_reader.rs`, `table_rows.rs` |
//! | the reply | the size of a message; traffic memory, of which a flow leaves a part | `assemble.rs` |
//! | reads in flight | slots; fewer while several flows are active | `reader.rs`, `reader/depth.rs` |
//! | unread replies | traffic memory, and a number of messages without it | `sessions.rs`, `serve/reply_body.rs` |
//! | a client that does not read | its connection ends if others need its memory | `traffic/memory/holder.rs` |
//!
//! `node/memory.rs` divides the node's memory among these and its other parts.

mod admit;
mod assemble;
mod coalesce;
mod core_plan;
mod core_state;
mod decode;
mod locate;
mod node_state;
mod ram_tier;
mod read_events;
mod reader;
pub mod replica;
pub mod reply;
mod requests;
mod rerank;
mod sessions;
mod slow_drives;
mod table_reader;
mod table_rows;
mod timeline;
mod trace;

use std::sync::Arc;

use wire::{Fault, Reason};

use crate::shard::{HeldBytes, RequestNo, SessionNo};
use crate::table::Projection;

pub use core_plan::CorePlan;
pub use core_state::{Core, here, set_here};
pub use node_state::NodeState;
pub use read_events::{submit_loop, watch_timeouts};
pub use sessions::{Arrived, Outgoing, ProjectionHandle, Session};
pub use slow_drives::watch_slow_drives;
pub use table_reader::TableReader;

/// Starts a batch that has arrived.
pub fn fetch(core: &Core, session: SessionNo, projection: Arc<Projection>, arrived: Arrived) {
    let Arrived { batch, held, at } = arrived;
    let (id, rows) = (batch.id, batch.row_addrs.len());
    core.activity.add();
    match decode::decode(core, session, projection, batch, at) {
        Ok(mut request) => {
            request.held = held;
            locate::locate(core, &mut request);
            let no = core.requests.borrow_mut().add(request);
            if let Some(session) = core.sessions.borrow_mut().get_mut(session) {
                session.batches.insert(id, no);
            }
            proceed(core, no);
        }
        Err(fault) => reply::refuse(core, session, id, rows, fault, Some(held)),
    }
}

/// Stores the image of one part: the part's rows that were read from the table, encoded as an extent. The request
/// continues once its last image has arrived, and fails if an image could not be read.
pub fn image(
    core: &Core,
    no: RequestNo,
    part: usize,
    image: Result<pack::Extent, Fault>,
    held: HeldBytes,
) {
    match image {
        Ok(image) => {
            if table_rows::arrived(core, no, part, image, held) {
                proceed(core, no);
            }
        }
        Err(fault) => {
            // Counted once, even if several images of the request are late.
            let is_under_way = core.requests.borrow_mut().get_mut(no).is_some();
            if is_under_way && fault.reason == Reason::DeadlineExceeded {
                core.stats.dropped.add(1);
            }
            reply::fail(core, no, fault);
        }
    }
}

/// Continues a request whose rows are located. Requests the rows that must come from the table. If there are none, or
/// all of them have arrived, reads the other rows from the drives.
fn proceed(core: &Core, no: RequestNo) {
    let started = table_rows::request_rows(core, no).and_then(|waits| {
        if !waits {
            assemble::prepare(core, no)?;
            core.reader.enqueue(&core.read_context(), no)?;
        }
        Ok(waits)
    });
    match started {
        Ok(true) => {}
        Ok(false) => settle(core, no),
        Err(fault) => reply::fail(core, no, fault),
    }
}

/// Answers a request whose pieces have all arrived. If drives failed to deliver some of its rows, the request starts
/// again with these rows from the table: everything that it has gathered is dropped, and all of its rows are read
/// again.
fn settle(core: &Core, no: RequestNo) {
    let has_undelivered = {
        let mut requests = core.requests.borrow_mut();
        match requests.get_mut(no) {
            Some(request) if request.pieces_left == 0 => {
                let has_undelivered = locate::has_undelivered(request);
                if has_undelivered {
                    locate::locate(core, request);
                }
                has_undelivered
            }
            _ => return,
        }
    };
    match has_undelivered {
        true => proceed(core, no),
        false => reply::reply(core, no),
    }
}
