//! The I/O nodes behind this node.

use std::sync::Arc;

use address::RowAddr;
use client::fetch::{FetchClient, FetchOptions};
use placement::Members;

use crate::config::QueryConfig;
use crate::error::Result;
use crate::tables::OpenTable;

/// Who owns which chunk, and how to talk to it.
pub struct IoTier {
    members: Members,
    /// As the members are.
    clients: Vec<FetchClient>,
}

impl IoTier {
    /// Starts connecting to all of them, within a runtime; those that aren't there yet are connected
    /// later.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &QueryConfig) -> Result<Self> {
        let members = config.members()?;
        let spares = Arc::default();
        let options = || FetchOptions {
            streams: config.streams_per_io_node,
            queue_batches_max: config.fetch_queue_max,
            spares: Arc::clone(&spares),
            ..Default::default()
        };
        let client = |member: &placement::Member| {
            let endpoint = member.endpoint.parse().map_err(wire::Fault::from)?;
            Ok(FetchClient::new(endpoint, options())?)
        };
        let clients = members.as_slice().iter().map(client).collect::<Result<_>>()?;
        Ok(Self { members, clients })
    }

    /// The client of each I/O node, in the order of the configuration.
    pub fn clients(&self) -> &[FetchClient] {
        &self.clients
    }

    /// The members, for placement.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Which I/O node owns the row at `addr`: its place among the clients.
    pub fn owner(&self, open: &OpenTable, addr: RowAddr) -> usize {
        self.members.owner(open.hash, open.chunk_of(addr))
    }
}
