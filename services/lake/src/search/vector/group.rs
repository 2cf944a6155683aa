//! The segments of a vector index in the groups in which they are searched.

use std::ops::Range;

use lance_core::Result;
use lance_core::cache::LanceCache;
use lance_index::vector::Query;

use super::joined::{Joined, join_small};
use super::segment::{Neighbor, Ranking, Segment};
use crate::search::selection::Selection;

/// One segment, or small ones that are joined.
pub(crate) enum Group {
    One(Segment),
    Joined(Joined),
}

impl Group {
    /// Groups the segments of an index. `cache` keeps what is made of several segments.
    pub fn all(segments: Vec<Segment>, cache: &LanceCache) -> Vec<Self> {
        let (others, joined) = join_small(segments, cache);
        others.into_iter().map(Self::One).chain(joined.into_iter().map(Self::Joined)).collect()
    }

    /// The segments, which rank partitions alike.
    pub fn segments(&self) -> &[Segment] {
        match self {
            Self::One(segment) => std::slice::from_ref(segment),
            Self::Joined(joined) => joined.segments(),
        }
    }

    /// The first segment.
    pub fn first(&self) -> &Segment {
        &self.segments()[0]
    }

    /// The number of rows that the segments hold.
    pub fn rows(&self) -> u64 {
        self.segments().iter().map(|segment| segment.index.num_rows()).sum()
    }

    /// Returns the number of rows in the ranked partitions at the positions `ranks`.
    pub fn rows_in(&self, ranking: &Ranking, ranks: &Range<usize>) -> u64 {
        let rows = |id: &u32| self.segments().iter().map(|it| it.partition_rows(*id)).sum::<u64>();
        ranking.at(ranks).iter().map(rows).sum()
    }

    /// The rows that a search without a filter may return.
    pub fn live(&self) -> &Selection {
        match self {
            Self::One(segment) => &segment.live,
            // Its lists have live rows only.
            Self::Joined(_) => &Selection::ALL,
        }
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
        match self {
            Self::One(segment) => segment.search(query, ranking, ranks, selection).await,
            Self::Joined(joined) => joined.search(query, ranking, ranks, selection).await,
        }
    }
}
