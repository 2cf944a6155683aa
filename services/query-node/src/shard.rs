//! One core: a thread with a runtime of its own, a gRPC server and streams to the I/O nodes.
//!
//! A request stays on the core whose connection it came over, from socket to socket; what Lance has to
//! plan or read runs in the background (`admission.rs`).

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use connections::{Accepted, ServeOptions, idle};
use membership::View;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use traffic::TrafficMemory;
use wire::query::query_service_server::QueryServiceServer;
use wire::{DESCRIPTORS, MESSAGE_BYTES_MAX};

use crate::error::{QueryError, Result};
use crate::io_tier::IoTier;
use crate::message_limits::MessageLimits;
use crate::metrics::ShardMetrics;
use crate::service::Service;
use crate::state::{NodeState, ShardState};

/// The service's name, for health and reflection.
const SERVICE: &str = "bireme.query.v1.QueryService";

/// Requests that one connection may have outstanding.
const CONNECTION_REQUESTS_MAX: u32 = 4096;

/// How often an idle connection is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// What a core is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serve.
    Serving,
    /// Take no more connections, and end once those there are have ended.
    Draining,
    /// End now.
    Stopped,
}

/// What starts a core beside what it shares.
pub struct ShardStart<H> {
    /// Its place among the node's cores.
    pub number: usize,
    /// What it is to do; it stops when nobody can tell any more.
    pub phase: watch::Receiver<Phase>,
    /// Answers for all cores.
    pub health: HealthServer<H>,
    /// Told once, when it has ended.
    pub ended: mpsc::UnboundedSender<Result<()>>,
}

/// A core that runs: what takes the connections that it is dealt, and what its requests share.
pub type Started = (mpsc::UnboundedSender<Accepted>, Weak<ShardState>);

/// Starts a core's thread.
///
/// # Errors
/// A thread or a runtime that can't be had, and what is wrong with the I/O nodes.
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
    // A thread that panics drops its end.
    let ended = |_| Err(os(io::Error::other("its thread ended")));
    Ok((dealt, outcome.recv().unwrap_or_else(ended)?))
}

fn os(error: io::Error) -> QueryError {
    QueryError::Server(format!("starting a core: {error}"))
}

/// A core's runtime, what its requests share, and where the members are told of.
type Prepared = (Runtime, Arc<ShardState>, watch::Receiver<View>);

/// On the core's own thread: a runtime that is dropped waits, which another runtime's tasks must not.
fn prepare(shared: Arc<NodeState>) -> Result<Prepared> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(os)?;
    let mut views = shared.io_nodes.views();
    let tier = {
        let _entered = runtime.enter();
        let view = views.borrow_and_update().clone();
        IoTier::new(&shared.config, &shared.io_nodes, &view)?
    };
    let handle = runtime.handle().clone();
    let (metrics, stirs) = (ShardMetrics::default(), Arc::default());
    let memory = TrafficMemory::new(shared.core_traffic);
    let state = ShardState { shared, tier, metrics, stirs, memory, runtime: handle };
    Ok((runtime, Arc::new(state), views))
}

fn run<H: Health>(
    prepared: Prepared,
    connections: mpsc::UnboundedReceiver<Accepted>,
    start: ShardStart<H>,
) {
    let (runtime, state, views) = prepared;
    let ShardStart { mut phase, health, ended, .. } = start;
    runtime.spawn(idle::poll(state.shared.config.idle_poll, Arc::clone(&state.stirs)));
    let following = Arc::clone(&state);
    runtime.spawn(async move { following.tier.follow(&following.shared.io_nodes, views).await });
    let served = runtime.block_on(async {
        tokio::select! {
            served = serve(state, connections, phase.clone(), health) => served,
            _ = phase.wait_for(|&phase| phase == Phase::Stopped) => Ok(()),
        }
    });
    // What still runs is nobody's.
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
    let limits = MessageLimits::of(&state.shared.config.limits);
    let service = QueryServiceServer::new(Service(state))
        .max_decoding_message_size(limits.largest())
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let routes = Routes::new(health).add_service(reflection).add_service(service);
    let options = ServeOptions {
        memory,
        rules: Arc::new(move |path| limits.rule(path)),
        frame_bytes: None,
        streams_max: CONNECTION_REQUESTS_MAX,
        give_back: Some(process::give_back_memory),
        keep_alive: Some(KEEP_ALIVE),
    };
    let (adopted, served) = mpsc::unbounded_channel();
    let adopting = async move {
        while let Some(accepted) = connections.recv().await {
            accepted.adopt().into_iter().for_each(|it| drop(adopted.send(it)));
        }
        // The node has ended.
        std::future::pending::<()>().await;
    };
    let draining = async move { drop(phase.wait_for(|&phase| phase != Phase::Serving).await) };
    tokio::select! {
        () = connections::serve(served, routes, options, draining) => Ok(()),
        () = adopting => Ok(()),
    }
}
