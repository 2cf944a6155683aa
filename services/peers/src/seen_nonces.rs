//! The nonces of proofs that a node has accepted, so that it accepts none twice.

use std::collections::HashSet;
use std::time::Duration;

use crate::proof::{CLOCK_SKEW_MAX, Nonce};

/// The minimum time for which a nonce is remembered. A proof is accepted for this long if its sender's clock is as far
/// ahead as is allowed.
const KEPT: Duration = CLOCK_SKEW_MAX.saturating_mul(2);

/// The number of nonces after which the older ones are forgotten. Only peers can add nonces, one for each stream or
/// other call, so this number is reached only at about a thousand calls per second.
const NONCES_MAX: usize = 64 << 10;

/// The nonces of accepted proofs: those of the current period, and those of the period before it.
#[derive(Debug, Default)]
pub struct SeenNonces {
    current: HashSet<Nonce>,
    before: HashSet<Nonce>,
    began: Duration,
}

impl SeenNonces {
    /// Remembers a nonce at the time `now`. Returns whether the nonce is new.
    pub fn add(&mut self, nonce: Nonce, now: Duration) -> bool {
        if now.saturating_sub(self.began) >= KEPT || self.current.len() >= NONCES_MAX {
            self.before = std::mem::take(&mut self.current);
            self.began = now;
        }
        !self.before.contains(&nonce) && self.current.insert(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        nonce
    }

    #[test]
    fn a_nonce_is_known_for_as_long_as_its_proof_is_valid() {
        let second = Duration::from_secs;
        for added in 0..120 {
            let mut seen = SeenNonces::default();
            assert!(seen.add(nonce(0), second(1000)));
            assert!(seen.add(nonce(1), second(1000 + added)));
            for later in [0, 1, 59, 60] {
                assert!(!seen.add(nonce(1), second(1000 + added + later)), "{added} {later}");
            }
        }
    }

    #[test]
    fn their_number_is_bounded() {
        let mut seen = SeenNonces::default();
        for number in 0..200_000 {
            assert!(seen.add(nonce(number), Duration::from_secs(1000)));
            assert!(seen.current.len() + seen.before.len() <= 2 * NONCES_MAX);
        }
        assert!(!seen.add(nonce(199_999), Duration::from_secs(1000)));
        let mut seen = SeenNonces::default();
        assert!(seen.add(nonce(0), Duration::from_secs(1000)));
        for hour in 1..10 {
            assert!(seen.add(nonce(hour), Duration::from_secs(1000 + 3600 * hour)));
        }
        assert_eq!((seen.current.len(), seen.before.len()), (1, 1));
    }
}
