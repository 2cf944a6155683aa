//! Why nothing can be told.

use std::net::SocketAddr;

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
    /// The OTLP receiver can't be spoken to, whether it is there or not.
    #[error("`telemetry.otlp_endpoint` {endpoint}: {problem}")]
    Otlp {
        /// The receiver.
        endpoint: String,
        /// Why.
        problem: String,
    },
}
