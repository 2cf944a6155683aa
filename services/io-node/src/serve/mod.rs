//! The edge: `bireme.fetch.v1` over gRPC, one server a core.

mod connection;
mod describe;
mod edge;
mod reply_body;
mod request_body;
mod server;
mod stream;
mod warm;

use std::sync::Arc;

use connections::Carrier;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;

use crate::core::here;
use crate::readiness::State;

pub use stream::opened;

pub use connection::Accepted;

use connection::Connection;
use server::FetchServer;

/// What HTTP/2 may have outstanding, in bytes, a stream and a connection: more than credits allow in
/// practice, so that credits and not flow control bound a stream.
const WINDOW_BYTES: u32 = 16 << 20;

/// The largest HTTP/2 frame, in bytes.
const FRAME_BYTES: u32 = 1 << 20;

/// Calls at the same time on one connection.
const STREAMS_A_CONNECTION: u32 = 1024;

/// The service's full name.
const FETCH_SERVICE: &str = "bireme.fetch.v1.FetchService";

/// Serves the connections dealt to this core, until told to stop and all streams have ended.
pub async fn serve(
    connections: mpsc::UnboundedReceiver<Box<dyn Carrier>>,
    mut stopping: watch::Receiver<bool>,
) {
    let shared = Arc::clone(&here().shared);
    let tls = shared.tls.clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    let mut states = shared.readiness.states();
    match shared.readiness.is_ready() {
        true => health.set_serving::<FetchServer>().await,
        false => health.set_not_serving::<FetchServer>().await,
    }
    let (gate, mut end) = (health.clone(), stopping.clone());
    tokio::spawn(async move {
        let is_ready = async { states.wait_for(|&state| state == State::Ready).await.is_ok() };
        let ends = async { end.wait_for(|&stop| stop).await.is_ok() };
        tokio::select! {
            biased;
            _ = ends => {}
            true = is_ready => gate.set_serving::<FetchServer>().await,
            else => {}
        }
    });
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors hold both tiers' services.
        .with_service_name(FETCH_SERVICE)
        .with_service_name("grpc.health.v1.Health")
        .build_v1();
    let reflection = match reflection {
        Ok(reflection) => Some(reflection),
        Err(error) => {
            tracing::error!(%error, "no server reflection");
            None
        }
    };
    let fetch = FetchServer::new(shared, stopping.clone());
    let incoming = connections::secured(UnboundedReceiverStream::new(connections), tls);
    let incoming = StreamExt::filter_map(incoming, Connection::new);
    let incoming = incoming.map(Ok::<_, std::io::Error>);
    let stopped = async move {
        let _ = stopping.wait_for(|&stop| stop).await;
        health.set_not_serving::<FetchServer>().await;
    };
    let served = Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(STREAMS_A_CONNECTION)
        .add_service(fetch)
        .add_service(health_service)
        .add_optional_service(reflection)
        .serve_with_incoming_shutdown(incoming, stopped)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "a core's server ended");
    }
}
