//! The client of both tiers.
//!
//! - [`fetch`]: one I/O node, over long-lived streams. The query node and `bireme bench fetch` use it.
//! - [`query`]: one query node, a typed call for each rpc. The CLI and the bench use it.
//!
//! Rows come back as Arrow record batches, errors as [`wire::Fault`], whose reason decides about a
//! retry. Nothing here knows Lance, or which node owns which row.

mod endpoint;
pub mod fetch;
mod kind;
mod network;
pub mod query;

pub use connections::tls::{ClientTls, ClientTlsConfig, TlsError};
pub use endpoint::{Endpoint, EndpointError};
pub use network::{Dial, Network, NetworkError};
