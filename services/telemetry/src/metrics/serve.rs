//! The export of a node's metrics while it runs: the endpoints, and the task that sends them over OTLP.

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
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

/// The ports of the endpoints, which are bound but not served yet, and the client of the OTLP receiver. A client that
/// connects to such a port waits for its answer until the endpoint is served.
pub struct BoundTelemetry {
    endpoints: Vec<BoundEndpoint>,
    push: Option<Push>,
}

struct BoundEndpoint {
    setting: &'static str,
    address: SocketAddr,
    listener: TcpListener,
    paths: Paths,
}

/// The receiver of the export over OTLP, and the interval at which metrics are sent to it.
struct Push {
    client: MetricsServiceClient<InterceptedService<Channel, Headers>>,
    endpoint: String,
    interval: Duration,
}

impl BoundTelemetry {
    /// Starts to answer, and to export over OTLP. Metrics are collected on `runtime`.
    ///
    /// # Errors
    /// [`TelemetryError::Listen`] if an endpoint's thread can't be started.
    pub fn start(
        self,
        identity: &Identity,
        source: impl Source,
        runtime: &Handle,
    ) -> Result<Telemetry, TelemetryError> {
        let source = Arc::new(source);
        let (metrics_addr, probes_addr) =
            (self.address_of(Paths::MetricsAndProbes), self.address_of(Paths::Probes));
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for BoundEndpoint { setting, address, listener, paths } in self.endpoints {
            let (source, identity) = (Arc::clone(&source), identity.clone());
            let endpoint = endpoint::serve(listener, paths, source, identity, runtime.clone());
            let listen_error = |source| TelemetryError::Listen { setting, address, source };
            endpoints.push(endpoint.map_err(listen_error)?);
        }
        let push = self.push.map(|Push { client, endpoint, interval }| {
            runtime.spawn(otlp::push(client, endpoint, interval, source, identity.clone()))
        });
        let tasks = push.into_iter().collect();
        Ok(Telemetry { metrics_addr, probes_addr, tasks, _endpoints: endpoints })
    }

    fn address_of(&self, paths: Paths) -> Option<SocketAddr> {
        self.endpoints.iter().find(|it| it.paths == paths).map(|it| it.address)
    }
}

impl Telemetry {
    /// Binds the ports for Prometheus and for probes, and makes the client of the OTLP receiver, as far as `config`
    /// asks for them. The client's connection runs on `runtime`.
    ///
    /// # Errors
    /// [`TelemetryError`] if a port can't be bound, or if the environment's OTLP headers or the receiver's address are
    /// invalid. An unreachable receiver is no error, because sending is retried.
    pub fn bind(
        config: &TelemetryConfig,
        runtime: &Handle,
    ) -> Result<BoundTelemetry, TelemetryError> {
        let mut endpoints = Vec::new();
        for (setting, address, paths) in [
            ("telemetry.metrics_listen", config.metrics_listen, Paths::MetricsAndProbes),
            ("telemetry.probes_listen", config.probes_listen, Paths::Probes),
        ] {
            let Some(address) = address else { continue };
            let listen_error = |source| TelemetryError::Listen { setting, address, source };
            let listener = TcpListener::bind(address).map_err(listen_error)?;
            let address = listener.local_addr().map_err(listen_error)?;
            endpoints.push(BoundEndpoint { setting, address, listener, paths });
        }
        let push = config.receiver().map(|endpoint| {
            let _entered = runtime.enter();
            let channel = channel(&endpoint)?;
            let headers =
                Headers::of(variable).map_err(|variable| TelemetryError::Headers { variable })?;
            let client = MetricsServiceClient::with_interceptor(channel, headers);
            Ok(Push { client, endpoint, interval: config.export_interval() })
        });
        Ok(BoundTelemetry { endpoints, push: push.transpose()? })
    }

    /// Binds the ports and starts at once: [`bind`](Self::bind), then [`BoundTelemetry::start`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn start(
        config: &TelemetryConfig,
        identity: &Identity,
        source: impl Source,
        runtime: &Handle,
    ) -> Result<Self, TelemetryError> {
        Self::bind(config, runtime)?.start(identity, source, runtime)
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
