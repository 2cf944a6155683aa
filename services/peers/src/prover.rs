//! The side of a query node: proves that it knows the secret, and checks that I/O nodes do.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::checker::unix_time;
use crate::proof::{Claim, Nonce};
use crate::{Secret, SecretFile};

/// Makes the proofs of a query node's calls.
pub struct Prover {
    file: Arc<SecretFile>,
    /// Returns the time since 1970.
    now: fn() -> Duration,
    nonces: Box<dyn Fn() -> Nonce + Send + Sync>,
}

/// A proof that was sent with a call, and whose answer is not checked yet.
#[derive(Clone, Debug)]
pub struct PendingProof {
    claim: Claim<'static>,
    secret: Arc<Secret>,
}

/// The node that answered did not prove that it knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it does not prove that it knows the secret of `peer_secret`, so it is not believed; give it the same setting, or \
     find out who answers there"
)]
pub struct NotAnswered;

impl Prover {
    /// Creates a prover with the first secret of `file`, the clock of this machine and random nonces.
    #[expect(clippy::disallowed_methods, reason = "a simulation uses `with`")]
    pub fn new(file: Arc<SecretFile>) -> Self {
        Self::with(file, unix_time, rand::random)
    }

    /// Creates a prover with a clock and nonces of its own. `now` returns the time since 1970. Nonces must be unique
    /// and unpredictable.
    pub fn with(
        file: Arc<SecretFile>,
        now: fn() -> Duration,
        nonces: impl Fn() -> Nonce + Send + Sync + 'static,
    ) -> Self {
        Self { file, now, nonces: Box::new(nonces) }
    }

    /// Returns the secrets' file.
    pub fn file(&self) -> &Arc<SecretFile> {
        &self.file
    }

    /// Makes a proof for one call of `rpc`, a path, at the I/O node with the address `to`. Without an address the proof
    /// is valid at every I/O node.
    pub fn begin(&self, rpc: &'static str, to: Option<SocketAddr>) -> PendingProof {
        let secrets = self.file.current();
        let time_ms = u64::try_from((self.now)().as_millis()).unwrap_or(u64::MAX);
        let claim = Claim { nonce: (self.nonces)(), time_ms, to, rpc };
        PendingProof { claim, secret: Arc::clone(secrets.first()) }
    }
}

impl PendingProof {
    /// Returns the value of the request's header [`PROOF_HEADER`](crate::PROOF_HEADER).
    pub fn header(&self) -> String {
        self.claim.proof(&self.secret)
    }

    /// Checks the answer, which is the value of the same header in the response. Returns the secret that both sides
    /// know.
    ///
    /// # Errors
    /// [`NotAnswered`]: nothing that the other side sends may be believed.
    pub fn check(self, answer: Option<&[u8]>) -> Result<Arc<Secret>, NotAnswered> {
        match answer {
            Some(answer) if self.claim.is_answered(&self.secret, answer) => Ok(self.secret),
            _ => Err(NotAnswered),
        }
    }
}

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").field("file", &self.file).finish_non_exhaustive()
    }
}
