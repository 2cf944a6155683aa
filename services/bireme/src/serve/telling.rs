//! What a node tells of itself and how, as the help of both says it.

/// What is logged of a node unless it is said.
pub const LOG_LEVEL: &str = "info";

/// For the node whose variables begin with `prefix`.
pub fn telling(prefix: &str) -> String {
    format!(
        "\
With --metrics ADDRESS metrics are at http://ADDRESS/metrics, and at /live and
/ready the node's health, for probes that can't speak gRPC with TLS. Metrics and
traces go to an OpenTelemetry receiver where OTEL_EXPORTER_OTLP_ENDPOINT, or
`otlp_endpoint` of the file's [telemetry], names one.

Logs go to stderr; BIREME_LOG says how much (error, warn, info, debug, trace;
{LOG_LEVEL} unless it is set). With `log_format=\"json\"` of the file's [telemetry],
{prefix}TELEMETRY_LOG_FORMAT=json, or --json each line is a JSON object,
that of a fault that ends the node too."
    )
}
