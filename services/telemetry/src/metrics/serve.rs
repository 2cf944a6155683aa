//! The export of a node's metrics while it runs: the endpoint, and the task that sends them over OTLP.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::endpoint::{self, Endpoint};
use super::otlp;
use super::source::Source;
use crate::config::TelemetryConfig;
use crate::error::TelemetryError;
use crate::receiver::{Headers, tls, variable};
use crate::resource::Identity;

/// The export of a node's metrics. It ends when this is dropped.
pub struct Telemetry {
    metrics_addr: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    _endpoint: Option<Endpoint>,
}

impl Telemetry {
    /// Starts the endpoint for Prometheus and probes, and the export over OTLP, as far as `config` asks for them.
    /// Metrics are collected on `runtime`.
    ///
    /// # Errors
    /// [`TelemetryError`] if the port can't be bound, if the endpoint's thread can't be started, or if the
    /// environment's OTLP headers or the receiver's address are invalid. An unreachable receiver is no error: sending
    /// to it is tried again.
    pub fn start(
        config: &TelemetryConfig,
        identity: &Identity,
        source: impl Source,
        runtime: &Handle,
    ) -> Result<Self, TelemetryError> {
        let source = Arc::new(source);
        let _entered = runtime.enter();
        let (mut metrics_addr, mut tasks, mut serving) = (None, Vec::new(), None);
        if let Some(address) = config.metrics_listen {
            let refused = |source| TelemetryError::Listen { address, source };
            let listener = endpoint::bind(address).map_err(refused)?;
            metrics_addr = listener.local_addr().ok();
            let (source, identity) = (Arc::clone(&source), identity.clone());
            let endpoint = endpoint::serve(listener, source, identity, runtime.clone());
            serving = Some(endpoint.map_err(refused)?);
        }
        if let Some(endpoint) = config.receiver() {
            let channel = channel(&endpoint)?;
            let headers =
                Headers::of(variable).map_err(|variable| TelemetryError::Headers { variable })?;
            let client = MetricsServiceClient::with_interceptor(channel, headers);
            let interval = config.export_interval();
            let pushing = otlp::push(client, endpoint, interval, source, identity.clone());
            tasks.push(tokio::spawn(pushing));
        }
        Ok(Self { metrics_addr, tasks, _endpoint: serving })
    }

    /// Returns the address of the endpoint, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Creates a channel that connects when it is first used.
fn channel(endpoint: &str) -> Result<Channel, TelemetryError> {
    let bad = |error: &dyn Display| TelemetryError::Otlp {
        endpoint: endpoint.to_owned(),
        problem: error.to_string(),
    };
    let mut transport = Channel::from_shared(endpoint.to_owned())
        .map_err(|error| bad(&error))?
        .timeout(otlp::TIMEOUT)
        .connect_timeout(otlp::TIMEOUT);
    if let Some(tls) = tls(endpoint) {
        transport = transport.tls_config(tls).map_err(|error| bad(&error))?;
    }
    Ok(transport.connect_lazy())
}
