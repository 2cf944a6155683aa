//! Finds the live rows of a version that pass a filter.
//!
//! ```text
//! filter ─► scalar indexes, if they answer all of it ─► rows of the fragments that they cover ─┐
//!      └──► scan of the other fragments, or of all ────────────────────────────────────────────┴─► AllowList
//! ```
//!
//! If the indexes answer only a part of the filter, a search may use the list of the rows that they leave instead
//! (`narrowing.rs`), which is made here too.
//!
//! A list is made once for each filter and version (`allow_lists.rs` keeps it), because making it costs more than most
//! searches that use it: the scanner, which makes it for each search, spends 2 to 8 ms of CPU on a table of 1 M rows.

use std::sync::Arc;

use datafusion::logical_expr::Expr;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::dataset::fragment::FileFragment;
use lance::dataset::rowids::load_row_id_sequence;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance::io::exec::Planner;
use lance::io::exec::scalar_index::ScalarIndexExec;
use lance_core::Error;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::expression::{PlannerIndexExt, ScalarIndexExpr};
use lance_select::{RowAddrMask, RowAddrTreeMap};
use lance_table::format::{Fragment, IndexMetadata};
use roaring::RoaringBitmap;
use tokio::sync::OnceCell;

use super::allow_list::{AllowList, AllowedBy};
use super::narrowing::Narrowing;
use super::wide::WideRanges;
use crate::diagnose::caught::caught;
use crate::error::Result;
use crate::search::coverage::check_fragments;
use crate::search::hit::{BATCH_ROWS, row_ids};
use crate::table::Table;
use crate::table::live_rows::FRAGMENTS_LOADING_MAX;
use crate::threads::deep_stack::polled_on_deep_stack;

/// Maximum number of rows that are scanned to make a list for a search by filter alone. Without a list, such a search
/// ends once it has found enough rows, which may be cheaper than a longer scan for the list.
const SCANNED_ROWS_MAX: u64 = 50_000;

/// A parsed filter, and how scalar indexes answer it. Parsing and planning take 0.2 ms of CPU, so a search that first
/// tries to do without a list uses the same plan to make the list.
pub(in crate::search) struct FilterPlan {
    pub expr: Expr,
    pub by_indexes: ByIndexes,
}

/// The part of a filter that scalar indexes answer.
pub(in crate::search) enum ByIndexes {
    /// All of it.
    Whole(IndexPlan),
    /// A part: of the rows that the narrowing leaves, those pass for which the expression is true. The expression is
    /// the rest of the filter if the narrowing must be exact, otherwise all of the filter.
    Part(Arc<Narrowing>, Expr),
    None,
}

/// A plan by which scalar indexes answer a filter.
pub(in crate::search) struct IndexPlan {
    query: ScalarIndexExpr,
    /// The fragments that the indexes cover.
    covered: RoaringBitmap,
    /// The other fragments, which are scanned.
    scanned: Vec<Fragment>,
    /// The number of live rows in `scanned`.
    pub scanned_rows: u64,
}

impl Table {
    /// Returns the allow-list of `filter` if it is kept.
    pub(in crate::search) fn known_allow_list(&self, filter: &str) -> Option<Arc<AllowList>> {
        self.allow_lists().get(self.open_id(), filter)
    }

    /// Returns the allow-list of `filter`. Makes it if it is not kept.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub(in crate::search) async fn allow_list(&self, filter: &str) -> Result<Arc<AllowList>> {
        self.planned_allow_list(filter, &OnceCell::new()).await
    }

    /// Like [`allow_list`](Self::allow_list). Takes the filter's plan from `planned`, and plans it there if that has
    /// not been done yet.
    ///
    /// Errors: as `allow_list`.
    pub(in crate::search) async fn planned_allow_list(
        &self,
        filter: &str,
        planned: &OnceCell<FilterPlan>,
    ) -> Result<Arc<AllowList>> {
        let make = self.make_allow_list(filter, planned, true);
        let list = self.allow_lists().get_or_make(self.open_id(), filter, make).await?;
        list.ok_or_else(|| self.blame(Error::internal("no allow-list was made")))
    }

    /// Like [`allow_list`](Self::allow_list), but makes the list only if scalar indexes answer the whole filter exactly
    /// and at most [`SCANNED_ROWS_MAX`] rows that they don't cover have to be scanned. Returns `None` if the list is
    /// neither kept nor made.
    ///
    /// Errors: as `allow_list`.
    pub(in crate::search) async fn allow_list_by_index(
        &self,
        filter: &str,
    ) -> Result<Option<Arc<AllowList>>> {
        let planned = OnceCell::new();
        let make = self.make_allow_list(filter, &planned, false);
        self.allow_lists().get_or_make(self.open_id(), filter, make).await
    }

    /// Makes the allow-list of `filter`. Unless `may_scan` is set, returns `None` if scalar indexes do not answer the
    /// whole filter exactly, or if they leave more than [`SCANNED_ROWS_MAX`] rows to be scanned.
    ///
    /// Errors: `BadFilter`, and those of the store.
    async fn make_allow_list(
        &self,
        filter: &str,
        planned: &OnceCell<FilterPlan>,
        may_scan: bool,
    ) -> Result<Option<AllowList>> {
        let FilterPlan { expr, by_indexes } = self.planned(filter, planned).await?;
        let make = async {
            let found = match by_indexes {
                ByIndexes::Whole(plan) if may_scan || plan.scanned_rows <= SCANNED_ROWS_MAX => {
                    let by = AllowedBy::Indexes { scanned_rows: plan.scanned_rows };
                    self.allowed_by_indexes(expr, plan).await?.map(|ids| (ids, by))
                }
                _ => None,
            };
            let found = match found {
                None if may_scan => {
                    Some((self.allowed_by_scan(expr, None).await?, AllowedBy::Scan))
                }
                found => found,
            };
            let columns = self.stored_schema().fields().len();
            Ok(found.map(|(ids, by)| AllowList::new(ids, by, columns)))
        };
        let make = self.caught_filter(Some(filter), polled_on_deep_stack(make.boxed())).boxed();
        self.on_own_runtime(make).await
    }

    /// Returns the plan of `filter` that `planned` has. Parses and plans the filter if there is none yet.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub(in crate::search) async fn planned<'a>(
        &self,
        filter: &str,
        planned: &'a OnceCell<FilterPlan>,
    ) -> Result<&'a FilterPlan> {
        let plan = || async {
            // Lance panics on some damaged schemas.
            let expr = caught(self.uri(), async { self.parsed_filter(filter) }).await?;
            let plan = polled_on_deep_stack(self.plan_by_indexes(&expr).boxed());
            let by_indexes = self.on_own_runtime(self.caught(plan).boxed()).await?;
            Ok(FilterPlan { expr, by_indexes })
        };
        planned.get_or_try_init(plan).await
    }

    /// Returns how scalar indexes answer `expr`.
    async fn plan_by_indexes(&self, expr: &Expr) -> lance::Result<ByIndexes> {
        let dataset = self.dataset();
        let has_counts = dataset.fragments().iter().all(|it| it.physical_rows.is_some());
        if !has_counts || check_fragments(dataset).await?.is_err() {
            return Ok(ByIndexes::None);
        }
        self.note_file_sizes().await?;
        self.answer(expr, &dataset.load_indices().await?).await
    }

    /// Returns the wide ranges of the filter `expr`, all of which `plan` answers. If the filter has other conditions,
    /// also returns the rows that indexes leave by these alone, and what is to be evaluated for the rows. Returns `None`
    /// if there are no wide ranges, or if indexes can't answer the other conditions without them.
    ///
    /// Errors: those of the store.
    pub(in crate::search) async fn wide_ranges(
        &self,
        expr: &Expr,
        plan: &IndexPlan,
    ) -> Result<Option<(WideRanges, Option<(Arc<Narrowing>, Expr)>)>> {
        let find = async {
            let (dataset, rows) = (self.dataset(), self.live_rows_of(plan.covered.iter()));
            let Some(wide) = WideRanges::of(&plan.query, dataset, rows).await else {
                return Ok(None);
            };
            if !wide.has_others {
                return Ok(Some((wide, None)));
            }
            let indexes = dataset.load_indices().await?;
            let is_other = |index: &&IndexMetadata| !wide.indexes.contains(&index.name);
            let others: Vec<_> = indexes.iter().filter(is_other).cloned().collect();
            Ok(match self.answer(expr, &others).await? {
                ByIndexes::Part(narrowing, rest) => Some((wide, Some((narrowing, rest)))),
                ByIndexes::Whole(_) | ByIndexes::None => None,
            })
        };
        let find = polled_on_deep_stack(find.boxed());
        self.on_own_runtime(self.caught(find).boxed()).await
    }

    /// Returns how those of `indexes` that are scalar indexes answer `expr`.
    async fn answer(&self, expr: &Expr, indexes: &[IndexMetadata]) -> lance::Result<ByIndexes> {
        let dataset = self.dataset();
        let fragments = dataset.fragments();
        let planner = Planner::new(Arc::new(dataset.schema().into()));
        let indexes = dataset.scalar_index_info_for_segments(indexes).await?;
        // The scanner has columns that the schema lacks, such as `_rowid`. It plans filters on them.
        let Ok(plan) = planner.create_filter_plan(expr.clone(), &indexes, true) else {
            return Ok(ByIndexes::None);
        };
        let Some(query) = plan.index_query.map(ScalarIndexExpr::optimize) else {
            return Ok(ByIndexes::None);
        };
        for column in expr.column_refs() {
            if let Some((position, _)) = self.stored_schema().fields().find(&column.name) {
                self.direct_of(position).note_use();
            }
        }
        let covered = ScalarIndexExec::fragments_covered_by_index_query(&query, dataset).await?;
        let is_covered = |fragment: &Fragment| covered.contains(fragment.id as u32);
        let (covered, scanned): (Vec<_>, Vec<_>) = fragments.iter().cloned().partition(is_covered);
        let ids = |fragments: &[Fragment]| -> RoaringBitmap {
            fragments.iter().map(|fragment| fragment.id as u32).collect()
        };
        let (covered, uncovered) = (ids(&covered), ids(&scanned));
        let narrowing = |query, must_be_exact| {
            let fragments = (covered.clone(), uncovered.clone());
            Arc::new(Narrowing::new(query, fragments, must_be_exact))
        };
        Ok(match (plan.refine_expr, plan.full_expr) {
            (None, _) if plan.skip_recheck => {
                let scanned_rows = self.live_rows_of(uncovered.iter());
                ByIndexes::Whole(IndexPlan { query, covered, scanned, scanned_rows })
            }
            (Some(rest), _) if plan.skip_recheck && scanned.is_empty() => {
                ByIndexes::Part(narrowing(query, true), rest)
            }
            // The indexes may find rows for which the part that they answer is false, or do not cover all rows.
            (_, Some(all)) if !covered.is_empty() => ByIndexes::Part(narrowing(query, false), all),
            _ => ByIndexes::None,
        })
    }

    /// Returns the rows that `narrowing` leaves, or `None` if the indexes' answer turns out to be inexact but must be
    /// exact. Makes the list if it is not kept.
    ///
    /// Errors: those of the store.
    pub(in crate::search) async fn narrowed(
        &self,
        narrowing: &Arc<Narrowing>,
    ) -> Result<Option<Arc<AllowList>>> {
        let make = async {
            let Narrowing { query, covered, uncovered, must_be_exact, .. } = narrowing.as_ref();
            let (mut ids, is_exact) = self.live_answer(query, covered).await?;
            if *must_be_exact && !is_exact {
                return Ok(None);
            }
            ids |= self.live_ids(uncovered).await?;
            let by = AllowedBy::Indexes { scanned_rows: 0 };
            Ok(Some(AllowList::new(ids, by, self.stored_schema().fields().len())))
        };
        let make = self.caught(polled_on_deep_stack(make.boxed())).boxed();
        let make = self.on_own_runtime(make);
        self.allow_lists().get_or_make(self.open_id(), narrowing, make).await
    }

    /// Returns the rows that pass, or `None` if the indexes' answer turns out to be inexact.
    async fn allowed_by_indexes(
        &self,
        expr: &Expr,
        plan: &IndexPlan,
    ) -> lance::Result<Option<RowAddrTreeMap>> {
        let (mut ids, is_exact) = self.live_answer(&plan.query, &plan.covered).await?;
        if !is_exact {
            return Ok(None);
        }
        if !plan.scanned.is_empty() {
            ids |= self.allowed_by_scan(expr, Some(plan.scanned.clone())).await?;
        }
        Ok(Some(ids))
    }

    /// Returns the live rows of the `covered` fragments that may match `query`, among them all that do. Also returns
    /// whether the answer is exact; if it is not, some of the rows may not match.
    pub(in crate::search) async fn live_answer(
        &self,
        query: &ScalarIndexExpr,
        covered: &RoaringBitmap,
    ) -> lance::Result<(RowAddrTreeMap, bool)> {
        let dataset = self.dataset();
        let answer = query.evaluate(dataset.as_ref(), &NoOpMetricsCollector).await?;
        let is_exact = answer.is_exact();
        let live = RowAddrMask::from_allowed(self.live_ids(covered).await?);
        let rows = (answer.upper & live).allow_list().cloned();
        // The intersection of a mask with an allow-list is an allow-list.
        let rows = rows.ok_or_else(|| Error::internal("the index's rows are no list"))?;
        Ok((rows, is_exact))
    }

    /// Returns the ids of the live rows of `fragments`: their stable row ids if the table has them, otherwise their
    /// addresses.
    pub(in crate::search) async fn live_ids(
        &self,
        fragments: &RoaringBitmap,
    ) -> lance::Result<RowAddrTreeMap> {
        let dataset = self.dataset();
        let is_stable = dataset.manifest().uses_stable_row_ids();
        let of_fragment = async |fragment: &FileFragment| {
            let (id, deleted) = (fragment.id() as u32, fragment.get_deletion_vector().await?);
            if is_stable {
                let ids = load_row_id_sequence(dataset, fragment.metadata()).await?;
                let mut ids = ids.as_ref().clone();
                if let Some(deleted) = deleted {
                    ids.mask(deleted.to_sorted_iter())?;
                }
                return Ok(RowAddrTreeMap::from(&ids));
            }
            let mut offsets = RoaringBitmap::new();
            offsets.insert_range(0..self.fragment(id).map_or(0, |info| info.physical_rows));
            if let Some(deleted) = deleted {
                offsets -= RoaringBitmap::from(deleted.as_ref());
            }
            let mut live = RowAddrTreeMap::new();
            live.insert_bitmap(id, offsets);
            Ok::<_, Error>(live)
        };
        let wanted: Vec<_> = self.file_fragments(fragments.iter()).map(of_fragment).collect();
        let mut loaded = stream::iter(wanted).buffered(FRAGMENTS_LOADING_MAX);
        let mut live = RowAddrTreeMap::new();
        while let Some(of_fragment) = loaded.try_next().await? {
            live |= of_fragment;
        }
        Ok(live)
    }

    /// Returns the rows that pass `expr`, of `fragments` or of all fragments. Lance's scanner plans the search.
    pub(in crate::search) async fn allowed_by_scan(
        &self,
        expr: &Expr,
        fragments: Option<Vec<Fragment>>,
    ) -> lance::Result<RowAddrTreeMap> {
        let mut scanner = self.dataset().scan();
        scanner.batch_size(BATCH_ROWS).filter_expr(expr.clone());
        scanner.project::<&str>(&[])?.with_row_id();
        if let Some(fragments) = fragments {
            scanner.with_fragments(fragments);
        }
        let mut batches = scanner.try_into_stream().await?;
        let mut ids = RowAddrTreeMap::new();
        while let Some(batch) = batches.try_next().await? {
            ids.extend(row_ids(&batch)?.iter().copied());
        }
        Ok(ids)
    }
}
