//! Counts and bounds the memory that callers can make a core hold.
//!
//! Each core has one [`TrafficMemory`]. Connections, requests and streams take from it when they begin, request bytes
//! as they arrive ([`RequestBody`]), and replies until their last byte has been sent ([`ReplyBody`]). Requests and
//! replies that do not fit are refused with `OVERLOADED`. The projections that streams keep open may have an eighth of
//! it ([`ProjectionMemory`]).
//!
//! Invariants:
//! - Bytes are counted before they are kept, and given back when the data is dropped.
//! - A caller that stops reading or writing can't keep 64 KiB or more while others are refused: its connection is ended
//!   ([`Holder`]). This includes the rows of complete answers that wait behind a part of a reply, however small it is.
//! - A stream whose request does not arrive loses its memory to new streams ([`StreamRoom`]).
//!
//! Kernel buffers of sockets are not counted. The bytes in HTTP/2's window of a connection are not counted either, but
//! each connection is charged for a full window ([`connection_bytes`]).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod arriving;
mod form;
mod leaving;
mod memory;
mod projection_memory;

pub use arriving::{Arriving, MessageBytes, RequestBody};
pub use form::Form;
pub use leaving::{IsCounted, PART_BYTES, ReplyBody};
pub use memory::holder::Holder;
pub use memory::waiting::{ARRIVAL_MAX, StreamRoom, WAITING_KEPT};
pub use memory::{
    HeldBytes, NoRoom, TrafficMemory, connection_bytes, memory_full, small_requests_max,
    window_bytes,
};
pub use projection_memory::{HeldProjection, ProjectionMemory};
