//! The endpoint that a node announces.

use std::net::SocketAddr;

/// Returns the endpoint of a node that listens on `address`, as clients write it.
pub fn announced(address: SocketAddr, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}
