//! A running query node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lake::Lake;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tonic::transport::server::TcpIncoming;
use tonic_health::server::HealthReporter;
use tracing::{info, warn};
use wire::query::query_service_server::QueryServiceServer;
use wire::{DESCRIPTORS, MESSAGE_BYTES_MAX};

use crate::config::QueryConfig;
use crate::error::{QueryError, Result};
use crate::service::Service;
use crate::state::State;

/// The service's name, for health and reflection.
const SERVICE: &str = "bireme.query.v1.QueryService";

/// HTTP/2 windows, in bytes.
const WINDOW_BYTES: u32 = 8 << 20;

/// Requests that one connection may have outstanding.
const CONNECTION_REQUESTS_MAX: u32 = 4096;

/// How often an idle connection is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A query node that serves until it is shut down. Dropping it stops it at once.
pub struct QueryNode {
    local_addr: SocketAddr,
    state: Arc<State>,
    health: HealthReporter,
    stop: watch::Sender<bool>,
    server: JoinHandle<Result<()>>,
    follower: JoinHandle<()>,
}

impl QueryNode {
    /// Checks the configuration, takes the port, and serves. Tables are opened in the background: one
    /// that can't be opened is listed with its error, and tried again. Must be called within a
    /// multi-threaded tokio runtime.
    ///
    /// # Errors
    /// [`QueryError::Config`] and [`QueryError::Members`], [`QueryError::Listen`].
    pub async fn start(config: QueryConfig, lake: Lake) -> Result<Self> {
        let listen = config.listen;
        let refresh_interval = config.refresh_interval;
        let state = Arc::new(State::new(config, lake)?);
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| QueryError::Listen { address: listen.to_string(), source })?;
        let local_addr = listener
            .local_addr()
            .map_err(|source| QueryError::Listen { address: listen.to_string(), source })?;
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<QueryServiceServer<Service>>().await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(SERVICE)
            .with_service_name("grpc.health.v1.Health")
            .build_v1()
            .map_err(|error| QueryError::Server(error.to_string()))?;
        let service = QueryServiceServer::new(Service(Arc::clone(&state)))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (stop, mut stopped) = watch::channel(false);
        let router = tonic::transport::Server::builder()
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(2 * WINDOW_BYTES)
            .max_concurrent_streams(CONNECTION_REQUESTS_MAX)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .add_service(health_service)
            .add_service(reflection)
            .add_service(service);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = tokio::spawn(async move {
            // A node that is dropped stops as well.
            let stopped = async move { drop(stopped.wait_for(|&stopped| stopped).await) };
            let served = router.serve_with_incoming_shutdown(incoming, stopped).await;
            served.map_err(|error| QueryError::Server(error.to_string()))
        });
        let follower = tokio::spawn(follow(Arc::clone(&state), refresh_interval));
        info!(%local_addr, "the query node serves");
        Ok(Self { local_addr, state, health, stop, server, follower })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Rows answered from the tables since the start, because an I/O node could not.
    pub fn fallback_rows(&self) -> u64 {
        self.state.tier.fallback_rows()
    }

    /// Looks at every table for a new version now, instead of when the interval is over.
    pub async fn refresh(&self) {
        self.state.catalog.refresh().await;
    }

    /// Says that it is not serving any more, takes no further connections, lets requests end, and
    /// drops those that haven't after `patience`.
    ///
    /// # Errors
    /// [`QueryError::Server`] if the server broke.
    pub async fn shutdown(mut self, patience: Duration) -> Result<()> {
        self.health.set_not_serving::<QueryServiceServer<Service>>().await;
        self.follower.abort();
        self.stop.send_replace(true);
        match tokio::time::timeout(patience, &mut self.server).await {
            Ok(Ok(served)) => served,
            Ok(Err(error)) => Err(QueryError::Server(error.to_string())),
            Err(_) => {
                warn!("requests were still running after {patience:?}, and are dropped");
                Ok(())
            }
        }
    }
}

impl Drop for QueryNode {
    fn drop(&mut self) {
        self.follower.abort();
        self.server.abort();
    }
}

/// Opens the tables, and follows them.
async fn follow(state: Arc<State>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        state.catalog.refresh().await;
    }
}
