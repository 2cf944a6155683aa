//! The I/O nodes, as all cores see them: their list, followed, and how each of them does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use client::fetch::Outage;
use connections::tls::ClientTls;
use membership::{Membership, Policy, Report, Settings, View};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::QueryConfig;
use crate::ejection::{Ejection, EjectionPolicy};
use crate::error::{QueryError, Result};

/// What a list is called that is in the configuration.
const FIXED: &str = "configuration";

/// The I/O nodes of a query node.
pub struct IoNodes {
    /// How they are spoken to, if not in the clear.
    pub tls: Option<Arc<ClientTls>>,
    membership: Membership,
    policy: EjectionPolicy,
    /// By name and endpoint. Locked where routes are made, not on the way of a request.
    health_by_node: Mutex<HashMap<(String, String), Weak<NodeHealth>>>,
    ejected: AtomicU64,
}

/// How one I/O node does, over all cores.
#[derive(Debug)]
pub struct NodeHealth {
    /// Whether it is let be for failing.
    pub ejection: Ejection,
    /// By which all cores' clients tell once that it was found, or lost.
    pub outage: Arc<Outage>,
}

impl IoNodes {
    /// Those of the configuration, or of the source that it names; waits for its first word.
    ///
    /// # Errors
    /// [`QueryError::Members`] for a list that is refused.
    pub async fn start(config: &QueryConfig) -> Result<Self> {
        let tls = config.io_tls.as_ref().map(ClientTls::load).transpose();
        let tls = tls.map_err(|error| QueryError::Tls { field: "io_tls", error })?;
        let membership = match &config.io_nodes_from {
            None => Membership::fixed(&config.members()?, FIXED),
            Some(source) => {
                let policy = Policy { hold: config.member_hold, slow_start: config.slow_start };
                let settings = Settings { refresh: config.member_refresh, policy };
                let followed = Membership::follow(source, settings).await;
                followed.map_err(|error| QueryError::members("io_nodes_from", error))?
            }
        };
        let policy = EjectionPolicy {
            failures: config.ejection_failures,
            time: config.ejection_time,
            time_max: config.ejection_time_max,
        };
        let (health_by_node, ejected) = Default::default();
        Ok(Self { tls, membership, policy, health_by_node, ejected })
    }

    /// Where the list comes from.
    pub fn source(&self) -> &str {
        self.membership.source()
    }

    /// The members, now and whenever they change.
    pub fn views(&self) -> watch::Receiver<View> {
        self.membership.views()
    }

    /// How the following of the source goes.
    pub fn report(&self) -> Report {
        self.membership.reports().borrow().clone()
    }

    /// How the member of that name does, there; the same for all cores, as long as one of them has it.
    pub fn health_of(&self, name: &str, endpoint: &str) -> Arc<NodeHealth> {
        let key = (name.to_owned(), endpoint.to_owned());
        let mut known = self.health_by_node.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(health) = known.get(&key).and_then(Weak::upgrade) {
            return health;
        }
        known.retain(|_, health| health.strong_count() > 0);
        let ejection = Ejection::new(name, self.policy, rand::random(), Instant::now());
        let health = Arc::new(NodeHealth { ejection, outage: Arc::default() });
        known.insert(key, Arc::downgrade(&health));
        health
    }

    /// Counts an ejection.
    pub fn count_ejection(&self) {
        self.ejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Ejections since the start.
    pub fn ejected(&self) -> u64 {
        self.ejected.load(Ordering::Relaxed)
    }
}
