//! The state that all cores of a node share.

use std::sync::Arc;

use audit::Audit;
use ring::SlabFile;
use telemetry::Tracer;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::table_reader::TableReader;
use crate::cache::FillHandle;
use crate::config::IoConfig;
use crate::shard::CoreSnapshot;
use crate::shard::mailbox::{Mailbox, Message};
use crate::table::Registry;

/// State that all cores of a node share. A fetch whose rows are all on drives takes none of its locks.
pub struct NodeState {
    /// The configuration, validated.
    pub config: IoConfig,
    /// Threads for short work that does not run on the cores: opening tables, and reading rows from them.
    pub background: Handle,
    /// Open versions of tables.
    pub tables: Registry,
    /// The filler.
    pub fills: FillHandle,
    /// The permit that a Release holds while it evicts blocks: one at a time.
    pub release_permit: Arc<Semaphore>,
    /// Reads rows from tables.
    pub table_reader: TableReader,
    /// Each core's mailbox.
    pub mailboxes: Arc<[Mailbox]>,
    /// The drives.
    pub slabs: Vec<SlabFile>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// Exports the spans of batches.
    pub tracer: Tracer,
}

impl NodeState {
    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// Collects a snapshot from each core.
    pub async fn snapshots(&self) -> Vec<CoreSnapshot> {
        let mut cores = Vec::with_capacity(self.cores());
        for mailbox in self.mailboxes.iter() {
            let (ask, snapshot) = oneshot::channel();
            let _ = mailbox.send(Message::Describe(ask));
            // A core that has stopped does not answer.
            cores.extend(snapshot.await.ok());
        }
        cores
    }
}
