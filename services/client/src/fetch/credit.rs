//! The credit of a stream: the number of rows that may be outstanding, and how flows share it.

use std::collections::HashMap;
use std::time::Duration;

use scheduler::Flow;
use tokio::time::Instant;

/// A flow counts as active while it has outstanding rows, and for at least this long after its latest batch was sent,
/// so that it keeps its share between its batches.
const ACTIVE: Duration = Duration::from_secs(5);

/// The maximum number of outstanding rows of a stream, and their present number.
///
/// A single active flow may use all credit. While several flows are active, each has a share in proportion to its
/// weight. A flow that has used its share waits even if there is credit left, so that other flows find credit when they
/// need it. A share of the default credit is normally more than enough to keep an I/O node busy.
#[derive(Debug)]
pub(super) struct Credits {
    limit_rows: usize,
    used_rows: usize,
    flows: HashMap<u64, FlowCredit>,
    /// The sum of the weights in `flows`.
    weights: usize,
    /// The latest time at which inactive flows were removed.
    cleaned: Option<Instant>,
}

/// The credit that one active flow uses.
#[derive(Debug)]
struct FlowCredit {
    weight: usize,
    used_rows: usize,
    /// The time at which the flow's latest batch was sent.
    sent: Instant,
}

impl Credits {
    pub fn new(limit_rows: usize) -> Self {
        Self { limit_rows, used_rows: 0, flows: HashMap::new(), weights: 0, cleaned: None }
    }

    /// Takes credit for `rows` rows of a flow. There must be [enough](Self::fits).
    pub fn take(&mut self, rows: usize, flow: Flow, now: Instant) {
        assert!(self.fits(rows), "{rows} rows beyond the credit");
        let weight = flow.weight() as usize;
        let new = || FlowCredit { weight: 0, used_rows: 0, sent: now };
        let credit = self.flows.entry(flow.id()).or_insert_with(new);
        self.weights = self.weights - credit.weight + weight;
        self.used_rows += rows;
        (credit.weight, credit.sent) = (weight, now);
        credit.used_rows += rows;
        if self.flows.len() > 1 && self.cleaned.is_none_or(|cleaned| now - cleaned >= ACTIVE) {
            self.clean(now);
        }
    }

    /// Returns whether there is credit for `rows` rows.
    pub fn fits(&self, rows: usize) -> bool {
        rows <= self.limit_rows - self.used_rows
    }

    /// Returns whether the flow with this id may send `rows` more rows within its share. A flow without outstanding
    /// rows may send any batch.
    pub fn fits_share(&self, rows: usize, flow: u64) -> bool {
        let Some(credit) = self.flows.get(&flow).filter(|credit| credit.used_rows > 0) else {
            return true;
        };
        (credit.used_rows + rows) * self.weights <= self.limit_rows * credit.weight
    }

    /// Gives back the credit of an answered batch of `rows` rows.
    pub fn give_back(&mut self, rows: usize, flow: Flow) {
        self.used_rows -= rows;
        let credit = self.flows.get_mut(&flow.id()).expect("a flow with outstanding rows");
        credit.used_rows -= rows;
    }

    /// Returns the number of outstanding rows.
    pub fn used_rows(&self) -> usize {
        self.used_rows
    }

    /// Removes flows that are no longer active.
    fn clean(&mut self, now: Instant) {
        self.cleaned = Some(now);
        self.flows.retain(|_, credit| credit.used_rows > 0 || now - credit.sent < ACTIVE);
        self.weights = self.flows.values().map(|credit| credit.weight).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_taken_whole_or_not_at_all() {
        let (now, flow) = (Instant::now(), Flow::default());
        let mut credits = Credits::new(10);
        credits.take(6, flow, now);
        assert!(!credits.fits(5) && credits.fits_share(4, 0));
        assert_eq!(credits.used_rows(), 6);
        credits.take(4, flow, now);
        assert!(!credits.fits(1));
        credits.give_back(6, flow);
        assert!(credits.fits(6));
        assert!(!credits.fits(7));
    }

    #[test]
    fn a_flow_has_its_share_while_others_are_active() {
        let (now, mut credits) = (Instant::now(), Credits::new(100));
        let (a, b) = (Flow::new(1, 1), Flow::new(2, 3));
        credits.take(90, a, now);
        // A new flow may send any batch for which there is credit.
        assert!(credits.fits_share(10, 2) && credits.fits(10) && !credits.fits(11));
        credits.take(10, b, now);
        credits.give_back(90, a);
        credits.take(20, a, now);
        assert!(credits.fits_share(5, 1) && !credits.fits_share(6, 1));
        assert!(credits.fits_share(65, 2) && !credits.fits_share(66, 2));
        credits.give_back(10, b);
        // Flow 2 counts as active until it has sent nothing for a while.
        credits.take(1, a, now + ACTIVE / 2);
        assert!(!credits.fits_share(5, 1));
        credits.take(1, a, now + ACTIVE);
        assert!(credits.fits_share(78, 1));
    }
}
