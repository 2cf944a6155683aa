//! The side of an I/O node: checks that callers know the secret, and answers them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::proof::{CLOCK_SKEW_MAX, read};
use crate::seen_nonces::SeenNonces;
use crate::{Secret, SecretFile};

/// Checks the proofs of callers.
pub struct Checker {
    file: Arc<SecretFile>,
    /// Returns the time since 1970.
    now: fn() -> Duration,
    seen: Mutex<SeenNonces>,
}

/// A proof that was accepted.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The header of the response, which proves to the caller that this node knows the secret too.
    pub answer: String,
    /// The secret that the caller proved it knows. Once the secret is withdrawn, the call ends.
    pub secret: Arc<Secret>,
}

/// The reason why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    /// The request has no proof.
    #[error("it sends no proof that it knows the secret of `peer_secret`")]
    Missing,
    /// The header does not have the form of a proof.
    #[error("its proof has a form that this version does not know")]
    Unreadable,
    /// No secret of the file fits the proof.
    #[error("its proof fits no secret in the file of `peer_secret`")]
    OtherSecret,
    /// The caller knows the secret, but its clock differs too much, or the proof is old.
    #[error(
        "its proof is from {} s {}, and at most {} s are allowed; set the clocks of both nodes",
        seconds.unsigned_abs(),
        if *seconds < 0 { "ago" } else { "ahead" },
        CLOCK_SKEW_MAX.as_secs()
    )]
    OtherTime {
        /// The time by which the proof is ahead of this node's clock; negative if it is behind.
        seconds: i64,
    },
    /// The proof is for an I/O node at another address.
    #[error(
        "its proof is for the I/O node at {to}, and its connection was made to {reached_at}: either somebody passes it \
         on, or addresses are translated on the way; then name this node by its host name in the list of I/O nodes"
    )]
    OtherAddress {
        /// The address in the proof.
        to: SocketAddr,
        /// The address of this node.
        reached_at: SocketAddr,
    },
    /// The proof was used before.
    #[error("its proof was used before: somebody has copied it")]
    UsedBefore,
}

impl Checker {
    /// Creates a checker for the secrets of `file`, with the clock of this machine.
    pub fn new(file: Arc<SecretFile>) -> Self {
        Self::with_clock(file, unix_time)
    }

    /// Creates a checker with a clock of its own: `now` returns the time since 1970.
    pub fn with_clock(file: Arc<SecretFile>, now: fn() -> Duration) -> Self {
        Self { file, now, seen: Mutex::default() }
    }

    /// Returns the secrets' file.
    pub fn file(&self) -> &Arc<SecretFile> {
        &self.file
    }

    /// Checks the proof of a request for `rpc`. `header` is the value of the request's header
    /// [`PROOF_HEADER`](crate::PROOF_HEADER). The request's connection was made to the address `reached_at` of this
    /// node.
    ///
    /// # Errors
    /// [`NotProven`], which is for this node's log. The caller is not told what is wrong.
    pub fn check(
        &self,
        rpc: &str,
        header: Option<&[u8]>,
        reached_at: Option<SocketAddr>,
    ) -> Result<Checked, NotProven> {
        self.check_now(rpc, header, reached_at, (self.now)())
    }

    fn check_now(
        &self,
        rpc: &str,
        header: Option<&[u8]>,
        reached_at: Option<SocketAddr>,
        now: Duration,
    ) -> Result<Checked, NotProven> {
        let header = header.ok_or(NotProven::Missing)?;
        let (claim, mac) = read(header, rpc).ok_or(NotProven::Unreadable)?;
        let secrets = self.file.current();
        let secret = secrets
            .iter()
            .find(|secret| claim.is_proven(secret, mac))
            .ok_or(NotProven::OtherSecret)?;
        let reached_at = reached_at.map(|it| SocketAddr::new(it.ip().to_canonical(), it.port()));
        if let (Some(to), Some(reached_at)) = (claim.to, reached_at)
            && to != reached_at
        {
            return Err(NotProven::OtherAddress { to, reached_at });
        }
        let time = Duration::from_millis(claim.time_ms);
        if time.abs_diff(now) > CLOCK_SKEW_MAX {
            let seconds = i64::try_from(time.abs_diff(now).as_secs()).unwrap_or(i64::MAX);
            return Err(NotProven::OtherTime {
                seconds: if time < now { -seconds } else { seconds },
            });
        }
        let is_new = self.seen.lock().unwrap_or_else(PoisonError::into_inner).add(claim.nonce, now);
        if !is_new {
            return Err(NotProven::UsedBefore);
        }
        Ok(Checked { answer: claim.answer(secret), secret: Arc::clone(secret) })
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Returns the time since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "proofs have the wall clock's time; a simulation has a clock of its own"
)]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prover;

    const RPC: &str = "/bireme.fetch.v1.FetchService/Warm";
    const OLD: &str = "old-old-old-old-old-old-old-old-";
    const NEW: &str = "new-new-new-new-new-new-new-new-";
    const NOW: Duration = Duration::from_secs(1_790_000_000);

    fn prover(secrets: &str) -> Prover {
        Prover::with(SecretFile::of_text(secrets), || NOW, rand::random)
    }

    fn checker(secrets: &str) -> Checker {
        Checker::with_clock(SecretFile::of_text(secrets), || NOW)
    }

    fn check(checker: &Checker, header: &str) -> Result<Checked, NotProven> {
        checker.check(RPC, Some(header.as_bytes()), None)
    }

    #[test]
    fn both_sides_prove_that_they_know_the_secret() {
        let (prover, checker) = (prover(OLD), checker(OLD));
        let proof = prover.begin(RPC, None);
        let checked = check(&checker, &proof.header()).unwrap();
        let secret = proof.check(Some(checked.answer.as_bytes())).unwrap();
        assert!(!secret.is_withdrawn() && !checked.secret.is_withdrawn());
        // The answer is valid only for that call.
        let next = prover.begin(RPC, None);
        assert!(next.clone().check(Some(checked.answer.as_bytes())).is_err());
        assert!(next.check(None).is_err());
    }

    #[test]
    fn strangers_are_refused() {
        let checker = checker(OLD);
        assert_eq!(checker.check(RPC, None, None).unwrap_err(), NotProven::Missing);
        assert_eq!(check(&checker, "x").unwrap_err(), NotProven::Unreadable);
        let proof = prover(NEW).begin(RPC, None).header();
        assert_eq!(check(&checker, &proof).unwrap_err(), NotProven::OtherSecret);
        let proof = prover(OLD).begin("/bireme.fetch.v1.FetchService/Fetch", None).header();
        assert_eq!(check(&checker, &proof).unwrap_err(), NotProven::OtherSecret);
    }

    #[test]
    fn a_proof_for_one_io_node_is_refused_by_another() {
        let address = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let to = |to: &str, reached_at: Option<SocketAddr>| {
            let proof = prover(OLD).begin(RPC, to.parse().ok()).header();
            checker(OLD).check(RPC, Some(proof.as_bytes()), reached_at).map(drop)
        };
        assert_eq!(to("10.0.0.7:7071", address("10.0.0.7:7071")), Ok(()));
        assert_eq!(to("10.0.0.7:7071", address("[::ffff:10.0.0.7]:7071")), Ok(()));
        assert_eq!(to("[fd00::7]:7071", address("[fd00::7]:7071")), Ok(()));
        // A node that is found by its name, or whose connections have no addresses.
        assert_eq!(to("-", address("10.0.0.7:7071")), Ok(()));
        assert_eq!(to("10.0.0.7:7071", None), Ok(()));
        for reached_at in ["10.0.0.8:7071", "10.0.0.7:7072", "[fd00::7]:7071"] {
            let refused = to("10.0.0.7:7071", address(reached_at)).unwrap_err();
            assert!(matches!(refused, NotProven::OtherAddress { .. }), "{refused}");
            assert!(refused.to_string().contains(reached_at), "{refused}");
        }
    }

    #[test]
    fn during_a_rotation_both_secrets_are_accepted_and_the_first_one_proves() {
        let (old, new) = (checker(OLD), checker(NEW));
        let rotating = checker(&format!("{NEW}\n{OLD}"));
        for secrets in [OLD, NEW] {
            let proof = prover(secrets).begin(RPC, None);
            let checked = check(&rotating, &proof.header()).unwrap();
            proof.check(Some(checked.answer.as_bytes())).unwrap();
        }
        let first = prover(&format!("{NEW}\n{OLD}")).begin(RPC, None).header();
        assert!(check(&new, &first).is_ok());
        assert_eq!(check(&old, &first).unwrap_err(), NotProven::OtherSecret);
    }

    #[test]
    fn a_proof_is_valid_for_a_while_and_once() {
        let proof = prover(OLD).begin(RPC, None).header();
        let at = |now: Duration| {
            checker(OLD).check_now(RPC, Some(proof.as_bytes()), None, now).map(drop)
        };
        let second = Duration::from_secs;
        for now in [NOW - second(30), NOW, NOW + second(30)] {
            assert_eq!(at(now), Ok(()));
        }
        assert_eq!(at(NOW - second(31)).unwrap_err(), NotProven::OtherTime { seconds: 31 });
        let old = at(NOW + second(3600)).unwrap_err();
        assert_eq!(old, NotProven::OtherTime { seconds: -3600 });
        let said = "its proof is from 3600 s ago, and at most 30 s are allowed; set the clocks of both nodes";
        assert_eq!(old.to_string(), said);

        let checker = checker(OLD);
        assert!(check(&checker, &proof).is_ok());
        assert_eq!(check(&checker, &proof).unwrap_err(), NotProven::UsedBefore);
    }
}
