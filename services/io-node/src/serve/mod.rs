//! Serves `bireme.fetch.v1` over gRPC, with one server per core.

mod describe;
mod other_calls;
mod peer_gate;
mod readiness;
mod release;
mod reply_body;
mod server;
mod service_state;
mod start_warms;
mod stream;
mod warm;

use std::sync::Arc;

use connections::{ServeOptions, Served};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use self::readiness::ReadinessState;
use self::server::{FetchServer, call_rule};
use crate::fetch::here;

pub use peer_gate::PeerGate;
pub use readiness::Readiness;
pub use service_state::ServiceState;
pub use start_warms::StartWarms;
pub use stream::opened;

/// The largest HTTP/2 frame that a client may send, in bytes.
const FRAME_BYTES: u32 = 1 << 20;

/// The maximum number of concurrent calls (HTTP/2 streams) on one connection. At 16 KiB each, they take all that
/// streams may take of the smallest traffic memory of a core: half of 32 MiB.
const STREAMS_A_CONNECTION: u32 = 1024;

/// The service's full name.
const FETCH_SERVICE: &str = "bireme.fetch.v1.FetchService";

/// Serves the connections that this core receives. Returns after `stopping` is cancelled and all connections have
/// ended.
pub async fn serve(
    shared: Arc<ServiceState>,
    connections: mpsc::UnboundedReceiver<Served>,
    stopping: CancellationToken,
) {
    let (health, health_service) = tonic_health::server::health_reporter();
    let mut states = shared.readiness.states();
    match shared.readiness.is_ready() {
        true => health.set_serving::<FetchServer>().await,
        false => health.set_not_serving::<FetchServer>().await,
    }
    let (gate, end) = (health.clone(), stopping.clone());
    tokio::spawn(async move {
        let is_ready =
            async { states.wait_for(|&state| state == ReadinessState::Ready).await.is_ok() };
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            true = is_ready => gate.set_serving::<FetchServer>().await,
            else => {}
        }
    });
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors contain the services of both tiers, so list only those of this node.
        .with_service_name(FETCH_SERVICE)
        .with_service_name("grpc.health.v1.Health")
        .build_v1();
    let reflection = match reflection {
        Ok(reflection) => Some(reflection),
        Err(error) => {
            tracing::error!(%error, "server reflection is unavailable");
            None
        }
    };
    let give_back = shared.give_back;
    let fetch = FetchServer::new(shared, stopping.clone());
    let stopped = async move {
        stopping.cancelled().await;
        health.set_not_serving::<FetchServer>().await;
    };
    let mut routes = Routes::new(fetch).add_service(health_service);
    if let Some(reflection) = reflection {
        routes = routes.add_service(reflection);
    }
    let options = ServeOptions {
        memory: Arc::clone(&here().traffic_memory),
        rules: Arc::new(call_rule),
        plain: None,
        frame_bytes: Some(FRAME_BYTES),
        streams_max: STREAMS_A_CONNECTION,
        give_back,
        // Clients send keep-alives themselves.
        keep_alive: None,
    };
    connections::serve(connections, routes, options, stopped).await;
}
