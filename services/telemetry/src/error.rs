//! The errors of starting telemetry.

use std::net::SocketAddr;

/// The message for invalid headers. The message does not quote the headers, because they may be secret.
pub const HEADERS_PROBLEM: &str =
    "does not consist of `key=value` pairs; write it like `a=b,c=d%20e`";

/// An error that prevents telemetry from starting.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The address for metrics or for probes can't be bound, or the thread that answers on it can't be started.
    #[error("`{setting}` {address}: {source}")]
    Listen {
        /// The setting that has the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The headers for the OTLP receiver are invalid.
    #[error("`{variable}` {HEADERS_PROBLEM}")]
    Headers {
        /// The environment variable that has the headers.
        variable: &'static str,
    },
    /// The client for the OTLP receiver can't be created. This does not depend on whether the receiver is running.
    #[error("the OTLP receiver {endpoint}: {problem}")]
    Otlp {
        /// The receiver's endpoint.
        endpoint: String,
        /// A description of the problem.
        problem: String,
    },
}
