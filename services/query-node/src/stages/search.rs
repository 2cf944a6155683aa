//! Search: finds row addresses, with approximate or exact distances, or scores. `lake` chooses the way: directly in
//! indexes, through Lance's scanner, or by naming all rows that pass a filter ([`VectorRoute`]). [`Path`] says which.

use std::fmt;
use std::sync::Arc;

use address::RowAddr;
use client::fetch::Metric;
use futures::FutureExt;
use lake::{
    Allowed, AllowedBy, CandidateSearch, Candidates, DirectSearch, DistanceHit, FilterHits,
    OrderBy, PlanReason, TextExpr, TextHits, TextQuery, VectorQuery, VectorRoute,
};
use spelling::counted;

use super::every_row::{every_row, scored_by};
use super::validate::{By, Question};
use crate::counters::{IndexKind, SearchBy, SearchVia};
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};
use crate::tables::{Measure, OpenTable};

/// Maximum number of rows of a search by filter alone that runs on the core. If the rows that pass are known, it only
/// copies the addresses of the first ones.
const FILTER_ROWS_ON_CORE_MAX: usize = 10_000;

/// The way in which a search found its rows, for `explain`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Path {
    /// It read this number of partitions of a vector index, in all of its `segments`.
    Partitions { partitions: usize, segments: usize, allowed: Option<Allowed> },
    /// It read no index, because it costs less to score all rows that pass the filter.
    AllAllowed(Allowed),
    /// It read this number of partitions like `Partitions`; 0 if all rows that scalar indexes leave are candidates. The
    /// filter is evaluated for the candidates, because of `why`.
    Candidates { partitions: usize, segments: usize, why: WhyCandidates },
    /// It searched a full-text index, and compared `fresh` rows that the index does not cover.
    TextIndex { allowed: Option<Allowed>, fresh: usize },
    /// It searched by a filter alone. The rows that pass are known if scalar indexes answered the filter; otherwise Lance
    /// looked for the first ones.
    Filter(Option<Allowed>),
    /// The I/O nodes compared every row that passes the filter.
    EveryRow,
    /// Lance planned the search, for this reason.
    Planned(PlanReason),
}

/// The reason why the filter of a search is evaluated for candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyCandidates {
    /// Only the rows that scalar indexes leave are candidates. There are this many.
    Left(u64),
    /// To find the rows that pass, scalar indexes would list about this many rows.
    Listed(u64),
    /// A scan for the rows that pass would read this many rows.
    Scanned(u64),
}

impl WhyCandidates {
    fn of(search: &CandidateSearch) -> Self {
        let rows = search.filter.scan_rows;
        match search.is_narrowed() {
            true => Self::Left(rows),
            false if search.filter.has_wide_ranges() => Self::Listed(rows),
            false => Self::Scanned(rows),
        }
    }
}

impl fmt::Display for WhyCandidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |rows: u64| counted(usize::try_from(rows).unwrap_or(usize::MAX), "row");
        match *self {
            Self::Left(left) => write!(f, "of the {} that scalar indexes leave", rows(left)),
            Self::Listed(listed) => {
                write!(f, "because scalar indexes would list about {} for it", rows(listed))
            }
            Self::Scanned(scanned) => {
                write!(f, "because a scan for it would read {}", rows(scanned))
            }
        }
    }
}

impl Path {
    /// Returns the way for the metrics of searches. For a search by vector that compares every row, the caller uses
    /// `SearchVia::Exhaustive` instead.
    pub fn via(self) -> SearchVia {
        match self {
            Self::AllAllowed(_) | Self::Candidates { partitions: 0, .. } => SearchVia::Scored,
            Self::Partitions { .. } | Self::Candidates { .. } | Self::TextIndex { .. } => {
                SearchVia::Index
            }
            Self::Filter(Some(_)) => SearchVia::Index,
            Self::Filter(None) | Self::Planned(_) => SearchVia::Scanner,
            Self::EveryRow => SearchVia::Exhaustive,
        }
    }
}

/// The rows that a search found, best first, before any refinement.
#[derive(Debug)]
pub struct Hits {
    /// Addresses with distances or scores (0 if the search gives neither).
    pub rows: Vec<(RowAddr, f32)>,
    /// Further candidates, which have no distance yet: the rows that the vector index does not cover, or all rows that
    /// pass the filter or may pass it, if the index was not read.
    pub to_score: Arc<[RowAddr]>,
    /// The meaning of the numbers in `rows`.
    pub measure: Measure,
    /// The metric by which to score all candidates exactly. `None` if that was not requested and no row of `to_score`
    /// needs it, if it is not possible, or if the distances are exact already.
    pub refine: Option<Metric>,
    /// Whether a vector was compared with every row that passes the filter, because there is no index or the search is
    /// exact.
    pub exhaustive: bool,
    /// The way in which the rows were found.
    pub path: Path,
    /// The search that found the rows, if it is not known which of them pass its filter.
    pub unfiltered: Option<Box<Unfiltered>>,
}

/// A vector search whose candidates are still to be compared with its filter.
#[derive(Debug)]
pub struct Unfiltered {
    /// The search.
    pub query: VectorQuery,
    /// The state of the search: how far it has been widened, and what is known of its filter.
    pub search: CandidateSearch,
    /// The kind of the index.
    kind: IndexKind,
    /// The metric by which rows can be scored exactly.
    metric: Option<Metric>,
    /// Whether all candidates are scored exactly even if none of them is in [`Hits::to_score`].
    is_refined: bool,
}

impl Hits {
    fn unrefined(rows: Vec<(RowAddr, f32)>, measure: Measure, path: Path) -> Self {
        let to_score = Arc::default();
        Self { rows, to_score, measure, refine: None, exhaustive: false, path, unfiltered: None }
    }

    /// Keeps the candidates of `of` that pass its filter (in `rows` only the best of them, as many as `of` asks for),
    /// and counts the search.
    pub fn keep(
        &mut self,
        state: &ShardState,
        nprobes: usize,
        of: &Unfiltered,
        passes: impl Fn(&RowAddr) -> bool,
    ) {
        self.rows.retain(|(addr, _)| passes(addr));
        self.rows.truncate(of.query.k);
        self.to_score = self.to_score.iter().copied().filter(&passes).collect();
        self.refine = refine_by(of.metric, of.is_refined, &self.to_score);
        let (by, via) = (SearchBy::Vector, self.path.via());
        if via == SearchVia::Scored {
            return state.metrics.searched(by, via, IndexKind::Unindexed, None, self.rows.len());
        }
        state.metrics.searched(by, via, of.kind, Some(nprobes), self.rows.len());
        state.metrics.compared_fresh(self.to_score.len());
    }

    /// Describes the result for `explain`, and the choice of the search's setting, if there was one.
    pub fn detail(&self, question: &Question) -> String {
        let found = self.found_detail(question);
        let Some(chosen) = question.chosen.as_ref().filter(|_| !self.exhaustive) else {
            return found;
        };
        let claim = match question.filter {
            Some(_) => "; the curve makes no claim about searches with a filter",
            None => "",
        };
        format!("{found}; {chosen}{claim}")
    }

    /// Names the partitions that were searched, and the rows that are candidates in addition.
    fn index_detail(&self, partitions: usize, segments: usize) -> String {
        let of_segments = match segments {
            1 => String::new(),
            _ => format!(" of {}", counted(segments, "segment")),
        };
        let fresh = and_fresh(self.to_score.len());
        format!("{}{of_segments} of the index{fresh}", counted(partitions, "partition"))
    }

    fn found_detail(&self, question: &Question) -> String {
        let candidates = counted(self.rows.len(), "candidate");
        if self.exhaustive {
            let every = if question.filter.is_some() { "row that passes" } else { "row" };
            let why = match question.exact {
                Some(_) => "",
                None => ": the vectors have no index",
            };
            return match self.path {
                Path::EveryRow => {
                    let rows = counted(self.to_score.len(), "candidate");
                    format!("{rows}, every {every}{why}")
                }
                _ => format!("{candidates}, of every {every}, read from the table{why}"),
            };
        }
        match self.path {
            Path::AllAllowed(allowed) => {
                let why = "because that costs less than to search the index";
                format!("{}, each of which is scored, {why}", passing(allowed))
            }
            Path::Partitions { partitions, segments, allowed } => {
                let index = self.index_detail(partitions, segments);
                format!("{candidates}, from {index}{}", and_passing(allowed))
            }
            Path::Candidates { partitions: 0, why, .. } => {
                format!("all {why}, for each of which the filter is evaluated")
            }
            Path::Candidates { partitions, segments, why } => {
                let index = self.index_detail(partitions, segments);
                let comma = if matches!(why, WhyCandidates::Left(_)) { "" } else { "," };
                format!(
                    "{candidates}, from {index}; the filter is evaluated for candidates{comma} {why}"
                )
            }
            Path::TextIndex { allowed, fresh } => {
                let (fresh, passing) = (and_fresh(fresh), and_passing(allowed));
                format!("{candidates}, from the full-text index{fresh}{passing}")
            }
            Path::Filter(allowed) => format!("{candidates}{}", and_passing(allowed)),
            Path::Planned(reason) => format!("{candidates}, planned by Lance: {reason}"),
            // Always exhaustive.
            Path::EveryRow => candidates,
        }
    }
}

/// Says how many rows that the index does not cover are compared.
fn and_fresh(rows: usize) -> String {
    match rows {
        0 => String::new(),
        rows => format!(", and {} that it does not cover", counted(rows, "row")),
    }
}

/// Says how many rows pass a filter, and how they were found.
fn passing(allowed: Allowed) -> String {
    let rows = counted(usize::try_from(allowed.rows).unwrap_or(usize::MAX), "row");
    let source = match allowed.by {
        AllowedBy::Scan => "a scan".to_owned(),
        AllowedBy::Indexes { scanned_rows: 0 } => "scalar indexes".to_owned(),
        AllowedBy::Indexes { scanned_rows } => {
            let scanned = counted(usize::try_from(scanned_rows).unwrap_or(usize::MAX), "row");
            format!("scalar indexes, and a scan of {scanned} that they do not cover")
        }
    };
    format!("{rows} of the version pass the filter, by {source}")
}

fn and_passing(allowed: Option<Allowed>) -> String {
    allowed.map(|allowed| format!("; {}", passing(allowed))).unwrap_or_default()
}

/// Finds the rows of a search. The caller has already replaced [`By::Like`] by [`By::Vector`].
pub async fn find_hits(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    context: RequestContext,
) -> Result<Hits> {
    match &question.by {
        By::Vector { column, vector } => {
            by_vector(state, Arc::clone(open), question, column, vector, context).await
        }
        By::Text(query) => search_text(state, open, question, query, context).await,
        By::Filter { filter, order } => {
            let (admission, k) = (&state.shared.admission, question.k);
            let ask = Ask { during: "search", rows: k, context };
            let is_short = order.is_empty() && k <= FILTER_ROWS_ON_CORE_MAX;
            let known = is_short.then(|| open.table.known_rows(filter)).flatten();
            let hits = match known {
                Some(rows) => {
                    let first = async { Ok(filter_hits(rows.first(k))) };
                    admission.run_on_core(ask, first.boxed()).await?
                }
                None => {
                    let (filter, order) = (filter.clone(), order.clone());
                    let open = Arc::clone(open);
                    let search = async move { by_filter(&open, &filter, &order, k).await };
                    admission.run_in_background(ask, search.boxed()).await?
                }
            };
            let (by, via) = (SearchBy::Filter, hits.path.via());
            state.metrics.searched(by, via, IndexKind::Planned, None, hits.rows.len());
            Ok(hits)
        }
        // The caller has already replaced `Like`.
        By::Like { .. } => Ok(Hits::unrefined(Vec::new(), Measure::Distance, Path::Filter(None))),
    }
}

/// Searches for the matches of `query`, with the filter and the number of rows of `question`. A short search of open
/// indexes runs on this core, because Lance scores rows on its own threads. Others run in the background.
pub async fn search_text(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    query: &TextExpr,
    context: RequestContext,
) -> Result<Hits> {
    let (query, filter, k) = (query.clone(), question.filter.clone(), question.k);
    let query = TextQuery { query, k, filter, indexed_only: question.indexed_only };
    let (admission, ask) = (&state.shared.admission, Ask { during: "search", rows: k, context });
    let hits = match open.table.text_is_open(&query) {
        true => admission.run_on_core(ask, by_text(open, &query).boxed()).await?,
        false => {
            let open = Arc::clone(open);
            let search = async move { by_text(&open, &query).await };
            admission.run_in_background(ask, search.boxed()).await?
        }
    };
    let (by, via) = (SearchBy::Text, hits.path.via());
    state.metrics.searched(by, via, IndexKind::Inverted, None, hits.rows.len());
    if let Path::TextIndex { fresh, .. } = hits.path {
        state.metrics.compared_fresh(fresh);
    }
    Ok(hits)
}

/// Searches by vector. If the index's partitions are open, the rows that pass the filter are known, and the search is
/// neither planned nor long, it runs on this core, because Lance compares vectors on its own threads. Otherwise it runs in
/// the background.
async fn by_vector(
    state: &ShardState,
    open: Arc<OpenTable>,
    question: &Question,
    column: &str,
    vector: &[f32],
    context: RequestContext,
) -> Result<Hits> {
    let (kind, metric) = match question.exact {
        Some(_) => (IndexKind::Unindexed, None),
        None => context.bound("search", index_of(&open, column).boxed()).await?,
    };
    if kind == IndexKind::Unindexed {
        let every = every_row(state, &open, question, column, context).boxed();
        if let Some((to_score, metric)) = every.await? {
            let (by, via) = (SearchBy::Vector, SearchVia::Exhaustive);
            state.metrics.searched(by, via, kind, None, to_score.len());
            let hits = Hits::unrefined(Vec::new(), Measure::Distance, Path::EveryRow);
            return Ok(Hits { to_score, refine: Some(metric), exhaustive: true, ..hits });
        }
    }
    let is_refined = metric.is_some() && question.refine_factor > 0;
    let k = if is_refined { question.candidates() } else { question.k };
    // Lance scores the candidates of columns that the I/O nodes can't score.
    let refine_factor = match open.is_scored_on_io_nodes(column) {
        true => 0,
        false => u32::try_from(question.refine_factor).unwrap_or(u32::MAX),
    };
    let query = VectorQuery {
        column: Some(column.to_owned()),
        vector: vector.to_vec(),
        k,
        nprobes: Some(question.nprobes),
        nprobes_max: question.nprobes_max,
        ef: question.ef,
        filter: question.filter.clone(),
        // Candidates are compared with the bounds after they have been scored exactly, because the index has only
        // estimates.
        distances: match is_refined {
            true => (question.estimated_from, None),
            // If rows are scored besides, distances of the index may be all too small, as candidates of a refined search.
            false => {
                let (lower, upper) = question.distances.computed();
                (question.estimated_from.or(lower), upper)
            }
        },
        refine_factor,
        indexed_only: question.indexed_only,
        exact: question.exact,
        // Without an I/O node, each candidate would be read from the table, and a scan is faster than that.
        checks_candidates: question.filters_candidates && state.tier.routes().is_available(),
        checked_row_bytes: open.packed_row_bytes,
    };
    let admission = &state.shared.admission;
    let rows = query.k * question.vectors * refine_factor.max(1) as usize;
    let ask = Ask { during: "search", rows, context };
    let route = async { Ok(open.table.route_if_open(&query).await?) }.boxed();
    let VectorHits { hits, to_score, path, search } = match context.bound("search", route).await? {
        Some(VectorRoute::Direct(search)) if !search.is_long => {
            admission.run_on_core(ask, VectorHits::directly(search).boxed()).await?
        }
        route => {
            let planned = match route {
                Some(VectorRoute::Planned(reason)) => Some(reason),
                _ => None,
            };
            let (open, query) = (Arc::clone(&open), query.clone());
            let search = async move {
                match planned {
                    Some(reason) => VectorHits::planned(&open, &query, reason).await,
                    None => open_and_search(&open, &query).await,
                }
            };
            admission.run_in_background(ask, search.boxed()).await?
        }
    };
    let rows = hits.into_iter().map(|hit| (hit.addr, hit.distance)).collect();
    if let Some(search) = search {
        let unfiltered = Unfiltered { query, search: *search, kind, metric, is_refined };
        let hits = Hits::unrefined(rows, Measure::Distance, path);
        return Ok(Hits { to_score, unfiltered: Some(Box::new(unfiltered)), ..hits });
    }
    let exhaustive = kind == IndexKind::Unindexed;
    let (via, read) = match path.via() {
        _ if exhaustive => (SearchVia::Exhaustive, kind),
        SearchVia::Scored => (SearchVia::Scored, IndexKind::Unindexed),
        via => (via, kind),
    };
    let nprobes = (read != IndexKind::Unindexed).then_some(question.nprobes);
    state.metrics.searched(SearchBy::Vector, via, read, nprobes, rows.len());
    if let Path::Partitions { .. } = path {
        state.metrics.compared_fresh(to_score.len());
    }
    let refine = refine_by(metric, is_refined, &to_score);
    let unfiltered = None;
    Ok(Hits { rows, to_score, measure: Measure::Distance, refine, exhaustive, path, unfiltered })
}

/// Returns the metric by which all candidates are scored exactly, if they are: distances of an index are not comparable
/// with exact ones, so one row that has to be scored is enough.
fn refine_by(metric: Option<Metric>, is_refined: bool, to_score: &[RowAddr]) -> Option<Metric> {
    metric.filter(|_| is_refined || !to_score.is_empty())
}

/// The rows that a vector search found.
struct VectorHits {
    hits: Vec<DistanceHit>,
    to_score: Arc<[RowAddr]>,
    path: Path,
    /// Set if it is not known which of the rows pass the filter.
    search: Option<Box<CandidateSearch>>,
}

impl VectorHits {
    async fn directly(search: DirectSearch<'_>) -> Result<Self> {
        let DirectSearch { allowed, segments, partitions, to_score, hits, .. } = search;
        let path = match allowed {
            Some(allowed) if partitions == 0 => Path::AllAllowed(allowed),
            _ => Path::Partitions { partitions, segments, allowed },
        };
        Ok(Self { hits: hits.await?, to_score, path, search: None })
    }

    async fn planned(open: &OpenTable, query: &VectorQuery, reason: PlanReason) -> Result<Self> {
        let hits = open.table.planned_search(query).await?;
        Ok(Self { hits, to_score: Arc::default(), path: Path::Planned(reason), search: None })
    }
}

/// Opens the index for a search without a plan, and finds the rows that pass the filter, if that has not been done. Runs
/// the search.
async fn open_and_search(open: &OpenTable, query: &VectorQuery) -> Result<VectorHits> {
    match open.table.open_route(query).await? {
        VectorRoute::Direct(search) => VectorHits::directly(search).await,
        VectorRoute::Candidates(search) => {
            let (hits, path) = candidates(open, query, &search).await?;
            let to_score = Arc::clone(&search.to_score);
            Ok(VectorHits { hits, to_score, path, search: Some(search) })
        }
        VectorRoute::Planned(reason) => VectorHits::planned(open, query, reason).await,
    }
}

async fn candidates(
    open: &OpenTable,
    query: &VectorQuery,
    search: &CandidateSearch,
) -> Result<(Vec<DistanceHit>, Path)> {
    let Candidates { hits, partitions } = open.table.candidates(query, search).await?;
    let (segments, why) = (search.segments, WhyCandidates::of(search));
    Ok((hits, Path::Candidates { partitions, segments, why }))
}

/// Runs a widened search anew, and replaces the candidates in `hits` by its results, which include the earlier ones
/// unless nearer rows displace them.
pub async fn search_further(
    state: &ShardState,
    open: &Arc<OpenTable>,
    unfiltered: &Unfiltered,
    hits: &mut Hits,
    context: RequestContext,
) -> Result<()> {
    let (open, query) = (Arc::clone(open), unfiltered.query.clone());
    let (ask, search) =
        (Ask { during: "search", rows: query.k, context }, unfiltered.search.clone());
    let further = async move { candidates(&open, &query, &search).await }.boxed();
    let (found, path) = state.shared.admission.run_in_background(ask, further).await?;
    hits.rows = found.into_iter().map(|hit| (hit.addr, hit.distance)).collect();
    hits.path = path;
    Ok(())
}

/// Returns the kind of a column's index and, if its hits can be scored exactly, the metric by which to do it. Without an
/// index rows are compared one by one, and distances are exact already.
pub async fn index_of(open: &OpenTable, column: &str) -> Result<(IndexKind, Option<Metric>)> {
    let Some(index) = open.table.vector_index(column).await? else {
        return Ok((IndexKind::Unindexed, None));
    };
    let kind = IndexKind::of_vectors(&index.kind);
    if !open.is_scored_on_io_nodes(column) {
        return Ok((kind, None));
    }
    Ok((kind, scored_by(open.table.vector_metric(column).await?)))
}

async fn by_text(open: &OpenTable, query: &TextQuery) -> Result<Hits> {
    let TextHits { hits, allowed, fresh, planned } = open.table.search_text(query).await?;
    let rows = hits.into_iter().map(|hit| (hit.addr, hit.score)).collect();
    let path = planned.map_or(Path::TextIndex { allowed, fresh }, Path::Planned);
    Ok(Hits::unrefined(rows, Measure::Score, path))
}

async fn by_filter(open: &OpenTable, filter: &str, order: &[OrderBy], k: usize) -> Result<Hits> {
    Ok(filter_hits(match order {
        [] => open.table.search_filter(filter, k).await?,
        order => {
            let rows = open.table.scan_ordered(Some(filter), order, k).await?;
            FilterHits { rows, allowed: None }
        }
    }))
}

fn filter_hits(FilterHits { rows, allowed }: FilterHits) -> Hits {
    let rows = rows.into_iter().map(|addr| (addr, 0.0)).collect();
    Hits::unrefined(rows, Measure::Nothing, Path::Filter(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_indexes_do_not_cover_are_said_to_be_scanned() {
        let by = |by| passing(Allowed { rows: 12, by });
        let text = by(AllowedBy::Indexes { scanned_rows: 1 });
        let scanned = "by scalar indexes, and a scan of 1 row that they do not cover";
        assert_eq!(text, format!("12 rows of the version pass the filter, {scanned}"));
        assert!(by(AllowedBy::Indexes { scanned_rows: 0 }).ends_with("by scalar indexes"));
        assert!(by(AllowedBy::Scan).ends_with("by a scan"));
    }
}
