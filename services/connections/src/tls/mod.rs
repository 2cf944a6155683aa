//! TLS on connections, with certificates from files, which are read again when they change.
//!
//! Certificates are renewed while a node runs (cert-manager does so some weeks before they expire). New connections use
//! the new certificates, so no restart is needed; connections that a node accepted with its earlier certificate end
//! soon afterwards. The accepting side ([`Presented`]) also ends a connection when a certificate of either side expires,
//! and when the client's certificate is revoked or its authority removed. The connecting side ([`VerifiedStream`]) does
//! so when the server's certificate expires or is revoked, or its authority is removed.

mod client;
mod expiry;
mod files;
mod names;
mod presented;
mod refusals;
mod reload;
mod server;
#[cfg(test)]
mod tests;
mod verified_stream;

pub use client::{ClientTls, ClientTlsConfig, NoTls, is_tls};
pub use files::TlsError;
pub use presented::Presented;
pub use server::{ClientCertificates, ServerTls, ServerTlsConfig};
pub use verified_stream::VerifiedStream;

/// The application protocol within TLS: HTTP/2.
const ALPN: &[u8] = b"h2";

/// The other application protocol that a node with plain calls accepts: HTTP/1.1.
const ALPN_HTTP1: &[u8] = b"http/1.1";
