//! One core's routes to the I/O nodes, which follow the list of members.
//!
//! [`Routes`] map chunks to their owners and owners to clients, for one list of members. A new list makes new routes,
//! which reuse the clients of members whose name and endpoint have not changed. Requests in progress finish on the
//! routes with which they began. A client that is in no routes any more is dropped with the last of these requests.

use std::sync::Arc;
use std::time::Duration;

use address::ChunkId;
use arc_swap::ArcSwap;
use client::Network;
use client::fetch::{FetchClient, FetchOptions};
use futures::future::join_all;
use membership::{MemberState, View, ViewMember};
use placement::{Member, Members, TableHash};
use tokio::sync::watch;
use tokio::time::Instant;

use super::node::Node;
use super::nodes::IoNodes;
use crate::config::QueryConfig;
use crate::error::Result;
use crate::tables::OpenTable;

/// The maximum time that new routes wait for the connections to new members before they are used. One attempt to
/// connect takes at most as long (`FetchOptions::connect_timeout`).
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// One core's routes to the I/O nodes, which follow the list of members.
pub struct IoTier {
    routes: ArcSwap<Routes>,
    options: FetchOptions,
}

/// The owners of chunks, and their clients, for one list of members.
#[derive(Default)]
pub struct Routes {
    /// The members, which own the chunks; `None` if the list is empty.
    members: Option<Members>,
    /// The nodes, in the order of the members.
    nodes: Vec<Arc<Node>>,
}

impl IoTier {
    /// Starts connecting to all members of `view`. Clients keep trying to connect to unreachable members. Must be
    /// called within a Tokio runtime.
    ///
    /// # Errors
    /// If the members are refused, or the client of a member cannot be created.
    pub fn new(config: &QueryConfig, nodes: &IoNodes, view: &View) -> Result<Self> {
        let network = match &nodes.tls {
            None => Network::Tcp,
            Some(tls) => Network::Tls(Arc::clone(tls)),
        };
        let options = FetchOptions {
            network,
            prover: nodes.prover.clone(),
            streams: config.streams_per_io_node,
            queue_batches_max: config.fetch_queue_max,
            ..Default::default()
        };
        let routes = Routes::default().with(view, nodes, &options)?;
        Ok(Self { routes: ArcSwap::from_pointee(routes), options })
    }

    /// Returns the current routes.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Drops the clients of all members. Requests in progress finish; further ones find no I/O node.
    pub fn disconnect(&self) {
        self.routes.store(Arc::default());
    }

    /// Makes new routes for each new list of members, until the sender of the lists is dropped.
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
            // Connect to new members before their routes are used, so that no request waits for a connection.
            let deadline = Instant::now() + CONNECT_PATIENCE;
            let is_new = |node: &&Arc<Node>| before.find(&node.member).is_none();
            // Do not wait for a member that is draining or away.
            let is_wanted = |node: &&Arc<Node>| {
                matches!(node.member.state, MemberState::Ready | MemberState::Joining)
                    && is_new(node)
            };
            let new = routes.nodes.iter().filter(is_wanted);
            let _ = join_all(new.map(|node| node.client.ready(deadline))).await;
            self.routes.store(Arc::new(routes));
        }
    }
}

impl Routes {
    /// Returns the I/O nodes, sorted by name.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Returns whether an I/O node probably answers requests now.
    pub fn is_available(&self) -> bool {
        self.nodes.iter().any(|node| node.is_available())
    }

    /// Returns the index in [`nodes`](Self::nodes) of the owner of `chunk`. There must be a node.
    pub fn owner_of_chunk(&self, open: &OpenTable, chunk: ChunkId) -> usize {
        self.owner_of(open.hash, chunk).unwrap_or(0)
    }

    /// Returns the index in [`nodes`](Self::nodes) of the owner of a chunk of the table or file with the hash `hash`;
    /// `None` if there is no node.
    pub fn owner_of(&self, hash: TableHash, chunk: ChunkId) -> Option<usize> {
        self.members.as_ref().map(|members| members.owner(hash, chunk))
    }

    /// Makes the routes for `view`. Members that `self` has under the same name and endpoint keep their clients.
    fn with(&self, view: &View, nodes: &IoNodes, options: &FetchOptions) -> Result<Self> {
        let placed = |member: &ViewMember| Member {
            name: member.name.clone(),
            endpoint: member.endpoint.to_string(),
            weight: member.share,
        };
        let members = match &*view.members {
            [] => None,
            listed => Some(Members::new(listed.iter().map(placed).collect())?),
        };
        let node = |member: &ViewMember| {
            let address = member.endpoint.to_string();
            let health = nodes.health_of(&member.name, &address);
            let client = match self.find(member) {
                Some(before) => before.client.clone(),
                None => {
                    nodes.warn_if_unverified(&member.endpoint);
                    let jitter_seed = rand::random();
                    let outage = Some(Arc::clone(&health.outage));
                    let options = FetchOptions { jitter_seed, outage, ..options.clone() };
                    FetchClient::new(member.endpoint.clone(), options)?
                }
            };
            let (name, address) = (member.name.as_str().into(), address.into());
            Ok(Arc::new(Node { member: member.clone(), name, address, client, health }))
        };
        let nodes = view.members.iter().map(node).collect::<Result<_>>()?;
        Ok(Self { members, nodes })
    }

    /// Returns the node that has the name and endpoint of `member`.
    fn find(&self, member: &ViewMember) -> Option<&Arc<Node>> {
        let is_same = |node: &&Arc<Node>| {
            node.member.name == member.name && node.member.endpoint == member.endpoint
        };
        self.nodes.iter().find(is_same)
    }
}
