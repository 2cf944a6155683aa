//! Metrics: collected on demand, and exported to Prometheus and over OTLP.

mod endpoint;
mod format;
mod histogram;
mod liveness;
mod macros;
mod otlp;
mod process;
mod prometheus;
mod samples;
mod serve;
mod source;
mod table;
mod tls;
mod wire;

pub use histogram::{Buckets, Histogram, InBucket, Scale};
pub use process::{PROCESS_METRICS, process_samples};
pub use samples::{Metric, MetricKind, Samples, Value};
pub use serve::{BoundTelemetry, Telemetry};
pub use source::Source;
pub use table::table;
pub use tls::{TLS_METRICS, handshake_samples, tls_samples};
