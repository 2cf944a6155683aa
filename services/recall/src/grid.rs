//! The settings that are measured.

/// The numbers of rows for which a curve is measured. From 10 on, each is at most 2.5 times the one before. This bounds
/// how many candidates more than needed are scored for a k between two of them.
pub const KS: [u32; 8] = [1, 10, 20, 50, 100, 200, 500, 1000];

/// The largest number of rows for which a curve is measured.
pub const K_MAX: u32 = KS[KS.len() - 1];

/// Maximum number of candidates of a measured setting: those of the largest k with the default refine factor.
pub const CANDIDATES_MAX: u32 = 10_000;

/// The refine factors. From 10 on, steps of at most a sixth bound the additional cost if the best factor lies between
/// two of them.
const FACTORS: [u32; 27] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24, 27, 30, 35, 40, 45,
    50,
];

/// Returns the refine factors that are measured for `k`.
pub fn factors(k: u32) -> impl Iterator<Item = u32> {
    FACTORS.into_iter().filter(move |factor| factor * k <= CANDIDATES_MAX)
}

/// Returns the numbers of partitions that are measured for an index whose segments have up to `partitions` partitions.
/// They ascend from 1 to `partitions`, in steps of at most a tenth from 10 on. `default` is among them, unless it
/// exceeds `partitions`.
pub fn nprobes_ladder(partitions: usize, default: usize) -> Vec<usize> {
    let partitions = partitions.max(1);
    let next = |at: &usize| (*at < partitions).then(|| (at + (at / 10).max(1)).min(partitions));
    let mut ladder: Vec<_> = std::iter::successors(Some(1), next).collect();
    ladder.push(default.clamp(1, partitions));
    ladder.sort_unstable();
    ladder.dedup();
    ladder
}

/// Returns the numbers of candidates for which an index is searched, ascending. For a flat index (one whose partitions
/// have no graph), one search suffices: its first candidates are those of a search for fewer. This holds exactly for
/// IVF_PQ. For IVF_RQ, a search for fewer may pass over a few rows (on WordNet, the recall of 300 questions differed by
/// less than 0.001). A graph is searched anew for each number.
pub fn searched_candidates(is_flat: bool) -> Vec<usize> {
    match is_flat {
        true => vec![CANDIDATES_MAX as usize],
        false => vec![
            1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500, 700, 1000,
            1500, 2000, 3000, 5000, 7000, 10_000,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_dense_and_ends_with_all_partitions() {
        assert_eq!(nprobes_ladder(3, 20), [1, 2, 3]);
        assert_eq!(nprobes_ladder(0, 20), [1]);
        let ladder = nprobes_ladder(1000, 25);
        assert!(ladder.contains(&25) && ladder.contains(&10));
        assert_eq!((ladder[0], *ladder.last().unwrap()), (1, 1000));
        assert!(ladder.windows(2).all(|it| it[0] < it[1] && it[1] * 10 <= it[0] * 11 + 9));
        assert!(ladder.len() < 70);
    }

    #[test]
    fn factors_stay_within_the_candidates_that_are_measured() {
        assert_eq!(factors(1).last(), Some(50));
        assert_eq!(factors(1000).last(), Some(10));
        assert!(factors(500).all(|factor| factor * 500 <= CANDIDATES_MAX));
    }
}
