//! Vector searches whose filter is evaluated for candidates, next to the rows, because the rows that pass are not known.
//!
//! To find the rows that pass, a scan reads the filter's columns of the whole table. For a large table that takes longer
//! than to search the index without the filter, and to compare the nearest rows with the filter. The result is that of a
//! search with the list of rows that pass: the nearest of them in the same partitions.
//!
//! Each of these ways is chosen if it is expected to cost less: [`Widening`] decides for a search. A list makes all later
//! searches with the filter cheaper. So once the candidates of all searches together have cost as much as a scan, the
//! list is wanted ([`CandidateSearch::is_list_due`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use address::RowAddr;
use futures::FutureExt;
use predicate::Predicate;

use super::filter::{may_read_clock, predicate_of};
use super::hit::DistanceHit;
use super::partitions::{Partitions, Probes};
use super::resolve_filter::ByIndexes;
use super::vector::VectorQuery;
use super::widening::{Widened, Widening, share};
use crate::caught::caught;
use crate::deep_stack::polled_on_deep_stack;
use crate::error::Result;
use crate::table::Table;

/// The number of rows that are scanned in the time in which one candidate is compared with a filter. An estimate: an I/O
/// node takes 1 to 2 µs for a row, and a scan takes 10 to 40 ns for a narrow column of a row, most of it to transfer the
/// column from object storage.
const SCANNED_PER_CHECKED: u64 = 100;

/// Maximum number of candidates that a search compares with a filter, however long a scan takes. It bounds the search's
/// load on the I/O nodes.
const CHECKS_MAX: u64 = 50_000;

/// A filter that can be evaluated for single rows, and what is known of the rows that pass.
#[derive(Debug)]
pub(crate) struct CheckedFilter {
    predicate: Arc<Predicate>,
    /// The number of rows that would have to be scanned to find those that pass.
    scan_rows: u64,
    /// The number of candidates that searches have compared with the filter.
    checked: AtomicU64,
    /// The number of these that passed.
    passed: AtomicU64,
    /// Whether a search has undertaken to make the list.
    is_listed: AtomicBool,
}

impl CheckedFilter {
    fn is_spent(&self) -> bool {
        self.checked.load(Relaxed) >= self.scan_rows / SCANNED_PER_CHECKED
    }

    /// Returns the memory that the filter takes, in bytes.
    pub fn bytes(&self) -> usize {
        let values = |step: &predicate::Step| match step {
            predicate::Step::In { values, .. } => values.iter().map(|it| it.len() + 32).sum(),
            predicate::Step::Less { value, .. } | predicate::Step::Greater { value, .. } => {
                value.len()
            }
            _ => 0,
        };
        let steps = self.predicate.steps.iter().map(|step| size_of_val(step) + values(step));
        size_of::<Self>() + steps.sum::<usize>()
    }
}

/// A vector search whose caller compares candidates with the filter.
#[derive(Clone, Debug)]
pub struct CandidateSearch {
    /// The filter.
    pub predicate: Arc<Predicate>,
    /// Live rows that the index does not cover, ascending. They are candidates too. Empty if the query is `indexed_only`.
    pub fresh: Arc<[RowAddr]>,
    /// The number of the index's segments that are searched.
    pub segments: usize,
    /// The number of rows that would have to be scanned to find those that pass.
    pub scan_rows: u64,
    filter: Arc<CheckedFilter>,
    widening: Widening,
}

/// Candidates of a search.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The nearest rows by the index, nearest first.
    pub hits: Vec<DistanceHit>,
    /// The number of partitions that were searched, in all segments together.
    pub partitions: usize,
}

impl CandidateSearch {
    /// Records that `checked` more candidates were compared with the filter, of which `passed` passed.
    pub fn record(&self, checked: usize, passed: usize) {
        self.filter.checked.fetch_add(checked as u64, Relaxed);
        self.filter.passed.fetch_add(passed as u64, Relaxed);
    }

    /// Decides how the search continues after `passed` of the `found` nearest candidates have passed, and `checked` rows
    /// were compared with the filter in all.
    pub fn next(&mut self, found: usize, passed: usize, checked: usize) -> Widened {
        self.widening.next(found, passed, checked as u64)
    }

    /// Records that the list could not be made, so that a later search has it made.
    pub fn list_failed(&self) {
        self.filter.is_listed.store(false, Relaxed);
    }

    /// Whether the caller should have the list of rows that pass made ([`Table::make_list`]), because the searches
    /// together have cost as much. True for one caller only.
    pub fn is_list_due(&self) -> bool {
        self.filter.is_spent() && !self.filter.is_listed.swap(true, Relaxed)
    }
}

impl Table {
    /// Returns the search of candidates for `query`, if that is expected to cost less than to find all rows that pass
    /// `filter`.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub(super) async fn candidate_search(
        &self,
        query: &VectorQuery,
        filter: &str,
        partitions: &Partitions,
    ) -> Result<Option<CandidateSearch>> {
        // Graphs find other rows if they are searched for more.
        if !partitions.is_flat() || self.allow_lists().knows(self.open_id(), filter) {
            return Ok(None);
        }
        let make = self.checked_filter(filter);
        let Some(filter) = self.allow_lists().checked(self.open_id(), filter, make).await? else {
            return Ok(None);
        };
        let fresh = match query.indexed_only {
            true => Arc::default(),
            false => Arc::clone(partitions.fresh()),
        };
        let of_all = share(filter.passed.load(Relaxed), filter.checked.load(Relaxed));
        let depth = Widening::first_depth(query.k, of_all);
        let checks_max = (filter.scan_rows / SCANNED_PER_CHECKED).min(CHECKS_MAX);
        if depth as u64 + fresh.len() as u64 > checks_max {
            return Ok(None);
        }
        let widening = Widening {
            wanted: query.k,
            depth,
            probed: query.nprobes.unwrap_or_default().max(1),
            partitions: partitions.partitions_max().max(1),
            index_rows: partitions.rows(),
            checks_max,
        };
        Ok(Some(CandidateSearch {
            predicate: Arc::clone(&filter.predicate),
            fresh,
            segments: partitions.segments(),
            scan_rows: filter.scan_rows,
            filter,
            widening,
        }))
    }

    /// Returns the nearest rows, of which it is not known whether they pass the query's filter.
    ///
    /// Errors: as `search_vector`.
    pub async fn candidates(
        &self,
        query: &VectorQuery,
        search: &CandidateSearch,
    ) -> Result<Candidates> {
        let (column, vector) = self.check_vector_query(query).await?;
        let Ok(partitions) = self.open_partitions(&column).await? else {
            // Unreachable: the search was made from open partitions.
            return Ok(Candidates { hits: Vec::new(), partitions: 0 });
        };
        let Widening { depth, probed, .. } = search.widening;
        let probes = Probes { nprobes: probed, ef: None };
        let hits = partitions.search(vector, depth, query.distances, probes, None);
        let hits = self.caught(hits).boxed().await?;
        Ok(Candidates { hits, partitions: partitions.partitions(probed) })
    }

    /// Makes the list of rows that pass `filter`, for later searches.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn make_list(&self, filter: &str) -> Result<()> {
        self.allow_list(filter).await.map(drop)
    }

    /// Returns `filter` in the form in which it is evaluated for single rows, if it has one and the rows that pass are not
    /// known.
    ///
    /// Errors: `BadFilter`.
    pub async fn predicate(&self, filter: &str) -> Result<Option<Predicate>> {
        if self.allow_lists().knows(self.open_id(), filter) || may_read_clock(filter) {
            return Ok(None);
        }
        let expr = caught(self.uri(), async { self.parsed_filter(filter) }).await?;
        Ok(predicate_of(&expr, self.schema()))
    }

    /// Returns `filter` in the form in which it is evaluated for single rows. Returns `None` if it has no such form, or
    /// if scalar indexes answer a part of it: a scan then reads only the rows that they found.
    async fn checked_filter(&self, filter: &str) -> Result<Option<CheckedFilter>> {
        let expr = caught(self.uri(), async { self.parsed_filter(filter) }).await?;
        let Some(predicate) = predicate_of(&expr, self.schema()) else { return Ok(None) };
        let plan = async { self.plan_by_indexes(&expr).await };
        let plan = self.caught(polled_on_deep_stack(plan.boxed())).boxed();
        let scan_rows = match self.on_own_runtime(plan).await? {
            ByIndexes::Whole(plan) => plan.scanned_rows,
            ByIndexes::Part => return Ok(None),
            ByIndexes::None => self.live_rows_of(self.fragments().iter().map(|info| info.id)),
        };
        Ok(Some(CheckedFilter {
            predicate: Arc::new(predicate),
            scan_rows,
            checked: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
        }))
    }
}
