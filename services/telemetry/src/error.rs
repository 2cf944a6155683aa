//! Why nothing can be told.

use std::net::SocketAddr;

/// What is wrong with headers, which aren't shown: they may be a secret.
pub const HEADERS_PROBLEM: &str =
    "holds something else than `key=value` pairs; write them like `a=b,c=d%20e`";

/// What keeps telemetry from starting.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The metrics' port can't be had.
    #[error("`telemetry.metrics_listen` {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// What is to go with metrics to the OTLP receiver can't.
    #[error("`{variable}` {HEADERS_PROBLEM}")]
    Headers {
        /// Of the environment.
        variable: &'static str,
    },
    /// The OTLP receiver can't be spoken to, whether it is there or not.
    #[error("the OTLP receiver {endpoint}: {problem}")]
    Otlp {
        /// The receiver.
        endpoint: String,
        /// Why.
        problem: String,
    },
}
