//! What of a node is told, and to whom.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::HEADERS_PROBLEM;
use crate::receiver::{ENDPOINT_VARIABLE, Headers, is_endpoint, variable};

/// The `telemetry` section of a node's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Where Prometheus finds `/metrics`, over plain HTTP; left out, nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// Where an OTLP receiver takes metrics and traces over gRPC, such as `http://collector:4317`; left out,
    /// what `OTEL_EXPORTER_OTLP_ENDPOINT` says, or nowhere.
    pub otlp_endpoint: Option<String>,
    /// How often metrics are sent there.
    #[serde(with = "humantime_serde")]
    pub otlp_interval: Duration,
    /// The share of requests that are traced, 0 to 1; who asks may decide for its own (`traceparent`).
    pub trace_ratio: f64,
    /// A request that took at least so long is traced whatever the share, as is one that failed.
    #[serde(with = "humantime_serde")]
    pub trace_slow: Duration,
    /// How log lines are written.
    pub log_format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line, for what collects them.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            metrics_listen: None,
            otlp_endpoint: None,
            otlp_interval: Duration::from_secs(15),
            trace_ratio: 0.01,
            trace_slow: Duration::from_secs(1),
            log_format: LogFormat::Text,
        }
    }
}

impl TelemetryConfig {
    /// The field that is wrong, and what is wrong with it.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        self.fault_within(variable)
    }

    fn fault_within(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<(&'static str, String)> {
        if !(0.0..=1.0).contains(&self.trace_ratio) {
            let problem = format!("is {}; give a share from 0 to 1", self.trace_ratio);
            return Some(("telemetry.trace_ratio", problem));
        }
        if self.otlp_interval < Duration::from_millis(100) {
            return Some(("telemetry.otlp_interval", "must be at least 100ms".into()));
        }
        let (field, endpoint) = match &self.otlp_endpoint {
            Some(endpoint) => ("telemetry.otlp_endpoint", endpoint.clone()),
            None => (ENDPOINT_VARIABLE, variable(ENDPOINT_VARIABLE)?),
        };
        if !is_endpoint(&endpoint) {
            return Some((field, format!("is `{endpoint}`; write it like http://collector:4317")));
        }
        Headers::fault(variable).map(|variable| (variable, HEADERS_PROBLEM.into()))
    }

    /// Where the OTLP receiver is, by the configuration or by the environment.
    pub fn receiver(&self) -> Option<String> {
        self.otlp_endpoint.clone().or_else(|| variable(ENDPOINT_VARIABLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_names_its_field() {
        let field = |change: fn(&mut TelemetryConfig)| {
            let mut config = TelemetryConfig::default();
            change(&mut config);
            config.fault().map(|(field, _)| field)
        };
        assert_eq!(field(|_| {}), None);
        assert_eq!(field(|it| it.trace_ratio = 1.5), Some("telemetry.trace_ratio"));
        assert_eq!(field(|it| it.trace_ratio = f64::NAN), Some("telemetry.trace_ratio"));
        assert_eq!(field(|it| it.otlp_interval = Duration::ZERO), Some("telemetry.otlp_interval"));
        let endpoint = |text: &str| {
            TelemetryConfig { otlp_endpoint: Some(text.into()), ..Default::default() }.fault()
        };
        assert_eq!(endpoint("http://collector:4317"), None);
        for bad in ["collector:4317", "http://", ""] {
            assert_eq!(
                endpoint(bad).map(|(field, _)| field),
                Some("telemetry.otlp_endpoint"),
                "{bad}"
            );
        }
        let within = |environment: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            TelemetryConfig::default().fault_within(variable)
        };
        let there = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        assert_eq!(within(&[there]), None);
        let (field, problem) = within(&[(there.0, "collector:4317")]).unwrap();
        assert_eq!(field, there.0);
        assert!(problem.contains("is `collector:4317`"), "{problem}");
        let token = ("OTEL_EXPORTER_OTLP_HEADERS", "secret");
        let (field, problem) = within(&[there, token]).unwrap();
        assert_eq!(field, token.0);
        assert!(!problem.contains("secret"), "{problem}");
        // For nobody.
        assert_eq!(within(&[token]), None);
    }
}
