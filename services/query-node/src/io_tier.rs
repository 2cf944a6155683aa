//! The I/O nodes behind this node, as one core asks them.
//!
//! [`Routes`] are who owns what and how to talk to it, at one moment. A new list makes new routes, with
//! the clients of members that stayed where they are; what is under way ends on the routes with which it
//! began, and a client that no routes have any more ends with the last of it.

use std::sync::Arc;
use std::time::Duration;

use address::{ChunkId, RowAddr};
use arc_swap::ArcSwap;
use client::Network;
use client::fetch::{FetchClient, FetchOptions};
use futures::future::join_all;
use membership::{Seat, State, View};
use placement::{Member, Members};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::query::MemberState;

use crate::config::QueryConfig;
use crate::error::Result;
use crate::io_nodes::{IoNodes, NodeHealth};
use crate::tables::OpenTable;

/// How long a member that joins may take to be connected before it is asked.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// One core's way to the I/O nodes.
pub struct IoTier {
    routes: ArcSwap<Routes>,
    options: FetchOptions,
}

/// Who owns which chunk, and how to talk to it.
#[derive(Default)]
pub struct Routes {
    /// `None` while there is nobody.
    members: Option<Members>,
    /// As the members are.
    nodes: Vec<Arc<Node>>,
}

/// One I/O node.
pub struct Node {
    /// Its place in the list.
    pub seat: Seat,
    /// Its name as traces have it: this core's, so that cores don't count references to the same.
    pub name: Arc<str>,
    /// Where it listens, likewise.
    pub address: Arc<str>,
    /// This core's streams to it.
    pub client: FetchClient,
    /// How it does, over all cores.
    pub health: Arc<NodeHealth>,
}

impl IoTier {
    /// Starts connecting to all that are in `view`, within a runtime; those that aren't there yet are
    /// connected later.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &QueryConfig, nodes: &IoNodes, view: &View) -> Result<Self> {
        let network = match &nodes.tls {
            None => Network::Tcp,
            Some(tls) => Network::Tls(Arc::clone(tls)),
        };
        let options = FetchOptions {
            network,
            streams: config.streams_per_io_node,
            queue_batches_max: config.fetch_queue_max,
            ..Default::default()
        };
        let routes = Routes::default().with(view, nodes, &options)?;
        Ok(Self { routes: ArcSwap::from_pointee(routes), options })
    }

    /// Who is asked now.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Follows the members until nobody tells of them any more.
    pub async fn follow(&self, nodes: &IoNodes, mut views: watch::Receiver<View>) {
        while views.changed().await.is_ok() {
            let view = views.borrow_and_update().clone();
            let before = self.routes();
            let routes = match before.with(&view, nodes, &self.options) {
                Ok(routes) => routes,
                Err(error) => {
                    tracing::error!("the new I/O nodes can't be used, the last ones stay: {error}");
                    continue;
                }
            };
            // Nobody waits for a connection to who has just come.
            let deadline = Instant::now() + CONNECT_PATIENCE;
            let is_new = |node: &&Arc<Node>| before.find(&node.seat).is_none();
            // One that is going anyway is not waited for.
            let is_wanted = |node: &&Arc<Node>| {
                matches!(node.seat.state, State::Ready | State::Joining) && is_new(node)
            };
            let new = routes.nodes.iter().filter(is_wanted);
            let _ = join_all(new.map(|node| node.client.ready(deadline))).await;
            self.routes.store(Arc::new(routes));
        }
    }
}

impl Routes {
    /// The I/O nodes, by name.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Which I/O node owns the row at `addr`: its place among the nodes. There must be one.
    pub fn owner(&self, open: &OpenTable, addr: RowAddr) -> usize {
        self.owner_of_chunk(open, open.chunk_of(addr))
    }

    /// Which I/O node owns a chunk.
    pub fn owner_of_chunk(&self, open: &OpenTable, chunk: ChunkId) -> usize {
        self.members.as_ref().map_or(0, |members| members.owner(open.hash, chunk))
    }

    /// Routes of another list.
    fn with(&self, view: &View, nodes: &IoNodes, options: &FetchOptions) -> Result<Self> {
        let member = |seat: &Seat| Member {
            name: seat.name.clone(),
            endpoint: seat.endpoint.to_string(),
            weight: seat.share,
        };
        let members = match &*view.seats {
            [] => None,
            seats => Some(Members::new(seats.iter().map(member).collect())?),
        };
        let node = |seat: &Seat| {
            let address = seat.endpoint.to_string();
            let health = nodes.health_of(&seat.name, &address);
            let client = match self.find(seat) {
                Some(before) => before.client.clone(),
                None => {
                    let jitter_seed = rand::random();
                    let outage = Some(Arc::clone(&health.outage));
                    let options = FetchOptions { jitter_seed, outage, ..options.clone() };
                    FetchClient::new(seat.endpoint.clone(), options)?
                }
            };
            let (name, address) = (seat.name.as_str().into(), address.into());
            Ok(Arc::new(Node { seat: seat.clone(), name, address, client, health }))
        };
        let nodes = view.seats.iter().map(node).collect::<Result<_>>()?;
        Ok(Self { members, nodes })
    }

    /// The same member where it was.
    fn find(&self, seat: &Seat) -> Option<&Arc<Node>> {
        let is_same =
            |node: &&Arc<Node>| node.seat.name == seat.name && node.seat.endpoint == seat.endpoint;
        self.nodes.iter().find(is_same)
    }
}

impl Node {
    /// How it is.
    pub fn state(&self) -> MemberState {
        match self.seat.state {
            State::Draining => MemberState::Draining,
            State::Away => MemberState::Away,
            State::Ready | State::Joining if self.health.ejection.is_ejected(Instant::now()) => {
                MemberState::Ejected
            }
            State::Ready => MemberState::Ready,
            State::Joining => MemberState::Joining,
        }
    }

    /// Why it is not to be asked now, if so. Where it is let be for failing, whoever asks after that
    /// time tries it.
    pub fn reason_to_skip(&self) -> Option<&'static str> {
        match self.seat.state {
            State::Draining => return Some("it is draining"),
            // The list may be mistaken, or late; a connection that stands is not.
            State::Away if !self.client.is_connected() => return Some("it is away"),
            State::Away | State::Ready | State::Joining => {}
        }
        (!self.health.ejection.may_ask(Instant::now())).then_some("it failed lately")
    }
}
