//! A filter that is evaluated for candidates, and what searches have learnt about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use predicate::{Predicate, Step};

use super::narrowing::Narrowing;
use crate::search::selection::passing_share;

/// The minimum number of rows that are scanned in the time in which one candidate is compared with a filter. An
/// estimate: an I/O node takes 1 to 2 µs for a short row, and a scan takes 10 to 40 ns for a narrow column of a row,
/// most of it to transfer the column from object storage. A long row counts by the bytes that are read of it
/// ([`scanned_per_checked`]).
const SCANNED_PER_CHECKED_MIN: u64 = 100;

/// The minimum number of candidates that cost as much as a scan of rows that scalar indexes leave. The scan reads rows
/// that lie apart, as comparisons do, and is planned first, which takes 2 to 8 ms of CPU. So if the indexes leave at
/// most this many rows, candidates are compared and no row is scanned.
const CHECKS_PER_NARROWED_SCAN_MIN: u64 = 10_000;

/// For long rows, the minimum is lower than [`CHECKS_PER_NARROWED_SCAN_MIN`]: as many candidates as have this many
/// bytes together.
const NARROWED_BYTES_MAX: u64 = 32 << 20;

/// A filter in the form in which it is evaluated for single rows, and what is known of the rows that pass.
#[derive(Debug)]
pub struct CheckedFilter {
    /// The filter; without the part that scalar indexes answer, if they answer a part exactly.
    pub predicate: Arc<Predicate>,
    /// All of the filter, if it can be evaluated for single rows.
    pub(in crate::search) whole: Option<Arc<Predicate>>,
    /// The query of scalar indexes that leaves the candidates, if the indexes answer a part of the filter.
    pub(in crate::search) narrowing: Option<Arc<Narrowing>>,
    /// The number of rows that would have to be scanned to find those that pass, with those that scalar indexes would
    /// list (an estimate).
    pub scan_rows: u64,
    /// The number of candidates that cost as much as this scan.
    checks_per_scan: u64,
    /// An estimate of the share of rows in the filter's wide ranges (`wide.rs`), if it has some.
    wide_share: Option<f64>,
    /// The number of candidates that searches have compared with the filter.
    checked: AtomicU64,
    /// The number of these that passed.
    passed: AtomicU64,
    /// The value of `checked` at which the list of rows that pass is wanted.
    list_due: AtomicU64,
    /// Whether a search has undertaken to make the list.
    is_listed: AtomicBool,
}

impl CheckedFilter {
    /// Creates the record of a filter that no search has used yet, and of which scalar indexes answer no part. To
    /// compare a candidate with it, the first of `bytes` is read, and to scan a row, the second.
    pub(in crate::search) fn new(
        predicate: Arc<Predicate>,
        scan_rows: u64,
        bytes: (usize, usize),
    ) -> Self {
        let (checked, passed, is_listed, narrowing) = Default::default();
        let whole = Some(Arc::clone(&predicate));
        let checks_per_scan = scan_rows / scanned_per_checked(bytes);
        let list_due = AtomicU64::new(checks_per_scan);
        Self {
            predicate,
            whole,
            narrowing,
            scan_rows,
            checks_per_scan,
            wide_share: None,
            checked,
            passed,
            list_due,
            is_listed,
        }
    }

    /// Like [`new`](Self::new), for a filter whose candidates are the `scan_rows` rows that `narrowing` leaves.
    pub(in crate::search) fn narrowed(
        (predicate, whole): (Arc<Predicate>, Option<Arc<Predicate>>),
        (narrowing, scan_rows): (Arc<Narrowing>, u64),
        bytes: (usize, usize),
    ) -> Self {
        let filter = Self::new(predicate, scan_rows, bytes);
        let short = NARROWED_BYTES_MAX / bytes.0.max(1) as u64;
        let checks_per_scan = filter.checks_per_scan.max(short.min(CHECKS_PER_NARROWED_SCAN_MIN));
        let list_due = AtomicU64::new(checks_per_scan);
        Self { whole, narrowing: Some(narrowing), checks_per_scan, list_due, ..filter }
    }

    /// Notes that the filter has wide ranges, which about this `share` of the rows are in.
    pub(in crate::search) fn with_wide_ranges(self, share: f64) -> Self {
        Self { wide_share: Some(share), ..self }
    }

    /// Returns whether scalar indexes would answer all of the filter, but some of its ranges are wide.
    pub fn has_wide_ranges(&self) -> bool {
        self.wide_share.is_some()
    }

    /// The number of candidates that cost as much as a scan.
    pub(in crate::search) fn checks_per_scan(&self) -> u64 {
        self.checks_per_scan
    }

    /// Records that `checked` more candidates were compared with the filter, of which `passed` passed.
    pub fn record(&self, checked: usize, passed: usize) {
        self.checked.fetch_add(checked as u64, Relaxed);
        self.passed.fetch_add(passed as u64, Relaxed);
    }

    /// Estimates the share of candidates that pass.
    pub(in crate::search) fn share(&self) -> f64 {
        match (self.checked.load(Relaxed), self.wide_share) {
            (0, Some(share)) => share,
            (checked, _) => passing_share(self.passed.load(Relaxed), checked),
        }
    }

    /// Returns whether the searches have cost as much as a scan, so that the list of rows that pass should be made
    /// ([`Table::make_list`](crate::Table::make_list)). Returns true to one caller only, until that caller reports
    /// [`list_postponed`](Self::list_postponed) or [`list_failed`](Self::list_failed).
    pub fn is_list_due(&self) -> bool {
        let is_spent = self.checked.load(Relaxed) >= self.list_due.load(Relaxed);
        is_spent && !self.is_listed.swap(true, Relaxed)
    }

    /// Records that the list was not begun, because another one is being made.
    pub fn list_postponed(&self) {
        self.is_listed.store(false, Relaxed);
    }

    /// Records that the list could not be made. It is wanted again after twice as many candidates, so that a list that
    /// cannot be made is not begun again and again.
    pub fn list_failed(&self) {
        let checked = self.checked.load(Relaxed).max(self.checks_per_scan).max(1);
        self.list_due.store(checked.saturating_mul(2), Relaxed);
        self.is_listed.store(false, Relaxed);
    }

    /// Returns the memory that the filter takes, in bytes.
    pub(in crate::search) fn bytes(&self) -> usize {
        let values = |step: &Step| match step {
            Step::In { values, .. } => values.iter().map(|it| size_of_val(it) + it.len()).sum(),
            Step::Less { value, .. } | Step::Greater { value, .. } => value.len(),
            Step::IsNull { .. } | Step::Not | Step::And | Step::Or => 0,
        };
        let predicates = [Some(&self.predicate), self.whole.as_ref()].into_iter().flatten();
        let steps = predicates.flat_map(|it| &it.steps);
        let steps = steps.map(|step| size_of_val(step) + values(step)).sum::<usize>();
        let narrowing = self.narrowing.as_ref().map_or(0, |it| it.bytes());
        size_of::<Self>() + steps + narrowing
    }
}

/// Returns the number of rows whose scan costs as much as the comparison of one candidate. A comparison reads
/// `checked_bytes`, and a scan reads `scanned_bytes` of each row. A short candidate costs more than its bytes, so the
/// number is at least [`SCANNED_PER_CHECKED_MIN`].
fn scanned_per_checked((checked_bytes, scanned_bytes): (usize, usize)) -> u64 {
    ((checked_bytes / scanned_bytes.max(1)) as u64).max(SCANNED_PER_CHECKED_MIN)
}

#[cfg(test)]
mod tests {
    use lance_index::scalar::SargableQuery;
    use lance_index::scalar::expression::{ScalarIndexExpr, ScalarIndexSearch};

    use super::*;

    fn predicate() -> Arc<Predicate> {
        Arc::new(Predicate { columns: Vec::new(), steps: Vec::new() })
    }

    #[test]
    fn few_rows_that_indexes_leave_are_compared_without_a_scan() {
        let narrowing = || {
            let search = ScalarIndexSearch {
                column: "topic".into(),
                index_name: "topic_idx".into(),
                index_type: "Bitmap".into(),
                query: Arc::new(SargableQuery::IsNull()),
                needs_recheck: false,
                fragment_bitmap: None,
            };
            Narrowing::new(ScalarIndexExpr::Query(search), Default::default(), true)
        };
        let filter = |rows, bytes| {
            let rows = (Arc::new(narrowing()), rows);
            CheckedFilter::narrowed((predicate(), None), rows, bytes).checks_per_scan()
        };
        assert_eq!(filter(0, (300, 4)), 10_000);
        assert_eq!(filter(10_000, (300, 4)), 10_000);
        assert_eq!(filter(100_000, (300, 4)), 10_000);
        assert_eq!(filter(3_000_000, (300, 4)), 30_000);
        // Of rows of 1 MiB, 32 have 32 MiB.
        assert_eq!(filter(10_000, (1 << 20, 4)), 32);
        assert_eq!(filter(10_000, (usize::MAX, 4)), 0);
    }

    #[test]
    fn a_list_that_failed_is_wanted_after_twice_as_many_candidates() {
        let filter = CheckedFilter::new(predicate(), 20_000, (0, 4));
        filter.record(199, 9);
        assert!(!filter.is_list_due());
        filter.record(51, 9);
        assert!(filter.is_list_due() && !filter.is_list_due());
        filter.list_postponed();
        assert!(filter.is_list_due());
        filter.list_failed();
        filter.record(249, 9);
        assert!(!filter.is_list_due());
        filter.record(1, 9);
        assert!(filter.is_list_due());
    }

    #[test]
    fn long_rows_are_compared_less_often_than_short_ones() {
        let filter = |bytes| CheckedFilter::new(predicate(), 1_000_000, bytes).checks_per_scan();
        assert_eq!(filter((0, 4)), 10_000);
        assert_eq!(filter((400, 4)), 10_000);
        // A scan of 4 MB costs as much as 100 rows of 40,000 bytes.
        assert_eq!(filter((40_000, 4)), 100);
        assert_eq!(filter((usize::MAX, 0)), 0);
    }
}
