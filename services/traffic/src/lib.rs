//! Memory that callers can make a core hold, counted and bounded.
//!
//! Each core has one [`TrafficMemory`]. Connections, requests and streams take from it when they begin, request bytes
//! as they arrive ([`RequestBody`]), and replies until their last byte has left ([`ReplyBody`]). What finds no room is
//! refused with `OVERLOADED`.
//!
//! Invariants: bytes are counted before they are kept, and given back when what they were counted for is dropped. A
//! caller that stops reading or writing cannot keep what it holds while others are refused: its connection is ended
//! ([`Holder`]). A stream whose request does not come loses its room to newcomers ([`StreamRoom`]).
//!
//! Not counted: what the kernel buffers for a socket, and the bytes that wait within HTTP/2's window of a connection.
//! The window is part of what each connection is charged ([`connection_bytes`]).

mod arriving;
mod holder;
mod leaving;
mod memory;
mod waiting;

pub use arriving::{Arriving, RequestBody};
pub use holder::Holder;
pub use leaving::{IsCounted, ReplyBody};
pub use memory::{HeldBytes, TrafficMemory, connection_bytes, window_bytes};
pub use waiting::{ARRIVAL_MAX, StreamRoom, WAITING_KEPT};
