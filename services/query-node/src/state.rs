//! What requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lake::Lake;
use tokio::runtime::Handle;
use wire::Fault;

use crate::config::QueryConfig;
use crate::error::Result;
use crate::io_nodes::IoNodes;
use crate::io_tier::IoTier;
use crate::tables::Catalog;
use crate::turns::Turns;

/// What the requests of one core share.
pub struct State {
    /// What they share with those of other cores.
    pub shared: Arc<Shared>,
    /// The core's own streams to the I/O nodes.
    pub tier: IoTier,
}

/// A query node's configuration, tables, turns and counters.
pub struct Shared {
    pub config: QueryConfig,
    pub catalog: Catalog,
    pub turns: Turns,
    pub io_nodes: IoNodes,
    requests: AtomicU64,
    errors: AtomicU64,
    fallback_rows: AtomicU64,
}

impl Shared {
    /// Opens no table yet. `background` runs what Lance plans. Waits for the first word of where the
    /// I/O nodes are learnt from.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub async fn new(config: QueryConfig, lake: Lake, background: Handle) -> Result<Self> {
        config.validate()?;
        let io_nodes = IoNodes::start(&config).await?;
        let concurrency = match config.search_concurrency {
            0 => config.core_count(),
            concurrency => concurrency,
        };
        Ok(Self {
            catalog: Catalog::new(lake, &config, background.clone()),
            turns: Turns::new(concurrency, config.search_queue_max, background),
            io_nodes,
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            fallback_rows: AtomicU64::new(0),
            config,
        })
    }

    /// Counts a request when it is answered, and what is wrong with it.
    pub fn count<T>(&self, answer: Result<T>) -> std::result::Result<T, Fault> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        answer.map_err(|error| {
            self.errors.fetch_add(1, Ordering::Relaxed);
            let fault = Fault::from(error);
            if fault.reason == wire::Reason::Internal {
                tracing::error!("{fault}");
            }
            fault
        })
    }

    /// Counts rows that were answered from the table because an I/O node could not.
    pub fn count_fallback(&self, rows: usize) {
        self.fallback_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Requests answered since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Of those, with an error.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Rows answered from the tables since the start, because an I/O node could not.
    pub fn fallback_rows(&self) -> u64 {
        self.fallback_rows.load(Ordering::Relaxed)
    }
}
