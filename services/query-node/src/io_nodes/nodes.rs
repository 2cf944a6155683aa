//! The state of the I/O nodes, shared by all cores: the list of members, which is kept up to date, and each node's
//! health.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use client::Endpoint;
use client::fetch::Outage;
use connections::tls::ClientTls;
use membership::{Membership, Policy, Report, Settings, View};
use peers::{Prover, SecretFile};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::Fault;

use super::ejection::{Ejection, EjectionPolicy};
use super::faults::{blames_node, has_answered};
use crate::config::QueryConfig;
use crate::error::{QueryError, Result};

/// Source name of a list that is in the configuration.
const FIXED: &str = "configuration";

/// The I/O nodes of a query node.
pub struct IoNodes {
    /// TLS for connections to I/O nodes; `None` if they are unencrypted.
    pub tls: Option<Arc<ClientTls>>,
    /// Proves to I/O nodes that this node knows the secret of both tiers, if they share one.
    pub prover: Option<Arc<Prover>>,
    membership: Membership,
    policy: EjectionPolicy,
    /// Each node's health, by name and endpoint. Locked when routes are made, not during requests.
    health_by_node: Mutex<HashMap<(String, String), Weak<NodeHealth>>>,
    ejected: Arc<AtomicU64>,
    /// Whether the warning about an unverified I/O node has been logged.
    is_warned: AtomicBool,
}

/// The health of one I/O node, shared by all cores.
#[derive(Debug)]
pub struct NodeHealth {
    /// Whether the node is ejected.
    pub ejection: Ejection,
    /// The number of open streams to the node. All cores' clients share it, so that the loss of the node and its return
    /// are logged once, not by each client.
    pub outage: Arc<Outage>,
    /// The number of ejections of all nodes.
    ejected: Arc<AtomicU64>,
}

impl NodeHealth {
    /// Takes into account that a request to the node succeeded, or failed with `fault`, after `took`.
    pub fn judge(&self, fault: Option<&Fault>, took: Duration) {
        match fault {
            Some(fault) if blames_node(fault, took) => {
                if self.ejection.failed(Instant::now(), &fault.message) {
                    self.ejected.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(fault) if !has_answered(fault) => {}
            Some(_) | None => self.ejection.succeeded(),
        }
    }
}

impl IoNodes {
    /// Starts with the configured list, or follows the configured source and waits for its first result.
    ///
    /// # Errors
    /// [`QueryError::Members`] if the list is refused; [`QueryError::Tls`] or [`QueryError::Secret`] if the files are
    /// invalid.
    pub async fn start(config: &QueryConfig) -> Result<Self> {
        let tls = config.io_tls.as_ref().map(ClientTls::load).transpose();
        let tls = tls.map_err(|error| QueryError::Tls { field: "io_tls", error })?;
        let secret = config.peer_secret.as_deref().map(SecretFile::load).transpose()?;
        let prover = secret.map(|file| Arc::new(Prover::new(file)));
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
        let (health_by_node, ejected, is_warned) = Default::default();
        Ok(Self { tls, prover, membership, policy, health_by_node, ejected, is_warned })
    }

    /// Follows the file of the secret that the tiers share, and reads it again whenever it changes. Returns only if
    /// there is no such secret.
    pub async fn follow_secret(&self) {
        if let Some(prover) = &self.prover {
            Arc::clone(prover.file()).follow().await;
        }
    }

    /// Returns whether an impostor at `endpoint` would be noticed, or would have to be on this machine.
    pub fn verifies(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_tls() || endpoint.is_loopback() || self.prover.is_some()
    }

    /// Logs a warning if `endpoint` is not verified ([`verifies`](Self::verifies)), for the first such endpoint.
    pub fn warn_if_unverified(&self, endpoint: &Endpoint) {
        if !self.verifies(endpoint) && !self.is_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the I/O node at {endpoint} is not verified: this node would take rows from anyone who answers there; \
                 set `peer_secret` on both tiers, or use TLS"
            );
        }
    }

    /// Returns the name of the list's source.
    pub fn source(&self) -> &str {
        self.membership.source()
    }

    /// Returns a receiver of the members, which is notified when they change.
    pub fn views(&self) -> watch::Receiver<View> {
        self.membership.views()
    }

    /// Returns the counters and the current error of the source.
    pub fn report(&self) -> Report {
        self.membership.reports().borrow().clone()
    }

    /// Returns the health of a member at an endpoint. Cores share it as long as one of them holds it.
    pub fn health_of(&self, name: &str, endpoint: &str) -> Arc<NodeHealth> {
        let key = (name.to_owned(), endpoint.to_owned());
        let mut known = self.health_by_node.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(health) = known.get(&key).and_then(Weak::upgrade) {
            return health;
        }
        known.retain(|_, health| health.strong_count() > 0);
        let ejection = Ejection::new(name, self.policy, rand::random(), Instant::now());
        let health = Arc::new(NodeHealth {
            ejection,
            outage: Arc::default(),
            ejected: Arc::clone(&self.ejected),
        });
        known.insert(key, Arc::downgrade(&health));
        health
    }

    /// Returns the number of ejections since the start.
    pub fn ejected(&self) -> u64 {
        self.ejected.load(Ordering::Relaxed)
    }
}
