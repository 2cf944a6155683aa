//! What a node tells of itself and how, as the help of both says it.

use super::log::NODE_LOG_LEVEL;

/// For what is logged at `level` unless it is said.
pub fn logs(level: &str) -> String {
    format!(
        "\
Logs go to stderr; BIREME_LOG says how much (error, warn, info, debug, trace;
{level} unless it is set)."
    )
}

/// For the node whose variables begin with `prefix`.
pub fn telling(prefix: &str) -> String {
    let logs = logs(NODE_LOG_LEVEL);
    format!(
        "\
With --metrics ADDRESS metrics are at http://ADDRESS/metrics, and at /live and
/ready the node's health, for probes that can't speak gRPC with TLS. Metrics and
traces go to an OpenTelemetry receiver where OTEL_EXPORTER_OTLP_ENDPOINT, or
`otlp_endpoint` of the file's [telemetry], names one.

{logs} With `log_format=\"json\"` of the file's [telemetry],
{prefix}TELEMETRY_LOG_FORMAT=json, or --json each line is a JSON object,
that of a fault that ends the node too."
    )
}
