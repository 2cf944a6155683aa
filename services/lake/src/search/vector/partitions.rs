//! Vector search that reads an index's partitions directly, without the scanner.
//!
//! The scanner plans each query anew, which costs more than the search itself: a search of 20 partitions of an IVF_RQ
//! index took 0.84 ms, of which planning took 0.6 ms (1 M × 768, Lance 14). Here the index's segments are opened once
//! (`open_partitions.rs`), with the masks of their live rows, and small ones are joined (`joined.rs`). A query only ranks
//! the partitions and searches the nearest. With a filter, the masks select the rows of its allow-list
//! (`filter/allow_list.rs`), and more partitions are searched until enough rows are found.
//!
//! Without a filter, the results are those of the scanner, provided that the number of partitions is given (`mod.rs`
//! checks it), and that the caller compares the uncovered rows, which are in no segment (`coverage.rs`), with the query
//! vector and ranks them among the results. Distances to IVF_RQ's rows in joined segments are those of a scan in its
//! accurate mode. As with the scanner, this number of partitions is searched in each segment.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use address::RowAddr;
use arrow::array::ArrayRef;
use futures::future::try_join_all;
use lance_core::Result;
use lance_index::vector::{ApproxMode, Query};
use lance_linalg::distance::DistanceType;
use lance_linalg::kernels::normalize_arrow;

use super::group::Group;
use super::segment::{Neighbor, Ranking, Segment, keep_nearest, share_of};
use crate::search::filter::AllowList;
use crate::search::hit::DistanceHit;
use crate::search::row_addresses::RowAddresses;
use crate::search::selection::{SelectedByIndex, Selection};

/// Maximum number of rows that are scored instead of searching the index. For more, the index is cheaper, or nearly so.
const SCORED_ROWS_MAX: u64 = 10_000;

/// The number of rows that an index compares in the time in which one row is scored exactly. Comparing a row takes 15
/// to 25 ns with a mask; scoring one takes 1.4 to 2 µs, on the query node and the I/O node together (IVF_RQ, 768
/// dimensions, rows in RAM).
pub const COMPARED_PER_SCORED: f64 = 70.0;

/// Maximum number of rows that are scored instead of searching the index, for each row that the search wants. The costs
/// above assume that rows are in RAM; this bounds the cost of a search if they are not.
const SCORED_PER_WANTED: usize = 4;

/// A search that is expected to compare more rows than this runs in the background, not on a core's thread. Comparing
/// that many takes 3 to 5 ms.
const COMPARED_ON_CORE_MAX: f64 = 200_000.0;

/// The result of a search with some number of partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// The nearest rows, nearest first, by the index's distances.
    pub hits: Vec<DistanceHit>,
    /// The number of rows in the partitions that were searched.
    pub compared: u64,
}

/// An open vector index, and the rows that it does not cover.
pub(crate) struct Partitions {
    column: String,
    /// The index's segments, in the groups in which they are searched.
    groups: Vec<Group>,
    /// For each group, the position of the first group that ranks partitions like it.
    ranked_like: Vec<usize>,
    /// The number of rows that the segments hold.
    rows: u64,
    addresses: RowAddresses,
    /// The live rows that no segment covers, ascending.
    uncovered: Arc<[RowAddr]>,
    /// The stable row ids of the rows in `uncovered`, in the same order. `None` if the table has none: then a row's id
    /// is its address.
    uncovered_ids: Option<Vec<u64>>,
}

impl Partitions {
    /// Makes an open index of `column` from the groups of its segments. `uncovered` are the live rows that no segment
    /// covers, ascending, and `uncovered_ids` their stable row ids, if the table has them.
    pub fn new(
        column: &str,
        groups: Vec<Group>,
        addresses: RowAddresses,
        uncovered: Arc<[RowAddr]>,
        uncovered_ids: Option<Vec<u64>>,
    ) -> Self {
        let ranked_like = (0..groups.len()).map(|at| first_like(&groups, at)).collect();
        let rows = groups.iter().map(Group::rows).sum();
        let column = column.to_owned();
        Self { column, groups, ranked_like, rows, addresses, uncovered, uncovered_ids }
    }

    /// The number of the index's segments, all of which are searched.
    pub fn segments(&self) -> usize {
        self.groups.iter().map(|group| group.segments().len()).sum()
    }

    /// The number of rows that the segments hold.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The live rows that no segment covers, ascending.
    pub fn uncovered(&self) -> &Arc<[RowAddr]> {
        &self.uncovered
    }

    /// The number of partitions that are searched in all segments together, for `nprobes` in each, those without rows
    /// included.
    pub fn partitions(&self, nprobes: usize) -> usize {
        let segments = self.groups.iter().flat_map(Group::segments);
        segments.map(|segment| probes_of(segment, nprobes)).sum()
    }

    /// Returns the rows of `list` in the form in which searches of this index take them.
    pub fn select(&self, list: &AllowList) -> Result<SelectedByIndex> {
        let select = |group: &Group| {
            let mask = list.within(group.live().mask.as_deref());
            let share = share_of(mask.max_len().unwrap_or_default(), group.rows());
            Selection { mask: Some(mask), share }
        };
        let groups: Vec<_> = self.groups.iter().map(select).collect();
        let id = |at: usize, row: &RowAddr| match &self.uncovered_ids {
            Some(ids) => ids[at],
            None => row.to_u64(),
        };
        let uncovered = self.uncovered.iter().enumerate();
        let uncovered: Vec<_> = uncovered
            .filter(|(at, row)| list.contains(id(*at, row)))
            .map(|(_, row)| *row)
            .collect();
        let all = match list.len() <= SCORED_ROWS_MAX {
            true => Some(self.addresses.ascending(&list.ids().collect::<Vec<_>>())?),
            false => None,
        };
        let covered = AtomicU64::new(list.len().saturating_sub(uncovered.len() as u64));
        Ok(SelectedByIndex { groups, covered, uncovered: uncovered.into(), all })
    }

    /// Returns whether a search for `k` rows is expected to compare so many rows that it would delay other requests on
    /// its core. `passing` is the number of rows that pass its filter, if it has one.
    pub fn is_long(
        &self,
        passing: Option<u64>,
        k: usize,
        &Probes { nprobes, nprobes_max, .. }: &Probes,
    ) -> bool {
        let (at_first, at_most) = (self.rows_of(nprobes), self.rows_of(nprobes_max));
        rows_compared(passing, k, at_first..at_most, self.rows as f64) > COMPARED_ON_CORE_MAX
    }

    /// Estimates the number of rows in the nearest `nprobes` partitions of each segment.
    fn rows_of(&self, nprobes: usize) -> f64 {
        let partitions = self.partitions(usize::MAX).max(1);
        self.rows as f64 * self.partitions(nprobes) as f64 / partitions as f64
    }

    /// Returns whether it costs less to score all `rows` that pass a filter than to search the index for `k` of them.
    /// Returns false if there are more than [`SCORED_PER_WANTED`] rows for each of the `k`.
    pub fn is_scoring_cheaper(&self, rows: usize, k: usize, nprobes: usize) -> bool {
        scoring_is_cheaper(rows, k, self.rows_of(nprobes), self.rows as f64)
    }

    /// Returns the `k` rows nearest to `vector` (of the column's element type) in the nearest partitions of each
    /// segment, nearest first. With a filter, `selected` has the rows that pass it, and further partitions are searched
    /// until `k` rows are found, or `nprobes_max` partitions were searched. Only rows whose distance is at least the
    /// first of `distances`, and less than the second, are returned.
    pub async fn search(
        &self,
        vector: ArrayRef,
        k: usize,
        distances: (Option<f32>, Option<f32>),
        Probes { nprobes, nprobes_max, ef }: Probes,
        selected: Option<&SelectedByIndex>,
    ) -> Result<Vec<DistanceHit>> {
        let nprobes = nprobes.max(1);
        let wanted = self.wanted(vector, k, distances, ef)?;
        let mut rankings = self.rank(&wanted, nprobes)?;
        let mut found = self.probe(&wanted, &rankings, 0..nprobes, selected).await?;
        if let Some(selected) = selected {
            let covered = selected.covered.load(Relaxed);
            let enough = k.min(usize::try_from(covered).unwrap_or(usize::MAX));
            let all = self.partitions_max();
            let most = all.min(nprobes_max);
            let mut probed = nprobes;
            if found.len() < enough && probed < most {
                rankings = self.rank_further(&wanted, &rankings, most)?;
            }
            while found.len() < enough && probed < most {
                let next = further_probes(probed, found.len(), enough).min(most);
                let ranks = probed..next;
                found.extend(self.probe(&wanted, &rankings, ranks, Some(selected)).await?);
                keep_nearest(&mut found, k);
                probed = next;
            }
            let is_all = probed >= all && distances == (None, None) && self.is_flat();
            if found.len() < enough && is_all && !found.is_empty() {
                // All rows of all partitions were compared: the other rows have no vector. If none was found, the query
                // vector may be the reason.
                selected.covered.store(found.len() as u64, Relaxed);
            }
        }
        self.hits(&found)
    }

    /// The number of partitions of the largest segment.
    pub fn partitions_max(&self) -> usize {
        self.groups.iter().map(|it| it.first().index.total_partitions()).max().unwrap_or(0)
    }

    /// Returns whether all rows of a searched partition are compared, whatever `k` is.
    pub fn is_flat(&self) -> bool {
        self.groups.iter().all(|group| group.first().is_flat)
    }

    /// Searches with each number of partitions in `nprobes`, which is ascending. No partition is searched twice.
    pub async fn search_rungs(
        &self,
        vector: &ArrayRef,
        k: usize,
        nprobes: &[usize],
    ) -> Result<Vec<Rung>> {
        let wanted = self.wanted(Arc::clone(vector), k, (None, None), None)?;
        let rankings = self.rank(&wanted, nprobes.last().copied().unwrap_or_default())?;
        let mut rungs = Vec::with_capacity(nprobes.len());
        let (mut hits, mut compared, mut probed) = (Vec::new(), 0, 0);
        for next in nprobes.iter().copied() {
            let ranks = probed..next;
            let (new, rows) = self.probe_and_count(&wanted, &rankings, ranks, None).await?;
            hits.extend(self.hits(&new)?);
            // Both parts are sorted already, and this sort only merges them.
            hits.sort_by(DistanceHit::rank);
            hits.truncate(k);
            (compared, probed) = (compared + rows, next);
            rungs.push(Rung { hits: hits.clone(), compared });
        }
        Ok(rungs)
    }

    /// Prepares a search for the `k` rows nearest to `vector`.
    fn wanted(
        &self,
        vector: ArrayRef,
        k: usize,
        distances: (Option<f32>, Option<f32>),
        ef: Option<usize>,
    ) -> Result<Wanted> {
        let normalized = match self.groups.iter().any(|group| is_cosine(group.first())) {
            true => Some(normalize_arrow(&vector)?.0),
            false => None,
        };
        Ok(Wanted { vector, normalized, k, distances, ef })
    }

    /// Ranks the nearest `nprobes` partitions of each segment.
    fn rank(&self, wanted: &Wanted, nprobes: usize) -> Result<Vec<Ranking>> {
        let mut rankings: Vec<Ranking> = Vec::with_capacity(self.groups.len());
        for (at, group) in self.groups.iter().enumerate() {
            let segment = group.first();
            let ranking = match self.ranked_like[at] {
                first if first < at => rankings[first].clone(),
                _ => Ranking::of(segment.index.as_ref(), &self.query(segment, wanted, nprobes))?,
            };
            rankings.push(ranking);
        }
        Ok(rankings)
    }

    /// Continues the rankings `first`, of the partitions that were searched already, up to `nprobes` partitions of each
    /// segment.
    fn rank_further(
        &self,
        wanted: &Wanted,
        first: &[Ranking],
        nprobes: usize,
    ) -> Result<Vec<Ranking>> {
        let rankings = self.rank(wanted, nprobes)?;
        Ok(first.iter().zip(&rankings).map(|(first, further)| first.continued(further)).collect())
    }

    /// Returns the `k` nearest rows, in no particular order, of the partitions whose ranks are in `ranks`. A
    /// partition's rank is its position in its segment's ranking in `rankings`; that of the nearest is 0.
    async fn probe(
        &self,
        wanted: &Wanted,
        rankings: &[Ranking],
        ranks: Range<usize>,
        selected: Option<&SelectedByIndex>,
    ) -> Result<Vec<Neighbor>> {
        Ok(self.probe_and_count(wanted, rankings, ranks, selected).await?.0)
    }

    /// Like [`probe`](Self::probe), and also returns the number of rows in the partitions.
    async fn probe_and_count(
        &self,
        wanted: &Wanted,
        rankings: &[Ranking],
        ranks: Range<usize>,
        selected: Option<&SelectedByIndex>,
    ) -> Result<(Vec<Neighbor>, u64)> {
        let mut searches = Vec::with_capacity(self.groups.len());
        let mut rows = 0;
        for (at, (group, ranking)) in self.groups.iter().zip(rankings).enumerate() {
            rows += group.rows_in(ranking, &ranks);
            let query = self.query(group.first(), wanted, ranks.end);
            let selection = selected.map_or(group.live(), |selected| &selected.groups[at]);
            searches.push(group.search(query, ranking.clone(), ranks.clone(), selection));
        }
        let mut found = match searches.len() {
            1 => searches.remove(0).await?,
            _ => try_join_all(searches).await?.concat(),
        };
        keep_nearest(&mut found, wanted.k);
        Ok((found, rows))
    }

    fn query(&self, segment: &Segment, wanted: &Wanted, nprobes: usize) -> Query {
        let nprobes = probes_of(segment, nprobes);
        let normalized = wanted.normalized.as_ref().filter(|_| is_cosine(segment));
        let (lower_bound, upper_bound) = wanted.distances;
        Query {
            column: self.column.clone(),
            key: Arc::clone(normalized.unwrap_or(&wanted.vector)),
            k: wanted.k,
            lower_bound,
            upper_bound,
            minimum_nprobes: nprobes,
            maximum_nprobes: Some(nprobes),
            search_effort: 0.5,
            ef: wanted.ef,
            refine_factor: None,
            metric_type: Some(segment.index.metric_type()),
            use_index: true,
            query_parallelism: 1,
            dist_q_c: 0.0,
            approx_mode: ApproxMode::default(),
        }
    }

    /// Returns the rows `found` with their addresses, nearest first.
    fn hits(&self, found: &[Neighbor]) -> Result<Vec<DistanceHit>> {
        let ids: Vec<_> = found.iter().map(|it| it.id).collect();
        let rows = self.addresses.of(&ids)?.into_iter().zip(found);
        let hit = |(addr, it): (Option<RowAddr>, &Neighbor)| {
            Some(DistanceHit { addr: addr?, distance: it.distance })
        };
        let mut hits: Vec<_> = rows.filter_map(hit).collect();
        hits.sort_unstable_by(DistanceHit::rank);
        Ok(hits)
    }
}

/// The part of an index that a search reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    /// The number of partitions of each segment.
    pub nprobes: usize,
    /// The maximum number of partitions of each segment, if the search goes on until enough rows are found.
    pub nprobes_max: usize,
    /// The number of candidates that the graph search keeps, for HNSW indexes.
    pub ef: Option<usize>,
}

/// The parameters of a search of partitions.
struct Wanted {
    vector: ArrayRef,
    /// The vector with length 1, if the metric of a segment is cosine.
    normalized: Option<ArrayRef>,
    k: usize,
    distances: (Option<f32>, Option<f32>),
    ef: Option<usize>,
}

/// Returns the number of partitions of `segment` to search.
fn probes_of(segment: &Segment, nprobes: usize) -> usize {
    nprobes.clamp(1, segment.index.total_partitions().max(1))
}

fn is_cosine(segment: &Segment) -> bool {
    segment.index.metric_type() == DistanceType::Cosine
}

/// Returns whether it costs less to score all `rows` that pass a filter than to search the index for `k` of them, which
/// are then scored. `probed` of its `index_rows` rows are compared at first, and more if too few of these pass. Returns
/// false if there are more than [`SCORED_PER_WANTED`] rows for each of the `k`.
fn scoring_is_cheaper(rows: usize, k: usize, probed: f64, index_rows: f64) -> bool {
    let compared = probed.max(until_enough(rows as f64, k, index_rows)).min(index_rows);
    let is_cheaper = rows as f64 <= k as f64 + compared / COMPARED_PER_SCORED;
    is_cheaper && rows <= SCORED_PER_WANTED.saturating_mul(k)
}

/// Estimates how many of an index's rows a search for `k` rows compares: those of the partitions that it searches at
/// first, and if a filter lets `passing` rows through, more until `k` of them are found. `reach` is the number of rows
/// in its first partitions, and in all that it may search.
fn rows_compared(passing: Option<u64>, k: usize, reach: Range<f64>, index_rows: f64) -> f64 {
    let until_enough = passing.map_or(0.0, |rows| until_enough(rows as f64, k, index_rows));
    until_enough.min(reach.end).max(reach.start)
}

/// Returns the number of an index's rows that are compared until `k` are found that pass, if the `rows` that pass are
/// spread evenly.
fn until_enough(rows: f64, k: usize, index_rows: f64) -> f64 {
    k as f64 * index_rows / rows.max(1.0)
}

/// Returns the number of partitions to search in all, if `found` rows of `wanted` were found in the first `probed`.
pub(in crate::search) fn further_probes(probed: usize, found: usize, wanted: usize) -> usize {
    let enough = probed.saturating_mul(wanted) / found.max(1);
    (enough + enough / 4).clamp(probed.saturating_mul(2), probed.saturating_mul(16))
}

/// Returns the position of the first group that ranks partitions like the group at `at`.
fn first_like(groups: &[Group], at: usize) -> usize {
    let group = groups[at].first();
    groups[..at].iter().position(|first| group.ranks_like(first.first())).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_scored_and_many_are_searched_for() {
        // 1 M rows, of which 20 partitions of 1,000 are searched for 500 candidates.
        let is_cheaper = |rows| scoring_is_cheaper(rows, 500, 20_000.0, 1e6);
        assert!(is_cheaper(0) && is_cheaper(500) && is_cheaper(2_000));
        assert!(!is_cheaper(2_001) && !is_cheaper(100_000));
        // If 400 rows pass, about a quarter of the index would be searched until 100 of them are found.
        assert!(scoring_is_cheaper(400, 100, 20_000.0, 1e6));
        assert!(!scoring_is_cheaper(1_000, 10, 200.0, 1e4));
    }

    #[test]
    fn all_rows_of_the_first_partitions_are_compared_and_more_until_enough_pass() {
        let compared = |passing, reach| rows_compared(passing, 100, reach, 1e6);
        assert_eq!(compared(None, 20_000.0..1e6), 20_000.0);
        // Half of the rows pass, so the first partitions suffice, however many they are.
        assert_eq!(compared(Some(500_000), 20_000.0..1e6), 20_000.0);
        assert_eq!(compared(Some(500_000), 1e6..1e6), 1e6);
        // One row in a thousand passes, so 100 are found in 100,000.
        assert_eq!(compared(Some(1_000), 20_000.0..1e6), 100_000.0);
        assert_eq!(compared(Some(1_000), 20_000.0..50_000.0), 50_000.0);
    }

    #[test]
    fn as_many_more_partitions_are_searched_as_rows_are_missing() {
        assert_eq!(further_probes(20, 50, 500), 250);
        assert_eq!(further_probes(20, 499, 500), 40);
        assert_eq!(further_probes(20, 0, 500), 320);
    }
}
