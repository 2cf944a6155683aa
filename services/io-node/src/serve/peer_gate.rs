//! Decides which callers are answered: the node's peers, or anyone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use connections::Connection;
use peers::Names;
use tokio::time::Instant;
use wire::{Fault, Reason};

use crate::config::IoConfig;
use crate::error::NodeError;

/// The minimum time between two log lines about refused calls.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The message of every refusal. It does not say what was wrong with a caller's proof.
const REFUSAL: &str = "this I/O node answers only its peers; its setting `peers` names the certificates of query nodes";

/// Decides which callers are answered.
pub struct PeerGate {
    names: Names,
    is_open: bool,
    refused: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

/// The reason why a caller is refused, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Stranger {
    #[error("it shows no certificate")]
    NoCertificate,
    #[error("`peers` matches no name in its certificate")]
    OtherName,
}

impl PeerGate {
    /// Creates the gate of a node with a valid configuration.
    ///
    /// # Errors
    /// [`NodeError::Config`] if a pattern of `peers` is invalid.
    pub fn new(config: &IoConfig) -> Result<Self, NodeError> {
        let names = Names::new(&config.peers);
        let names = names.map_err(|problem| NodeError::Config { field: "peers", problem })?;
        let (refused, logged) = Default::default();
        Ok(Self { names, is_open: config.is_open(), refused, logged })
    }

    /// Returns whether a call of `connection` is answered. Called once for each stream or other call.
    ///
    /// # Errors
    /// The fault for the caller.
    pub fn admit(&self, connection: Option<&Connection>) -> Result<(), Fault> {
        if self.is_open {
            return Ok(());
        }
        let names = connection.map(|connection| &*connection.peer().names).unwrap_or_default();
        let stranger = match self.names.find(names) {
            Some(_) => return Ok(()),
            None if names.is_empty() => Stranger::NoCertificate,
            None => Stranger::OtherName,
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.log(stranger, connection);
        Err(Fault::new(Reason::Unauthenticated, REFUSAL))
    }

    /// Returns the number of calls that were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn log(&self, why: Stranger, connection: Option<&Connection>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        let peer = connection.map(Connection::peer);
        let address = peer.and_then(|peer| peer.address).map(tracing::field::display);
        let names = peer.map(|peer| tracing::field::debug(&peer.names));
        tracing::warn!(address, names, refused = self.refused(), "a caller is refused: {why}");
    }
}
