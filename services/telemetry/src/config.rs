//! The `telemetry` section of a node's configuration.

use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::HEADERS_PROBLEM;
use crate::receiver::{ENDPOINT_VARIABLE, Headers, is_endpoint, variable};

/// The environment variable in which OpenTelemetry's SDKs look for the interval of metrics, in milliseconds.
const INTERVAL_VARIABLE: &str = "OTEL_METRIC_EXPORT_INTERVAL";

/// The shortest interval, in milliseconds.
const INTERVAL_MIN_MS: u64 = 100;

/// The `telemetry` section of a node's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The address on which `/metrics` is served over plain HTTP, and `/live` and `/ready` too. Unset: it is not
    /// served.
    #[schemars(extend("format" = "address"))]
    pub metrics_listen: Option<SocketAddr>,
    /// The address on which only `/live` and `/ready` are served over plain HTTP, so that probes can reach a node whose
    /// metrics they can't reach. Unset: only the port of metrics answers probes.
    #[schemars(extend("format" = "address"))]
    pub probes_listen: Option<SocketAddr>,
    /// The fraction of requests that are traced, 0 to 1. A request with a `traceparent` follows the decision of its
    /// caller instead. Of the requests that callers have traced, this holds for 500 a second; this fraction decides about
    /// the others.
    pub trace_ratio: f64,
    /// Requests that take at least this long are traced in any case, as are requests that fail, unless the request itself
    /// is invalid.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub trace_slow: Duration,
    /// The format of log lines.
    pub log_format: LogFormat,

    // The fields below are not settings: OpenTelemetry's variables set them. Tests choose other values.
    /// The endpoint of an OTLP receiver for metrics and traces over gRPC. `None` stands for the value of
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; without that, nothing is sent.
    #[serde(skip)]
    pub otlp_endpoint: Option<String>,
    /// The interval at which metrics are sent to the OTLP receiver. `OTEL_METRIC_EXPORT_INTERVAL` has precedence.
    #[serde(skip)]
    pub otlp_interval: Duration,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object on each line, for log collectors.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            metrics_listen: None,
            probes_listen: None,
            otlp_endpoint: None,
            otlp_interval: Duration::from_secs(15),
            trace_ratio: 0.01,
            trace_slow: Duration::from_secs(1),
            log_format: LogFormat::Text,
        }
    }
}

impl TelemetryConfig {
    /// Validates the configuration, with the environment variables that complete it. Returns the name of the first
    /// invalid field or variable, and its problem.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        self.fault_with_environment(variable)
    }

    fn fault_with_environment(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<(&'static str, String)> {
        if !(0.0..=1.0).contains(&self.trace_ratio) {
            let problem = format!("is {}; give a fraction from 0 to 1", self.trace_ratio);
            return Some(("telemetry.trace_ratio", problem));
        }
        let endpoint = self.otlp_endpoint.clone().or_else(|| variable(ENDPOINT_VARIABLE))?;
        if !is_endpoint(&endpoint) {
            let problem = format!("is `{endpoint}`; write it like http://collector:4317");
            return Some((ENDPOINT_VARIABLE, problem));
        }
        if let Some(text) = variable(INTERVAL_VARIABLE)
            && interval(&text).is_none()
        {
            let problem = format!("is `{text}`; give milliseconds, at least {INTERVAL_MIN_MS}");
            return Some((INTERVAL_VARIABLE, problem));
        }
        Headers::fault(variable).map(|variable| (variable, HEADERS_PROBLEM.into()))
    }

    /// Returns the endpoint of the OTLP receiver.
    pub fn receiver(&self) -> Option<String> {
        self.otlp_endpoint.clone().or_else(|| variable(ENDPOINT_VARIABLE))
    }

    /// Returns the interval at which metrics are sent: that of the environment, or else `otlp_interval`.
    pub(crate) fn export_interval(&self) -> Duration {
        let set = variable(INTERVAL_VARIABLE).and_then(|text| interval(&text));
        set.unwrap_or(self.otlp_interval)
    }
}

/// Returns the interval in a text of milliseconds. Returns `None` if the text is not a number or the interval is too
/// short.
fn interval(text: &str) -> Option<Duration> {
    let millis = text.trim().parse().ok().filter(|&millis| millis >= INTERVAL_MIN_MS)?;
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_invalid_field() {
        let field = |change: fn(&mut TelemetryConfig)| {
            let mut config = TelemetryConfig::default();
            change(&mut config);
            config.fault().map(|(field, _)| field)
        };
        assert_eq!(field(|_| {}), None);
        assert_eq!(field(|it| it.trace_ratio = 1.5), Some("telemetry.trace_ratio"));
        assert_eq!(field(|it| it.trace_ratio = f64::NAN), Some("telemetry.trace_ratio"));
        let with_environment = |environment: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            TelemetryConfig::default().fault_with_environment(variable)
        };
        let there = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        assert_eq!(with_environment(&[there]), None);
        for bad in ["collector:4317", "http://"] {
            let (field, problem) = with_environment(&[(there.0, bad)]).unwrap();
            assert_eq!(field, there.0);
            assert!(problem.contains(&format!("is `{bad}`")), "{problem}");
        }
        assert_eq!(with_environment(&[there, (INTERVAL_VARIABLE, "1000")]), None);
        let (field, problem) = with_environment(&[there, (INTERVAL_VARIABLE, "1s")]).unwrap();
        assert_eq!((field, problem.contains("is `1s`")), (INTERVAL_VARIABLE, true));
        let token = ("OTEL_EXPORTER_OTLP_HEADERS", "secret");
        let (field, problem) = with_environment(&[there, token]).unwrap();
        assert_eq!(field, token.0);
        assert!(!problem.contains("secret"), "{problem}");
        // Without an endpoint, the headers are not used and not checked.
        assert_eq!(with_environment(&[token]), None);
    }
}
