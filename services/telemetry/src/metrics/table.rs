//! Lists metrics in a Markdown table for the documentation.

use super::prometheus::prometheus_name;
use super::samples::{Metric, MetricKind};

/// Returns a Markdown table of `metrics`: OpenTelemetry and Prometheus names, units, labels and descriptions.
pub fn table<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> String {
    let mut out =
        String::from("| metric | in Prometheus | unit | labels | |\n|---|---|---|---|---|\n");
    for metric in metrics {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        out += &format!(
            "| `{}` ({kind}) | `{}` | `{}` | {} | {} |\n",
            metric.name,
            prometheus_name(metric),
            metric.unit,
            labels.join(", "),
            metric.help,
        );
    }
    out
}
