//! Counts and latencies of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use wire::Fault;

use super::workload::Done;

/// The longest latency that is recorded, in nanoseconds: an hour. Longer latencies are recorded as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a recorded latency: it is accurate to 0.1 %.
const DIGITS: u8 = 3;

/// Counts and latencies of requests. Only requests that were answered count towards the latencies.
#[derive(Clone, Debug)]
pub struct Tally {
    latency_ns: Histogram<u64>,
    rows: u64,
    missing: u64,
    late: u64,
    unstarted: u64,
    errors: BTreeMap<&'static str, u64>,
    first_fault: Option<Fault>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Latency {
    /// Half of the requests took at most this long.
    pub p50: f64,
    /// Nine of ten requests took at most this long.
    pub p90: f64,
    /// 99 of 100 requests took at most this long.
    pub p99: f64,
    /// 999 of 1,000 requests took at most this long.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The longest latency.
    pub max: f64,
    /// The average latency.
    pub mean: f64,
}

impl Tally {
    /// Creates a tally without requests.
    pub fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
        Self {
            latency_ns: latency_ns.expect("constant bounds"),
            rows: 0,
            missing: 0,
            late: 0,
            unstarted: 0,
            errors: BTreeMap::new(),
            first_fault: None,
        }
    }

    /// Adds a request. At a fixed rate, `latency` counts from its scheduled start; in a closed loop, from its actual
    /// start.
    pub fn add(&mut self, latency: Duration, late: bool, outcome: Result<Done, Fault>) {
        self.late += u64::from(late);
        match outcome {
            Ok(done) => {
                let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
                self.latency_ns.saturating_record(ns.max(1));
                self.rows += done.rows;
                self.missing += done.missing;
            }
            Err(fault) => {
                *self.errors.entry(fault.reason.as_str()).or_default() += 1;
                self.first_fault.get_or_insert(fault);
            }
        }
    }

    /// Adds requests that were due and never started.
    pub fn add_unstarted(&mut self, requests: u64) {
        self.unstarted += requests;
    }

    /// Adds all requests of another tally.
    pub fn merge(&mut self, other: &Self) {
        // Both histograms have the same bounds, so no value can be out of range.
        let _ = self.latency_ns.add(&other.latency_ns);
        self.rows += other.rows;
        self.missing += other.missing;
        self.late += other.late;
        self.unstarted += other.unstarted;
        for (reason, count) in &other.errors {
            *self.errors.entry(reason).or_default() += count;
        }
        if self.first_fault.is_none() {
            self.first_fault.clone_from(&other.first_fault);
        }
    }

    /// Returns the number of requests that were answered.
    pub fn requests(&self) -> u64 {
        self.latency_ns.len()
    }

    /// Returns the number of rows that came back.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of requested rows that do not exist.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the number of requests that were started more than a millisecond after they were due.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of requests that were due and never started.
    pub fn unstarted(&self) -> u64 {
        self.unstarted
    }

    /// Returns the number of failed requests, by reason.
    pub fn errors(&self) -> &BTreeMap<&'static str, u64> {
        &self.errors
    }

    /// Returns the first failure. Merging keeps the first failure of one of the tallies, which need not be the
    /// earliest.
    pub fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.as_ref()
    }

    /// Returns the latencies; `None` if no request was answered.
    pub fn latency(&self) -> Option<Latency> {
        let at = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        (!self.latency_ns.is_empty()).then(|| Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: self.latency_ns.max() as f64 / 1e3,
            mean: self.latency_ns.mean() / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use wire::Reason;

    use super::*;

    #[test]
    fn quantiles_are_exact() {
        let mut tally = Tally::new();
        let done = Done { rows: 2, missing: 1 };
        for ns in 1..=1000 {
            tally.add(Duration::from_nanos(ns), ns % 100 == 0, Ok(done));
        }
        let latency = tally.latency().unwrap();
        assert_eq!((latency.p50, latency.p90, latency.p99), (0.5, 0.9, 0.99));
        assert_eq!((latency.p99_9, latency.max, latency.mean), (0.999, 1.0, 0.5005));
        assert_eq!((tally.requests(), tally.rows(), tally.missing()), (1000, 2000, 1000));
        assert_eq!(tally.late(), 10);
    }

    #[test]
    fn failures_are_counted_by_reason_and_have_no_latency() {
        let fault = |reason| Err(Fault::new(reason, "x"));
        let mut first = Tally::new();
        first.add(Duration::from_secs(1), false, fault(Reason::Overloaded));
        assert_eq!(first.latency(), None);
        let mut second = Tally::new();
        second.add(Duration::from_secs(1), false, fault(Reason::Overloaded));
        second.add(Duration::from_secs(1), true, fault(Reason::DeadlineExceeded));
        second.add(Duration::from_nanos(7), false, Ok(Done::default()));
        second.add_unstarted(3);
        first.merge(&second);
        let errors: Vec<_> =
            first.errors().iter().map(|(reason, count)| (*reason, *count)).collect();
        assert_eq!(errors, [("DEADLINE_EXCEEDED", 1), ("OVERLOADED", 2)]);
        assert_eq!((first.requests(), first.late(), first.unstarted()), (1, 1, 3));
        assert_eq!(first.first_fault().unwrap().reason, Reason::Overloaded);
        assert_eq!(first.latency().unwrap().max, 0.007);
    }
}
