//! Accepts connections, hands them to the cores of a node, and serves them there.
//!
//! One thread accepts connections, does the TLS handshake and waits for the first bytes ([`accept()`]). Each core
//! serves its connections on its own runtime ([`serve()`]), and may poll for a while before its thread sleeps
//! ([`idle`]). [`ConnectionSlots`] bounds the number of connections and decides which one is closed for a new one.
//! [`Lifetimes`] bounds how long a connection lasts.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod accept;
mod connection;
pub mod idle;
mod requests;
mod serve;
mod slots;
mod socket;
#[cfg(test)]
mod tests;
pub mod tls;
#[cfg(test)]
mod trust_tests;

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use traffic::connection_bytes;

pub use accept::{AcceptOptions, Accepted, Acceptor, accept};
pub use connection::{Connection, Lifetimes, Peer, WATCHES_MAX};
pub use requests::{CallRule, CallRules, PlainCalls, REQUEST_BYTES, Streams, read_rest};
pub use serve::{ServeOptions, Served, serve};
pub use slots::{Caps, ConnectionCounts, ConnectionSlot, ConnectionSlots};

/// A byte stream that carries a connection: a socket, or a simulated network.
pub trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// A core's memory for callers divided by this is the maximum for its connections. As much again is left for streams
/// and projections, and twice as much for the messages of requests and replies.
const MEMORY_PART: u64 = 4;

/// The minimum number of connections for each core. They take 1.5 MiB of a core's memory for callers, which is at least
/// 32 MiB if `traffic_memory` is not configured.
const CORE_CONNECTIONS_MIN: u64 = 16;

/// Returns whether other machines can reach a node that listens on `listen`.
pub fn is_beyond_loopback(listen: SocketAddr) -> bool {
    !listen.ip().to_canonical().is_loopback()
}

/// Returns how many connections `cores` cores can serve if each may hold `core_bytes` for its callers.
pub fn connections_by_memory(cores: usize, core_bytes: u64) -> usize {
    let of_core = core_bytes / MEMORY_PART / connection_bytes(core_bytes);
    cores * usize::try_from(of_core.max(CORE_CONNECTIONS_MIN)).unwrap_or(usize::MAX / cores.max(1))
}

impl Accepted {
    /// Attaches the connection to this thread's runtime. Returns `None` if that fails.
    pub fn adopt(self) -> Option<Served> {
        let Self { mut socket, connection, slot } = self;
        match socket.attach() {
            Ok(()) => Some(Served { carrier: Box::new(socket), connection, slot: Some(slot) }),
            Err(error) => {
                tracing::warn!(%error, "a connection can't be served");
                None
            }
        }
    }
}
