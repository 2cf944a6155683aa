//! A shard: one core's thread, with its own runtime, gRPC server and streams to the I/O nodes.
//!
//! A request stays on the core whose connection it arrived on, from socket to socket. Only the opening of tables, work
//! that Lance plans, table reads, long computations, and look-ups that have to wait run in the background
//! (`state/admission.rs`).

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use connections::{Accepted, ServeOptions, idle};
use membership::View;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use traffic::{ProjectionMemory, TrafficMemory, small_requests_max};
use wire::query::query_service_server::QueryServiceServer;
use wire::{DESCRIPTORS, MESSAGE_BYTES_MAX};

use crate::call_rules::{REQUEST_BYTES_MAX, call_rule};
use crate::counters::ShardMetrics;
use crate::error::{QueryError, Result};
use crate::http;
use crate::io_nodes::IoTier;
use crate::service::Service;
use crate::state::{NodeState, RowMemory, ShardState, WaitingRequests};

/// The query service's name, for reflection.
const SERVICE: &str = "bireme.query.v1.QueryService";

/// Interval of HTTP/2 pings on an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The phase of a node's life, which each shard follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serve requests.
    Serving,
    /// Accept no more connections, and stop when the present ones have ended.
    Draining,
    /// Stop at once.
    Stopped,
}

/// The parameters of one shard, in addition to the node's state.
pub struct ShardStart<H> {
    /// The shard's number within the node.
    pub number: usize,
    /// The node's phase. The shard stops when the sender is dropped.
    pub phase: watch::Receiver<Phase>,
    /// The health service, which all shards share.
    pub health: HealthServer<H>,
    /// Receives the shard's result once, when it has ended.
    pub ended: mpsc::UnboundedSender<Result<()>>,
}

/// A running shard: the sender of accepted connections, and the state of its requests.
pub type Started = (mpsc::UnboundedSender<Accepted>, Weak<ShardState>);

/// Starts a shard's thread.
///
/// # Errors
/// If the thread or its runtime cannot be created, or the I/O nodes cannot be used.
pub fn start<H: Health>(shared: &Arc<NodeState>, start: ShardStart<H>) -> Result<Started> {
    let (dealt, connections) = mpsc::unbounded_channel();
    let (started, outcome) = std::sync::mpsc::channel();
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name(format!("bireme-query-{}", start.number))
        .spawn(move || match prepare(shared) {
            Ok(prepared) => {
                let (_, state, _) = &prepared;
                let _ = started.send(Ok(Arc::downgrade(state)));
                run(prepared, connections, start);
            }
            Err(error) => drop(started.send(Err(error))),
        })
        .map_err(os)?;
    // A thread that panics drops its sender.
    let ended = |_| Err(os(io::Error::other("its thread ended")));
    Ok((dealt, outcome.recv().unwrap_or_else(ended)?))
}

fn os(error: io::Error) -> QueryError {
    QueryError::Server(format!("starting a core: {error}"))
}

/// A shard's runtime, its state, and the views of the I/O nodes.
type Prepared = (Runtime, Arc<ShardState>, watch::Receiver<View>);

/// Creates the runtime and the state. Must run on the shard's own thread: dropping a runtime blocks, which is not
/// allowed within another runtime's task.
fn prepare(shared: Arc<NodeState>) -> Result<Prepared> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(os)?;
    let mut views = shared.io_nodes.views();
    let tier = {
        let _entered = runtime.enter();
        let view = views.borrow_and_update().clone();
        IoTier::new(&shared.config, &shared.io_nodes, &view)?
    };
    let handle = runtime.handle().clone();
    let (metrics, activity) = (ShardMetrics::default(), Arc::default());
    let memory = TrafficMemory::new(shared.core_traffic);
    let row_memory = RowMemory::new(&memory);
    let projection_memory = ProjectionMemory::of(&memory);
    let waiting_requests = WaitingRequests::default();
    let state = ShardState {
        shared,
        tier,
        metrics,
        activity,
        waiting_requests,
        memory,
        row_memory,
        projection_memory,
        runtime: handle,
    };
    Ok((runtime, Arc::new(state), views))
}

fn run<H: Health>(
    prepared: Prepared,
    connections: mpsc::UnboundedReceiver<Accepted>,
    start: ShardStart<H>,
) {
    let (runtime, state, views) = prepared;
    let ShardStart { mut phase, health, ended, .. } = start;
    runtime.spawn(idle::poll(state.shared.config.idle_poll, Arc::clone(&state.activity)));
    let following = Arc::clone(&state);
    runtime.spawn(async move { following.tier.follow(&following.shared.io_nodes, views).await });
    let served = runtime.block_on(async {
        tokio::select! {
            served = serve(state, connections, phase.clone(), health) => served,
            _ = phase.wait_for(|&phase| phase == Phase::Stopped) => Ok(()),
        }
    });
    // Nobody waits for the remaining tasks.
    runtime.shutdown_background();
    let _ = ended.send(served);
}

async fn serve<H: Health>(
    state: Arc<ShardState>,
    mut connections: mpsc::UnboundedReceiver<Accepted>,
    mut phase: watch::Receiver<Phase>,
    health: HealthServer<H>,
) -> Result<()> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(SERVICE)
        .with_service_name("grpc.health.v1.Health")
        .build_v1()
        .map_err(|error| QueryError::Server(error.to_string()))?;
    let memory = Arc::clone(&state.memory);
    let streams_max = small_requests_max(memory.max());
    let (plain, of_plain) = (http::plain_calls(Arc::clone(&state)), Arc::clone(&state));
    let service = QueryServiceServer::new(Service(state))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let routes = Routes::new(health).add_service(reflection).add_service(service);
    let routes = Routes::from(http::with_plain_routes(routes.into_axum_router(), of_plain));
    let options = ServeOptions {
        memory,
        rules: Arc::new(call_rule),
        plain: Some(plain),
        frame_bytes: None,
        streams_max,
        give_back: Some(process::give_back_memory),
        keep_alive: Some(KEEP_ALIVE),
    };
    let (adopted, served) = mpsc::unbounded_channel();
    let adopting = async move {
        while let Some(accepted) = connections.recv().await {
            accepted.adopt().into_iter().for_each(|it| drop(adopted.send(it)));
        }
        // The acceptor has ended; the present connections are still served.
        std::future::pending::<()>().await;
    };
    let draining = async move { drop(phase.wait_for(|&phase| phase != Phase::Serving).await) };
    tokio::select! {
        () = connections::serve(served, routes, options, draining) => Ok(()),
        () = adopting => Ok(()),
    }
}
