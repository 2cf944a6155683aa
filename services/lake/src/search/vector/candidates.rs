//! Vector searches whose filter is evaluated only for candidates, by the I/O nodes that hold the candidates' rows,
//! because the rows that pass are not known.
//!
//! To find the rows that pass, a scan reads the filter's columns of the whole table, or a BTREE gives out the rows of a
//! wide range one by one (`filter/wide.rs`). For a large table, both take longer than to search the index without the
//! filter, and to compare the nearest rows with the filter. The result of such a search is the same as with the list of
//! rows that pass: the nearest of them in the same partitions.
//!
//! If scalar indexes answer a part of the filter, only the rows that they leave are candidates (`filter/narrowing.rs`). If
//! these are few, all of them are compared, and the vector index is not searched.
//!
//! A search takes each of these ways only if that is expected to cost less than a scan. [`Widening`] decides again
//! after each round of candidates. A list makes all later searches with the filter cheaper. So once the candidates of
//! all searches together have cost as much as a scan, the list is wanted ([`CheckedFilter::is_list_due`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use address::RowAddr;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::logical_expr::Expr;
use predicate::Predicate;
use tokio::sync::OnceCell;

use super::partitions::{Partitions, Probes};
use super::query::VectorQuery;
use super::widening::{Widened, Widening};
use crate::error::Result;
use crate::search::filter::CheckedFilter;
use crate::search::filter::Narrowing;
use crate::search::filter::{ByIndexes, FilterPlan};
use crate::search::filter::{may_read_clock, predicate_of};
use crate::search::hit::DistanceHit;
use crate::search::selection::{SelectedByIndex, rows_to_search};
use crate::table::Table;

/// The assumed size in bytes of a text or binary value in a column that a filter is about.
const TEXT_BYTES_LIKELY: usize = 16;

/// Maximum number of candidates that a search compares with a filter, however long a scan takes. It bounds the search's
/// load on the I/O nodes.
const CHECKS_MAX: u64 = 50_000;

/// A search whose filter has wide ranges may compare this many candidates, or twice as many as it is expected to need if
/// these are more. As many cost about as much as the shortest list of a wide range.
const WIDE_CHECKS_MIN: u64 = 1_000;

/// A vector search whose caller compares candidates with the filter.
#[derive(Clone, Debug)]
pub struct CandidateSearch {
    /// The filter, and what searches have learnt about it.
    pub filter: Arc<CheckedFilter>,
    /// Live rows that are candidates besides those that the index finds, ascending: the rows that the index does not
    /// cover, or all candidates if the index is not searched. Empty if the query is `indexed_only`.
    pub to_score: Arc<[RowAddr]>,
    /// The number of the index's segments that are searched; 0 if the index is not searched.
    pub segments: usize,
    /// The rows that may be candidates, if scalar indexes answer a part of the filter.
    selected: Option<Arc<SelectedByIndex>>,
    /// The extent of the search of the index, if the index is searched.
    widening: Option<Widening>,
}

/// Candidates of a search.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The nearest rows by the index, nearest first.
    pub hits: Vec<DistanceHit>,
    /// The number of partitions that were searched, in all segments together, those without rows included.
    pub partitions: usize,
}

impl CandidateSearch {
    /// Whether only the rows that scalar indexes leave are candidates.
    pub fn is_narrowed(&self) -> bool {
        self.selected.is_some()
    }

    /// Returns the nearest candidates in `partitions`; none if the index is not searched.
    pub(in crate::search) async fn search(
        &self,
        partitions: &Partitions,
        vector: ArrayRef,
        distances: (Option<f32>, Option<f32>),
    ) -> lance_core::Result<Candidates> {
        let Some(Widening { depth, probed, .. }) = self.widening else {
            return Ok(Candidates { hits: Vec::new(), partitions: 0 });
        };
        let probes = Probes { nprobes: probed, nprobes_max: probed, ef: None };
        let selected = self.selected.as_deref();
        let hits = partitions.search(vector, depth, distances, probes, selected).await?;
        Ok(Candidates { hits, partitions: partitions.partitions(probed) })
    }

    /// Decides how the search continues after `passed` of the `found` nearest candidates have passed, and `checked`
    /// rows were compared with the filter in all.
    pub fn next(&mut self, found: usize, passed: usize, checked: usize) -> Widened {
        match &mut self.widening {
            Some(widening) => widening.next(found, passed, checked as u64),
            None => Widened::Enough,
        }
    }

    /// Returns whether `checked` rows are more than the search may compare with the filter. If the index is not
    /// searched, there is no limit: the candidates were few enough from the beginning.
    pub fn is_exceeded(&self, checked: usize) -> bool {
        self.widening.as_ref().is_some_and(|widening| widening.is_exceeded(checked as u64))
    }
}

impl Table {
    /// Returns a search of candidates for the query's `k` rows that pass `filter`, if that is expected to cost less
    /// than to find all rows that pass. The search begins with the query's `nprobes` partitions of each segment.
    /// Returns `None` also if the list of the rows that pass is kept, if the partitions are graphs, or if the filter
    /// has no form for single rows.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub(in crate::search) async fn candidate_search(
        &self,
        (filter, planned): (&str, &OnceCell<FilterPlan>),
        (column, partitions): (&str, &Partitions),
        &VectorQuery { k, nprobes, nprobes_max, indexed_only, checked_row_bytes, .. }: &VectorQuery,
    ) -> Result<Option<CandidateSearch>> {
        // A graph that is searched for more candidates may find other rows in place of the first ones.
        if !partitions.is_flat() || self.allow_lists().knows(self.open_id(), filter) {
            return Ok(None);
        }
        let make = self.checked_filter(filter, planned, checked_row_bytes);
        let Some(filter) = self.allow_lists().checked(self.open_id(), filter, make).await? else {
            return Ok(None);
        };
        let selected = match &filter.narrowing {
            Some(narrowing) => {
                let Some(list) = self.narrowed(narrowing).await? else { return Ok(None) };
                let is_new = !list.is_selected(self.column_position(column)?);
                let selected = self.select(partitions, column, &list).await?;
                if is_new {
                    self.allow_lists().weigh(self.open_id(), narrowing);
                }
                Some(selected)
            }
            None => None,
        };
        let depth = rows_to_search(k, filter.share());
        let checks_max = filter.checks_per_scan().min(CHECKS_MAX);
        let nprobes = nprobes.unwrap_or_default();
        let is_cheaper = |all: &&Arc<[RowAddr]>| {
            all.len() as u64 <= checks_max
                && partitions.is_scoring_cheaper(all.len(), depth, nprobes)
        };
        let all = selected.as_ref().filter(|_| !indexed_only).and_then(|it| it.all.as_ref());
        if let Some(all) = all.filter(is_cheaper) {
            let (to_score, segments, widening) = (Arc::clone(all), 0, None);
            return Ok(Some(CandidateSearch { filter, to_score, segments, selected, widening }));
        }
        let to_score = match &selected {
            _ if indexed_only => Arc::default(),
            Some(selected) => Arc::clone(&selected.uncovered),
            None => Arc::clone(partitions.uncovered()),
        };
        let index_rows = selected.as_ref().map_or(partitions.rows(), |it| it.covered.load(Relaxed));
        let rows = index_rows + to_score.len() as u64;
        let first = (depth as u64).saturating_add(to_score.len() as u64);
        let checks_max = match filter.has_wide_ranges() {
            // If far fewer rows pass than was estimated, indexes make the list without a scan.
            true => checks_max.min(first.saturating_mul(2).max(WIDE_CHECKS_MIN)),
            false => checks_max,
        };
        if rows.min(first) > checks_max {
            return Ok(None);
        }
        let all = partitions.partitions_max().max(1);
        let widening = Widening {
            wanted: k,
            depth,
            probed: nprobes.max(1),
            probed_max: nprobes_max.unwrap_or(usize::MAX).clamp(1, all),
            partitions: all,
            index_rows,
            rows,
            checks_max,
        };
        let widening = Some(widening.limited());
        let segments = partitions.segments();
        Ok(Some(CandidateSearch { filter, to_score, segments, selected, widening }))
    }

    /// Makes the list of rows that pass `filter`, for later searches.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn make_list(&self, filter: &str) -> Result<()> {
        self.allow_list(filter).await.map(drop)
    }

    /// Returns `filter` in the form in which it is evaluated for single rows, if that is expected to cost less for
    /// `rows` rows than to find all rows that pass. To evaluate it, `row_bytes` are read of each row. Returns `None`
    /// also if the list of the rows that pass is kept, if the filter may read the clock, or if it has no such form.
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
        let planned = OnceCell::new();
        let make = self.checked_filter(filter, &planned, row_bytes);
        let filter = self.allow_lists().checked(self.open_id(), filter, make).await?;
        let filter = filter.filter(|filter| rows as u64 <= filter.checks_per_scan());
        Ok(filter.and_then(|filter| filter.whole.clone()))
    }

    /// Returns `filter` in the form in which it is evaluated for single rows: the part of it that scalar indexes do not
    /// answer; or all of it if they answer no part or the whole, if their answer may be inexact, or if the rows that
    /// they leave can't be used. Indexes are not asked for wide ranges. Returns `None` if it has no such form.
    async fn checked_filter(
        &self,
        filter: &str,
        planned: &OnceCell<FilterPlan>,
        row_bytes: usize,
    ) -> Result<Option<CheckedFilter>> {
        let FilterPlan { expr, by_indexes } = self.planned(filter, planned).await?;
        let predicate = |expr: &Expr| predicate_of(expr, self.stored_schema()).map(Arc::new);
        let whole = predicate(expr);
        let of_all = |whole: Option<Arc<Predicate>>, scan_rows| {
            whole.map(|whole| {
                let bytes = (row_bytes, self.scanned_bytes(&whole));
                CheckedFilter::new(whole, scan_rows, bytes)
            })
        };
        Ok(match by_indexes {
            ByIndexes::Whole(plan) => match self.wide_ranges(expr, plan).await? {
                Some((wide, Some((narrowing, rest)))) => {
                    let narrowed = (predicate(&rest), whole.clone());
                    let filter = self.narrowed_filter(&narrowing, narrowed, row_bytes).await?;
                    let filter = filter.map(|filter| filter.with_wide_ranges(wide.share));
                    filter.or_else(|| of_all(whole, plan.scanned_rows))
                }
                Some((wide, None)) => {
                    let filter = of_all(whole, plan.scanned_rows + wide.rows);
                    filter.map(|filter| filter.with_wide_ranges(wide.share))
                }
                None => of_all(whole, plan.scanned_rows),
            },
            ByIndexes::Part(narrowing, rest) => {
                let narrowed = (predicate(rest), whole.clone());
                let filter = self.narrowed_filter(narrowing, narrowed, row_bytes).await?;
                // Otherwise all rows may be candidates, as if there were no indexes.
                filter.or_else(|| of_all(whole, self.row_count()))
            }
            ByIndexes::None => of_all(whole, self.row_count()),
        })
    }

    /// Returns a filter of which scalar indexes answer a part, from the predicates of the rest and of all of the
    /// filter. Returns `None` if the rest has no predicate, if the indexes' answer turns out to be inexact but must be
    /// exact, or if there is no room for the list of the rows that the indexes leave.
    async fn narrowed_filter(
        &self,
        narrowing: &Arc<Narrowing>,
        (rest, whole): (Option<Arc<Predicate>>, Option<Arc<Predicate>>),
        row_bytes: usize,
    ) -> Result<Option<CheckedFilter>> {
        let Some(rest) = rest else { return Ok(None) };
        let Some(list) = self.narrowed(narrowing).await? else { return Ok(None) };
        if !self.allow_lists().has_room_for(&list) {
            // Each search would ask the indexes again.
            return Ok(None);
        }
        let bytes = (row_bytes, self.scanned_bytes(&rest));
        let narrowing = (Arc::clone(narrowing), list.len());
        Ok(Some(CheckedFilter::narrowed((rest, whole), narrowing, bytes)))
    }

    /// Returns the approximate number of bytes that a scan for the rows that pass `predicate` reads of each row.
    fn scanned_bytes(&self, predicate: &Predicate) -> usize {
        predicate.columns.iter().map(|name| self.scanned_width(name)).sum()
    }

    /// Returns the approximate number of bytes that a scan reads of a column for each row.
    fn scanned_width(&self, column: &str) -> usize {
        let of = self.stored_schema().field_with_name(column).map(|field| field.data_type());
        match of {
            Ok(DataType::Boolean) => 1,
            Ok(DataType::FixedSizeBinary(width)) => usize::try_from(*width).unwrap_or_default(),
            Ok(of) => of.primitive_width().unwrap_or(TEXT_BYTES_LIKELY),
            Err(_) => TEXT_BYTES_LIKELY,
        }
    }
}
