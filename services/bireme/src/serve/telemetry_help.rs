//! The part of nodes' help about logs, metrics and traces.

use super::log::NODE_LOG_LEVEL;

/// Returns the help about logs; `level` is the default.
pub fn log_help(level: &str) -> String {
    format!(
        "\
Logs go to stderr. BIREME_LOG sets the level: error, warn, info, debug or trace
[default: {level}]."
    )
}

/// Returns the help about logs, metrics and traces, for the node whose variables begin with `prefix`.
pub fn telemetry_help(prefix: &str) -> String {
    let logs = log_help(NODE_LOG_LEVEL);
    format!(
        "\
--metrics ADDRESS serves metrics at http://ADDRESS/metrics, and the node's
health at /live and /ready, for probes that can't use gRPC with TLS. --probes
ADDRESS serves /live and /ready only. Metrics and traces are sent to an
OpenTelemetry receiver if OTEL_EXPORTER_OTLP_ENDPOINT names one.

{logs} Each line is a JSON object with --json,
{prefix}TELEMETRY_LOG_FORMAT=json, or `log_format = \"json\"` in the
file's [telemetry]; so is the error that ends a node."
    )
}
