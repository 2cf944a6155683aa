//! Decides which callers are answered: the node's peers, or anyone.
//!
//! A peer has a certificate with a name that `peers` matches, or proves that it knows the secret of `peer_secret`. If
//! both are set, it needs both. In turn, each caller that proves its knowledge of the secret gets a proof that the node
//! knows the secret too, even if the node answers anyone. So a secret can be introduced in a cluster node by node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use connections::Connection;
use http::HeaderValue;
use peers::{Checker, Names, NotProven, SecretFile};
use tokio::time::Instant;
use wire::{Fault, Reason};

use crate::config::IoConfig;
use crate::error::NodeError;

/// The minimum time between two log lines about refused calls.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Decides which callers are answered.
pub struct PeerGate {
    /// `None` if callers need no certificate.
    names: Option<Names>,
    /// `None` if the tiers share no secret.
    secret: Option<Checker>,
    is_open: bool,
    /// The number of refused calls by cause, in the order of [`CAUSES`].
    refused: [AtomicU64; CAUSES.len()],
    logged: Mutex<Option<Instant>>,
}

/// A caller that is answered.
#[derive(Debug, Default)]
pub struct Admitted {
    /// The caller, for the audit log: `san:` and the name in its certificate that `peers` matches, or `secret` if only
    /// the secret identifies it. `None` if the node answers anyone and the caller proves no secret.
    pub caller: Option<String>,
    /// The header of the response that proves to the caller that this node knows the secret.
    pub answer: Option<HeaderValue>,
}

/// The refusal of a caller.
#[derive(Debug)]
pub struct Refusal {
    /// The answer, which is the same for all causes.
    pub fault: Fault,
    /// The cause, for the audit log.
    pub cause: &'static str,
}

/// The reason why a caller is refused, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Stranger {
    #[error("it shows no certificate")]
    NoCertificate,
    #[error("`peers` matches no name in its certificate")]
    OtherName,
    #[error(transparent)]
    NotProven(#[from] NotProven),
}

/// The causes of refusals, as the audit log and the metrics name them.
const CAUSES: [&str; 8] = [
    "no_certificate",
    "other_name",
    "no_proof",
    "unreadable_proof",
    "other_secret",
    "other_time",
    "other_address",
    "used_proof",
];

impl Stranger {
    /// Returns the cause's index in [`CAUSES`].
    fn cause(self) -> usize {
        match self {
            Self::NoCertificate => 0,
            Self::OtherName => 1,
            Self::NotProven(NotProven::Missing) => 2,
            Self::NotProven(NotProven::Unreadable) => 3,
            Self::NotProven(NotProven::OtherSecret) => 4,
            Self::NotProven(NotProven::OtherTime { .. }) => 5,
            Self::NotProven(NotProven::OtherAddress { .. }) => 6,
            Self::NotProven(NotProven::UsedBefore) => 7,
        }
    }
}

impl PeerGate {
    /// Creates the gate of a node with a valid configuration. `secret` checks callers' proofs, if the tiers share a
    /// secret.
    ///
    /// # Errors
    /// [`NodeError::Config`] if a pattern of `peers` is invalid.
    pub fn new(config: &IoConfig, secret: Option<Checker>) -> Result<Self, NodeError> {
        let names = Names::new(&config.peers);
        let names = names.map_err(|problem| NodeError::Config { field: "peers", problem })?;
        let names = (!config.peers.is_empty()).then_some(names);
        let (refused, logged) = Default::default();
        Ok(Self { names, secret, is_open: config.is_open(), refused, logged })
    }

    /// Decides whether a call of `rpc` over `connection` is answered. `proof` is the header with the caller's proof.
    /// Must be called only once per call, because a proof is valid once.
    ///
    /// # Errors
    /// The refusal, if the caller is not a peer and the node answers only peers.
    pub fn admit(
        &self,
        connection: Option<&Connection>,
        rpc: &str,
        proof: Option<&[u8]>,
    ) -> Result<Admitted, Refusal> {
        let admitted = self.check(connection, rpc, proof);
        admitted.map_err(|stranger| {
            let cause = stranger.cause();
            self.refused[cause].fetch_add(1, Ordering::Relaxed);
            self.log(stranger, connection);
            Refusal { fault: self.refusal(), cause: CAUSES[cause] }
        })
    }

    fn check(
        &self,
        connection: Option<&Connection>,
        rpc: &str,
        proof: Option<&[u8]>,
    ) -> Result<Admitted, Stranger> {
        let reached_at = connection.and_then(|connection| connection.peer().reached_at);
        let checked = self.secret.as_ref().map(|secret| secret.check(rpc, proof, reached_at));
        let mut caller = None;
        if !self.is_open {
            caller = self.check_names(connection)?.map(|name| format!("san:{name}"));
            if let Some(Err(not_proven)) = checked {
                return Err(not_proven.into());
            }
        }
        let Some(Ok(checked)) = checked else { return Ok(Admitted { caller, answer: None }) };
        if let Some(connection) = connection.filter(|_| !self.is_open) {
            connection.depend_on(checked.secret.withdrawn());
        }
        // An answer has only characters that a header may have.
        let answer = HeaderValue::try_from(checked.answer).ok();
        Ok(Admitted { caller: caller.or_else(|| Some("secret".into())), answer })
    }

    /// Returns the name by which the caller is a peer. `None` if callers need no certificate.
    fn check_names<'a>(
        &self,
        connection: Option<&'a Connection>,
    ) -> Result<Option<&'a str>, Stranger> {
        let Some(patterns) = &self.names else { return Ok(None) };
        let names = connection.map(|connection| &*connection.peer().names).unwrap_or_default();
        match patterns.find(names) {
            Some(name) => Ok(Some(name)),
            None if names.is_empty() => Err(Stranger::NoCertificate),
            None => Err(Stranger::OtherName),
        }
    }

    /// Returns the file of the secret, if the tiers share one.
    pub fn secret_file(&self) -> Option<&Arc<SecretFile>> {
        self.secret.as_ref().map(Checker::file)
    }

    /// Returns each cause, and the number of calls that were refused for it since the start.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        CAUSES.into_iter().zip(&self.refused).map(|(cause, of)| (cause, of.load(Ordering::Relaxed)))
    }

    /// Returns the fault that answers every refused call. It does not say what is wrong with the caller's certificate
    /// or proof.
    fn refusal(&self) -> Fault {
        const WHOM: &str = "this I/O node answers only its peers";
        const NAMED: &str = "its setting `peers` names the certificates of query nodes";
        const PROVEN: &str =
            "query nodes need the secret of its setting `peer_secret`, and a clock that agrees";
        let message = match (&self.names, &self.secret) {
            (Some(_), Some(_)) => format!("{WHOM}; {NAMED}, and {PROVEN}"),
            (None, Some(_)) => format!("{WHOM}; {PROVEN}"),
            (_, None) => format!("{WHOM}; {NAMED}"),
        };
        Fault::new(Reason::Unauthenticated, message)
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
        let refused: u64 = self.refused().map(|(_, refused)| refused).sum();
        tracing::warn!(address, names, refused, "a caller is refused: {why}");
    }
}
