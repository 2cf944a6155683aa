//! The export of a node's metrics while it runs: the endpoints, and the task that sends them over OTLP.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::endpoint::{self, Endpoint, Paths};
use super::otlp;
use super::source::Source;
use crate::config::TelemetryConfig;
use crate::error::TelemetryError;
use crate::receiver::{Headers, tls, variable};
use crate::resource::Identity;

/// The export of a node's metrics, and the answers to probes. They end when this is dropped.
pub struct Telemetry {
    metrics_addr: Option<SocketAddr>,
    probes_addr: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    _endpoints: Vec<Endpoint>,
}

impl Telemetry {
    /// Starts the endpoints for Prometheus and for probes, and the export over OTLP, as far as `config` asks for them.
    /// Metrics are collected on `runtime`.
    ///
    /// # Errors [`TelemetryError`] if a port can't be bound, if an endpoint's thread can't be started, or if the
    /// environment's OTLP headers or the receiver's address are invalid. An unreachable receiver is no error, because
    /// each interval sends anew.
    pub fn start(
        config: &TelemetryConfig,
        identity: &Identity,
        source: impl Source,
        runtime: &Handle,
    ) -> Result<Self, TelemetryError> {
        let source = Arc::new(source);
        let _entered = runtime.enter();
        let (mut tasks, mut endpoints) = (Vec::new(), Vec::new());
        let mut serve = |setting, address: Option<SocketAddr>, paths| {
            let Some(address) = address else { return Ok(None) };
            let listen_error = |source| TelemetryError::Listen { setting, address, source };
            let listener = endpoint::bind(address).map_err(listen_error)?;
            let bound = listener.local_addr().map_err(listen_error)?;
            let (source, identity) = (Arc::clone(&source), identity.clone());
            let endpoint = endpoint::serve(listener, paths, source, identity, runtime.clone());
            endpoints.push(endpoint.map_err(listen_error)?);
            Ok(Some(bound))
        };
        let metrics_addr =
            serve("telemetry.metrics_listen", config.metrics_listen, Paths::MetricsAndProbes)?;
        let probes_addr = serve("telemetry.probes_listen", config.probes_listen, Paths::Probes)?;
        if let Some(endpoint) = config.receiver() {
            let channel = channel(&endpoint)?;
            let headers =
                Headers::of(variable).map_err(|variable| TelemetryError::Headers { variable })?;
            let client = MetricsServiceClient::with_interceptor(channel, headers);
            let interval = config.export_interval();
            let pushing = otlp::push(client, endpoint, interval, source, identity.clone());
            tasks.push(tokio::spawn(pushing));
        }
        Ok(Self { metrics_addr, probes_addr, tasks, _endpoints: endpoints })
    }

    /// Returns the address that serves metrics, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }

    /// Returns the address that answers only probes, if there is one.
    pub fn probes_addr(&self) -> Option<SocketAddr> {
        self.probes_addr
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
