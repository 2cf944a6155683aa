//! Vector searches whose filter is evaluated only for candidates, by the I/O nodes that hold the candidates' rows,
//! because the rows that pass are not known.
//!
//! To find the rows that pass, a scan reads the filter's columns of the whole table. For a large table that takes longer
//! than to search the index without the filter, and to compare the nearest rows with the filter. The result of such a
//! search is the same as with the list of rows that pass: the nearest of them in the same partitions.
//!
//! Each of these ways is chosen if it is expected to cost less: [`Widening`] decides for a search. A list makes all later
//! searches with the filter cheaper. So once the candidates of all searches together have cost as much as a scan, the
//! list is wanted ([`CheckedFilter::is_list_due`]).

use std::sync::Arc;

use address::RowAddr;
use arrow::datatypes::DataType;
use futures::FutureExt;
use predicate::Predicate;

use super::checked_filter::CheckedFilter;
use super::filter::{may_read_clock, predicate_of};
use super::hit::DistanceHit;
use super::partitions::{Partitions, Probes};
use super::resolve_filter::ByIndexes;
use super::selection::widened;
use super::vector_query::VectorQuery;
use super::widening::{Widened, Widening};
use crate::caught::caught;
use crate::deep_stack::polled_on_deep_stack;
use crate::error::Result;
use crate::table::Table;

/// The assumed size in bytes of a text or binary value in a column that a filter is about.
const TEXT_BYTES_LIKELY: usize = 16;

/// Maximum number of candidates that a search compares with a filter, however long a scan takes. It bounds the search's
/// load on the I/O nodes.
const CHECKS_MAX: u64 = 50_000;

/// A vector search whose caller compares candidates with the filter.
#[derive(Clone, Debug)]
pub struct CandidateSearch {
    /// The filter, and what searches have learnt about it.
    pub filter: Arc<CheckedFilter>,
    /// Live rows that the index does not cover, ascending. They are candidates too. Empty if the query is `indexed_only`.
    pub uncovered: Arc<[RowAddr]>,
    /// The number of the index's segments that are searched.
    pub segments: usize,
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
    /// The number of candidates to search for, and the partitions of each segment to search.
    pub(super) fn extent(&self) -> (usize, Probes) {
        (self.widening.depth, Probes { nprobes: self.widening.probed, ef: None })
    }

    /// Decides how the search continues after `passed` of the `found` nearest candidates have passed, and `checked` rows
    /// were compared with the filter in all.
    pub fn next(&mut self, found: usize, passed: usize, checked: usize) -> Widened {
        self.widening.next(found, passed, checked as u64)
    }

    /// Returns whether `checked` rows are more than the search may compare with the filter.
    pub fn is_exceeded(&self, checked: usize) -> bool {
        self.widening.is_exceeded(checked as u64)
    }
}

impl Table {
    /// Returns a search of candidates for `k` rows that pass `filter`, if that is expected to cost less than to find all
    /// rows that pass. It begins with `nprobes` partitions of each segment.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub(super) async fn candidate_search(
        &self,
        filter: &str,
        partitions: &Partitions,
        (k, nprobes): (usize, usize),
        &VectorQuery { indexed_only, checked_row_bytes, .. }: &VectorQuery,
    ) -> Result<Option<CandidateSearch>> {
        // A graph that is searched for more candidates may find other rows in place of the first ones.
        if !partitions.is_flat() || self.allow_lists().knows(self.open_id(), filter) {
            return Ok(None);
        }
        let make = self.checked_filter(filter, checked_row_bytes);
        let Some(filter) = self.allow_lists().checked(self.open_id(), filter, make).await? else {
            return Ok(None);
        };
        let uncovered = match indexed_only {
            true => Arc::default(),
            false => Arc::clone(partitions.uncovered()),
        };
        let depth = widened(k, filter.share());
        let checks_max = filter.checks_per_scan().min(CHECKS_MAX);
        if depth as u64 + uncovered.len() as u64 > checks_max {
            return Ok(None);
        }
        let widening = Widening {
            wanted: k,
            depth,
            probed: nprobes.max(1),
            partitions: partitions.partitions_max().max(1),
            index_rows: partitions.rows(),
            checks_max,
        };
        Ok(Some(CandidateSearch { filter, uncovered, segments: partitions.segments(), widening }))
    }

    /// Makes the list of rows that pass `filter`, for later searches.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn make_list(&self, filter: &str) -> Result<()> {
        self.allow_list(filter).await.map(drop)
    }

    /// Returns `filter` in the form in which it is evaluated for single rows, if that is expected to cost less for
    /// `rows` rows than to find all rows that pass. To evaluate it, `row_bytes` are read of each row.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn predicate(
        &self,
        filter: &str,
        rows: usize,
        row_bytes: usize,
    ) -> Result<Option<Arc<Predicate>>> {
        if self.allow_lists().knows(self.open_id(), filter) || may_read_clock(filter) {
            return Ok(None);
        }
        let make = self.checked_filter(filter, row_bytes);
        let filter = self.allow_lists().checked(self.open_id(), filter, make).await?;
        let filter = filter.filter(|filter| rows as u64 <= filter.checks_per_scan());
        Ok(filter.map(|filter| Arc::clone(&filter.predicate)))
    }

    /// Returns `filter` in the form in which it is evaluated for single rows. Returns `None` if it has no such form, or
    /// if scalar indexes answer a part of it: a scan then reads only the rows that they found.
    async fn checked_filter(
        &self,
        filter: &str,
        row_bytes: usize,
    ) -> Result<Option<CheckedFilter>> {
        let expr = caught(self.uri(), async { self.parsed_filter(filter) }).await?;
        let Some(predicate) = predicate_of(&expr, self.schema()) else { return Ok(None) };
        let plan = async { self.plan_by_indexes(&expr).await };
        let plan = self.caught(polled_on_deep_stack(plan.boxed())).boxed();
        let scan_rows = match self.on_own_runtime(plan).await? {
            ByIndexes::Whole(plan) => plan.scanned_rows,
            ByIndexes::Part => return Ok(None),
            ByIndexes::None => self.live_rows_of(self.fragments().iter().map(|info| info.id)),
        };
        let scanned_bytes = predicate.columns.iter().map(|name| self.scanned_width(name)).sum();
        Ok(Some(CheckedFilter::new(predicate, scan_rows, (row_bytes, scanned_bytes))))
    }

    /// Returns the approximate number of bytes that a scan reads of a column for each row.
    fn scanned_width(&self, column: &str) -> usize {
        let of = self.schema().field_with_name(column).map(|field| field.data_type());
        match of {
            Ok(DataType::Boolean) => 1,
            Ok(DataType::FixedSizeBinary(width)) => usize::try_from(*width).unwrap_or_default(),
            Ok(of) => of.primitive_width().unwrap_or(TEXT_BYTES_LIKELY),
            Err(_) => TEXT_BYTES_LIKELY,
        }
    }
}
