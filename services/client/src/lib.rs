//! The clients of both tiers.
//!
//! - [`fetch`]: the client of an I/O node, over long-lived streams. The query node and `bireme bench fetch` use it.
//! - [`query`]: the client of a query node, with a typed call for each rpc. The CLI, its benchmarks and the Python
//!   package use it.
//!
//! Rows are returned as Arrow record batches, and errors as [`wire::Fault`], whose reason tells whether to retry. This
//! crate does not depend on Lance, and does not know which node owns which row.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod fetch;
mod kind;
mod network;
pub mod query;
mod transport;

pub use connections::tls::{ClientTls, ClientTlsConfig, TlsError};
pub use endpoint::{Endpoint, EndpointError};
pub use network::{Dial, Network, NetworkError};
pub use transport::FRAME_BYTES;
