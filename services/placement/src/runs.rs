//! Runs of consecutive chunks. A Warm request that selects chunks lists them as runs.

use std::ops::Range;

use address::{ChunkId, ChunkRows};

/// A run of consecutive chunks of one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRun {
    /// The fragment's id.
    pub fragment: u32,
    /// The numbers of the chunks.
    pub chunks: Range<u32>,
}

impl ChunkRun {
    /// Returns the chunks that hold the rows at the physical offsets `offsets` of a fragment. The run is empty if
    /// `offsets` is empty.
    pub fn holding(fragment: u32, offsets: Range<u32>, rows: ChunkRows) -> Self {
        let chunks = match offsets.is_empty() {
            true => 0..0,
            false => offsets.start / rows.get()..(offsets.end - 1) / rows.get() + 1,
        };
        Self { fragment, chunks }
    }

    /// Returns the ids of the chunks, in order.
    pub fn ids(self) -> impl Iterator<Item = ChunkId> {
        self.chunks.map(move |index| ChunkId { fragment: self.fragment, index })
    }

    /// Sorts the runs and merges those that overlap or touch, so that each chunk occurs once. Empty runs are
    /// dropped.
    pub fn merged(mut runs: Vec<Self>) -> Vec<Self> {
        runs.retain(|run| !run.chunks.is_empty());
        runs.sort_by_key(|run| (run.fragment, run.chunks.start));
        let mut merged: Vec<Self> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last)
                    if last.fragment == run.fragment && run.chunks.start <= last.chunks.end =>
                {
                    last.chunks.end = last.chunks.end.max(run.chunks.end);
                }
                _ => merged.push(run),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(fragment: u32, chunks: Range<u32>) -> ChunkRun {
        ChunkRun { fragment, chunks }
    }

    #[test]
    fn runs_cover_the_given_rows_and_merge() {
        let rows = ChunkRows::new(10).unwrap();
        let holding = |offsets| ChunkRun::holding(3, offsets, rows).chunks;
        assert_eq!([holding(0..1), holding(9..11), holding(10..20)], [0..1, 0..2, 1..2]);
        assert!(holding(5..5).is_empty());
        let runs = vec![
            run(2, 4..6),
            run(1, 3..5),
            run(1, 0..1),
            run(2, 5..9),
            run(1, 5..6),
            run(1, 8..8),
        ];
        assert_eq!(ChunkRun::merged(runs), [run(1, 0..1), run(1, 3..6), run(2, 4..9)]);
        let ids: Vec<_> = run(7, 1..3).ids().map(|id| (id.fragment, id.index)).collect();
        assert_eq!(ids, [(7, 1), (7, 2)]);
    }
}
