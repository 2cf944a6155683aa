//! Exports a node's metrics and traces.
//!
//! ```text
//! counters and histograms of cores ─ collected on demand ─► Samples ─┬─► Prometheus endpoint
//!                                                                    └─► OTLP, at an interval
//! timings of a request ─ if it was sampled, slow or failed ─► spans ─► OTLP
//! ```
//!
//! Each core counts in memory of its own, without locks or allocations. Samples are made from these counts later,
//! outside of requests. Metrics are not recorded with OpenTelemetry's instruments, because these look up their state
//! by attributes behind a lock that all cores share. The exported data follows OpenTelemetry's data model
//! nevertheless.

mod config;
mod error;
mod metrics;
mod receiver;
mod resource;
mod trace;

pub use config::{LogFormat, TelemetryConfig};
pub use error::TelemetryError;
pub use metrics::{
    BoundTelemetry, Buckets, Histogram, InBucket, Metric, MetricKind, PROCESS_METRICS, Samples,
    Scale, Source, TLS_METRICS, Telemetry, Value, handshake_samples, process_samples, table,
    tls_samples,
};
pub use resource::Identity;
pub use trace::{Attribute, Recording, SPANS_MAX, Span, Tracer, child_of};
