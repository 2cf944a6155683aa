//! TLS on connections: HTTP/2 with certificates from files, which are read again when they change.
//!
//! Certificates are renewed while a node runs (cert-manager does so some weeks before they expire). New connections use
//! the new certificates, so no restart is needed.

mod client;
mod expiry;
mod files;
mod names;
mod reload;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientTls, ClientTlsConfig, NoTls, is_tls};
pub(crate) use expiry::expires;
pub use files::TlsError;
pub(crate) use names::names;
pub use server::{ServerTls, ServerTlsConfig};

/// The application protocol within TLS: HTTP/2.
const ALPN: &[u8] = b"h2";
