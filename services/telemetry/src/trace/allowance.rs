//! A limit on the number of requests per second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Grants a fixed number of requests in each second. It has no lock, so cores that ask at the same moment may together
/// get a few more.
#[derive(Debug)]
pub(super) struct Allowance {
    began: Instant,
    per_s: u32,
    /// The second since `began` of the last grant, and the number of requests granted in that second, 32 bits each.
    given: AtomicU64,
}

impl Allowance {
    pub fn new(per_s: u32) -> Self {
        Self { began: Instant::now(), per_s, given: AtomicU64::new(0) }
    }

    /// Takes one of this second's requests. Returns false if none is left.
    pub fn take(&self) -> bool {
        self.take_at(self.began.elapsed().as_secs())
    }

    fn take_at(&self, second: u64) -> bool {
        let given = self.given.load(Ordering::Relaxed);
        let count = if given >> 32 == second { given & u64::from(u32::MAX) } else { 0 };
        if count >= u64::from(self.per_s) {
            return false;
        }
        self.given.store(second << 32 | (count + 1), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own() {
        let allowance = Allowance::new(2);
        let taken = [0, 0, 0, 1, 5, 5, 5].map(|second| allowance.take_at(second));
        assert_eq!(taken, [true, true, false, true, true, true, false]);
    }
}
