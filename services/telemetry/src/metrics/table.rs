//! The metrics as a table for people.

use super::prometheus::prometheus_name;
use super::samples::{Kind, Metric};

/// A Markdown table of `metrics`: their names in OpenTelemetry and Prometheus, and what they say.
pub fn table<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> String {
    let mut out =
        String::from("| metric | in Prometheus | unit | labels | |\n|---|---|---|---|---|\n");
    for metric in metrics {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
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
