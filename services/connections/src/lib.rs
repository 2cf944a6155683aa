//! Connections: accepted, established, dealt to the cores of a node, and served there.
//!
//! One thread accepts ([`accept()`]), shakes hands and waits for HTTP/2's preface; each core's own runtime serves what
//! it is dealt ([`serve()`]), from socket to socket, and may go on asking for more before it sleeps ([`idle`]). How many
//! there may be, and who makes room for whom, [`Places`] says; how long one lasts, [`Lifetimes`].

mod accept;
mod connection;
pub mod idle;
mod places;
mod requests;
mod serve;
mod socket;
#[cfg(test)]
mod tests;
pub mod tls;

use tokio::io::{AsyncRead, AsyncWrite};
use traffic::connection_bytes;

pub use accept::{AcceptOptions, Accepted, Acceptor, accept};
pub use connection::{Connection, Lifetimes, WATCHES_MAX};
pub use places::{Caps, Place, PlaceCounts, Places};
pub use requests::{CallRule, CallRules, REQUEST_BYTES, Streams};
pub use serve::{ServeOptions, Served, serve};

/// What carries a connection's bytes: a socket, or a network that a simulation makes up.
pub trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// Connections may take this part of a core's memory: one in so many. As much is left for streams, and twice as much
/// for what they carry.
const MEMORY_PART: u64 = 4;

/// The least a core serves, however little memory it has: 1.5 MiB of the 4 that are the least.
const CORE_CONNECTIONS_MIN: u64 = 16;

/// How many connections `cores` serve of which each may hold `core_bytes` for its callers.
pub fn connections_by_memory(cores: usize, core_bytes: u64) -> usize {
    let of_core = core_bytes / MEMORY_PART / connection_bytes(core_bytes);
    cores * usize::try_from(of_core.max(CORE_CONNECTIONS_MIN)).unwrap_or(usize::MAX / cores.max(1))
}

impl Accepted {
    /// The connection on the runtime of this thread; `None` if it can't be served.
    pub fn adopt(self) -> Option<Served> {
        let Self { mut socket, connection, place } = self;
        match socket.attach() {
            Ok(()) => Some(Served { carrier: Box::new(socket), connection, place: Some(place) }),
            Err(error) => {
                tracing::warn!(%error, "a connection can't be served");
                None
            }
        }
    }
}
