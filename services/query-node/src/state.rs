//! What all requests share.

use std::sync::atomic::{AtomicU64, Ordering};

use lake::Lake;
use wire::Fault;

use crate::config::QueryConfig;
use crate::cores::Cores;
use crate::error::Result;
use crate::io_tier::IoTier;
use crate::tables::Catalog;

/// A query node's configuration, tables, I/O nodes, cores and counters.
pub struct State {
    pub config: QueryConfig,
    pub catalog: Catalog,
    pub tier: IoTier,
    pub cores: Cores,
    requests: AtomicU64,
    errors: AtomicU64,
}

impl State {
    /// Starts connecting to the I/O nodes; opens no table yet.
    pub fn new(config: QueryConfig, lake: Lake) -> Result<Self> {
        config.validate()?;
        let concurrency = match config.search_concurrency {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            concurrency => concurrency,
        };
        Ok(Self {
            catalog: Catalog::new(lake, &config),
            tier: IoTier::new(&config)?,
            cores: Cores::new(concurrency, config.search_queue_max),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
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

    /// Requests answered since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Of those, with an error.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}
