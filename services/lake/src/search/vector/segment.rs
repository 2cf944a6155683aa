//! One segment of a vector index, opened, and its search.
//!
//! A segment may hold rows that a search must not return: rows that do not pass its filter, deleted rows, and rows of
//! fragments that the segment no longer covers. Lance searches partitions fastest without a mask of rows, because it
//! asks a mask about every row of a partition. So if most of the segment's rows are selected, its partitions are
//! searched for more rows without a mask, and the rows that are not selected are dropped. If too few remain, the
//! partitions are searched again with the mask. Either way the result is the nearest selected rows of the partitions.
//!
//! An update of the index for appended rows may make a segment that has fewer rows than partitions. Lance prepares the
//! search of a partition even if it has no rows, and for IVF_PQ computes its table of distances, so such partitions are
//! left out.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Float32Array, UInt32Array};
use futures::TryStreamExt;
use lance_core::Result;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::prefilter::{NoFilter, PreFilter};
use lance_index::vector::{Query, VectorIndex};

use super::read_ahead::ReadAhead;
use crate::search::hit::{DISTANCE, f32_column, row_ids};
use crate::search::selection::{Selected, Selection, rows_to_search};

/// The minimum share of selected rows at which partitions are searched without a mask. Below it, so many rows would be
/// ranked in vain that the mask is cheaper.
const UNMASKED_VECTORS_SHARE_MIN: f64 = 0.5;

/// An open segment of a vector index.
pub(crate) struct Segment {
    pub index: Arc<dyn VectorIndex>,
    /// Identifies the segment and its live rows, also in other versions of the table.
    pub identity: blake3::Hash,
    /// The segment's live rows.
    pub live: Selection,
    /// Whether its partitions are plain lists, all of whose rows are compared, rather than graphs.
    pub is_flat: bool,
    /// Reads partitions before their first search.
    pub read_ahead: ReadAhead,
}

/// A row of a segment near the query vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbor {
    pub distance: f32,
    /// The row's id: its address, or its stable row id.
    pub id: u64,
}

/// The partitions nearest to a query vector, nearest first, and the distances of their centroids.
#[derive(Clone)]
pub(crate) struct Ranking {
    partitions: Arc<UInt32Array>,
    distances: Arc<Float32Array>,
}

impl Ranking {
    /// Ranks the partitions of `index`. `query` limits their number.
    pub fn of(index: &dyn VectorIndex, query: &Query) -> Result<Self> {
        let (partitions, distances) = index.find_partitions(query)?;
        Ok(Self { partitions: Arc::new(partitions), distances: Arc::new(distances) })
    }

    /// Returns this ranking, followed by those partitions of `further` that it lacks. Partitions at equal distances have
    /// no particular order, so a longer ranking need not begin with a shorter one.
    pub fn continued(&self, further: &Self) -> Self {
        let first: HashSet<u32> = self.partitions.values().iter().copied().collect();
        let further = further.partitions.values().iter().zip(further.distances.values());
        let further = further.filter(|(partition, _)| !first.contains(partition));
        let (partitions, distances): (Vec<u32>, Vec<f32>) =
            further.map(|(partition, distance)| (*partition, *distance)).unzip();
        Self {
            partitions: Arc::new([self.partitions.values(), &partitions[..]].concat().into()),
            distances: Arc::new([self.distances.values(), &distances[..]].concat().into()),
        }
    }

    /// Returns the partitions, nearest first, and the distances of their centroids, `count` at a time.
    pub fn chunks(&self, count: usize) -> impl Iterator<Item = (&[u32], &[f32])> {
        self.partitions.values().chunks(count).zip(self.distances.values().chunks(count))
    }

    /// Returns the partitions at the positions `ranks`.
    pub fn at(&self, ranks: &Range<usize>) -> &[u32] {
        let partitions = self.partitions.values();
        let end = ranks.end.min(partitions.len());
        &partitions[ranks.start.min(end)..end]
    }

    /// Returns those of the partitions at the positions `ranks` for which `has_rows` returns true.
    pub fn with_rows(&self, ranks: &Range<usize>, has_rows: impl Fn(u32) -> bool) -> Self {
        let ranked = self.at(ranks).iter().zip(self.distances.values().iter().skip(ranks.start));
        let (partitions, distances): (Vec<u32>, Vec<f32>) =
            ranked.filter(|(partition, _)| has_rows(**partition)).unzip();
        Self { partitions: Arc::new(partitions.into()), distances: Arc::new(distances.into()) }
    }
}

impl Segment {
    /// Returns whether this segment and `other` rank partitions alike for every query.
    pub fn ranks_like(&self, other: &Self) -> bool {
        let centroids = self.index.ivf_model().centroids_array();
        // A segment ranks its partitions by its centroids and metric alone.
        centroids.is_some()
            && centroids == other.index.ivf_model().centroids_array()
            && self.index.metric_type() == other.index.metric_type()
    }

    /// Returns the number of rows that the segment holds in the partition `id`.
    pub fn partition_rows(&self, id: u32) -> u64 {
        self.index.partition_size(id as usize) as u64
    }

    /// Reads those of `partitions` into Lance's cache that no search has read yet.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read_ahead(&self, query: &Query, partitions: &[u32]) -> Result<()> {
        let with_rows = partitions.iter().copied().filter(|id| self.partition_rows(*id) > 0);
        self.read_ahead.read(&self.index, query, &with_rows.collect::<Vec<_>>()).await
    }

    /// Returns the nearest selected rows in the ranked partitions at the positions `ranks`: at most `query.k` rows, in
    /// no particular order.
    pub async fn search(
        &self,
        query: Query,
        ranking: Ranking,
        ranks: Range<usize>,
        selection: &Selection,
    ) -> Result<Vec<Neighbor>> {
        let ranking = ranking.with_rows(&ranks, |id| self.partition_rows(id) > 0);
        if ranking.partitions.is_empty() {
            return Ok(Vec::new());
        }
        let prepared = Arc::clone(&self.index).prepare_partition_query(&query)?;
        let (index, query) = prepared.unwrap_or_else(|| (Arc::clone(&self.index), query));
        self.read_ahead.read(&index, &query, ranking.partitions.values()).await?;
        let probe = |k: usize, filter: Arc<dyn PreFilter>| {
            let query = Query { k, ..query.clone() };
            probe(Arc::clone(&index), query, ranking.clone(), filter)
        };
        let Some(mask) = &selection.mask else {
            return probe(query.k, Arc::new(NoFilter)).await;
        };
        // A graph is searched without a mask only for as many rows as are wanted: for more, it may take another path.
        let share_min = if self.is_flat { UNMASKED_VECTORS_SHARE_MIN } else { 1.0 };
        if selection.share >= share_min {
            let k = rows_to_search(query.k, selection.share);
            let mut found = probe(k, Arc::new(NoFilter)).await?;
            let is_all = self.is_flat && found.len() < k;
            found.retain(|neighbor| mask.selected(neighbor.id));
            if is_all || found.len() >= query.k {
                keep_nearest(&mut found, query.k);
                return Ok(found);
            }
        }
        probe(query.k, Arc::new(Selected(Arc::clone(mask)))).await
    }
}

/// Returns the nearest rows that pass `filter`, of the ranked partitions, in no particular order.
async fn probe(
    index: Arc<dyn VectorIndex>,
    query: Query,
    ranking: Ranking,
    filter: Arc<dyn PreFilter>,
) -> Result<Vec<Neighbor>> {
    let Ranking { partitions, distances } = ranking;
    let (end, k) = (partitions.len(), query.k);
    let metrics = Arc::new(NoOpMetricsCollector);
    let found =
        index.search_partitions(query, partitions, distances, 0, end, filter, None, metrics);
    let mut neighbors = Vec::with_capacity(k);
    for batch in found.await?.try_collect::<Vec<_>>().await? {
        let pairs = f32_column(&batch, DISTANCE)?.iter().zip(row_ids(&batch)?);
        neighbors.extend(pairs.map(|(&distance, &id)| Neighbor { distance, id }));
    }
    keep_nearest(&mut neighbors, k);
    Ok(neighbors)
}

/// Returns the approximate share of an index's `index_rows` rows that are selected, if `rows` of its fragments' rows
/// are. The share is only an estimate, because `rows` may count rows without a vector, which an index does not have.
pub(crate) fn share_of(rows: u64, index_rows: u64) -> f64 {
    (rows as f64 / index_rows.max(1) as f64).min(1.0)
}

/// Drops all but the `k` nearest of `found`, in no particular order.
pub(crate) fn keep_nearest(found: &mut Vec<Neighbor>, k: usize) {
    if found.len() > k && k > 0 {
        let by_distance =
            |a: &Neighbor, b: &Neighbor| a.distance.total_cmp(&b.distance).then(a.id.cmp(&b.id));
        found.select_nth_unstable_by(k - 1, by_distance);
    }
    found.truncate(k);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(ids: &[u32], distances: &[f32]) -> Ranking {
        Ranking {
            partitions: Arc::new(ids.to_vec().into()),
            distances: Arc::new(distances.to_vec().into()),
        }
    }

    #[test]
    fn partitions_without_rows_are_left_out() {
        let all = ranking(&[7, 4, 3, 2, 9], &[0.5, 1.0, 1.5, 2.0, 2.5]);
        let with_rows = |ranks: Range<usize>, has_rows: fn(u32) -> bool| {
            let kept = all.with_rows(&ranks, has_rows);
            (kept.partitions.values().to_vec(), kept.distances.values().to_vec())
        };
        assert_eq!(with_rows(0..5, |id| id % 2 == 1), (vec![7, 3, 9], vec![0.5, 1.5, 2.5]));
        assert_eq!(with_rows(1..4, |id| id != 3), (vec![4, 2], vec![1.0, 2.0]));
        assert_eq!(with_rows(3..9, |_| true), (vec![2, 9], vec![2.0, 2.5]));
        assert_eq!(with_rows(5..9, |_| true), (vec![], vec![]));
        assert_eq!(with_rows(0..5, |_| false), (vec![], vec![]));
    }

    #[test]
    fn a_continued_ranking_has_every_partition_once_and_begins_as_before() {
        // Partitions 1 to 4 are equally far, and the longer ranking has them in another order.
        let first = ranking(&[7, 3, 1], &[0.5, 1.0, 1.0]);
        let all = ranking(&[7, 4, 3, 2, 1, 9], &[0.5, 1.0, 1.0, 1.0, 1.0, 2.0]);
        let continued = first.continued(&all);
        assert_eq!(continued.partitions.values(), &[7, 3, 1, 4, 2, 9]);
        assert_eq!(continued.distances.values(), &[0.5, 1.0, 1.0, 1.0, 1.0, 2.0]);
    }

    #[test]
    fn the_nearest_are_kept() {
        let neighbor = |(distance, id)| Neighbor { distance, id };
        let all = [(0.5, 1), (0.25, 9), (0.75, 2), (0.25, 3), (-1.0, 4)].map(neighbor);
        for (k, expected) in
            [(0, vec![]), (2, vec![3, 4]), (3, vec![3, 4, 9]), (9, vec![1, 2, 3, 4, 9])]
        {
            let mut found = all.to_vec();
            keep_nearest(&mut found, k);
            let mut ids: Vec<_> = found.iter().map(|neighbor| neighbor.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, expected, "{k}");
        }
    }
}
