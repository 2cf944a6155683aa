//! What a node tells of itself while it runs: metrics and traces.
//!
//! ```text
//! cores' counters and histograms ─ collected when asked ─► Samples ─┬─► Prometheus endpoint
//!                                                                   └─► OTLP, every so often
//! a request's stages ─ once it has ended, if it is to be told of ─► spans ─► OTLP
//! ```
//!
//! Whoever serves counts in cells of its own, which cost no lock and no allocation; all that is said here is
//! made of them later, off the way of requests. OpenTelemetry's own instruments find their cell by its
//! attributes behind a lock that all cores share, which is why metrics are not recorded through them; what
//! leaves is in OpenTelemetry's data model all the same.

mod config;
mod error;
mod metrics;
mod receiver;
mod resource;
mod trace;

pub use config::{LogFormat, TelemetryConfig};
pub use error::TelemetryError;
pub use metrics::{
    Buckets, Histogram, Kind, Metric, PROCESS_METRICS, Samples, Scale, Source, TLS_METRICS,
    Telemetry, Value, process_samples, table, tls_samples,
};
pub use resource::Identity;
pub use trace::{Attribute, Recording, SPANS_MAX, Span, Tracer, child_of};
