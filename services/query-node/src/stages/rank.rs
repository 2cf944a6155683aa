//! Rank: selects the nearest of the scored rows, and fuses two rankings. Pure.

use std::collections::HashMap;

use address::RowAddr;

/// The constant of reciprocal rank fusion, as in its publication (Cormack, Clarke and Büttcher, SIGIR 2009). It bounds how
/// much more the first ranks count than the later ones.
const FUSION_RANK: f32 = 60.0;

/// Returns the `k` nearest rows, nearest first. Ties are broken by address, so that equal requests get equal answers.
pub fn rank(mut scored: Vec<(RowAddr, f32)>, k: usize) -> Vec<(RowAddr, f32)> {
    scored.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    scored.dedup_by_key(|(addr, _)| *addr);
    scored.truncate(k);
    scored
}

/// Fuses two rankings, best first, of which the second has a `weight` relative to the first. Returns the `k` best rows
/// with their relevance, best first: the sum of `1 / (60 + rank)` and `weight / (60 + rank)`, where the best row has
/// rank 1 and a ranking that lacks the row adds nothing. Ties are broken by address.
pub fn fuse(
    first: &[(RowAddr, f32)],
    second: &[(RowAddr, f32)],
    weight: f32,
    k: usize,
) -> Vec<(RowAddr, f32)> {
    let mut relevance = HashMap::with_capacity(first.len() + second.len());
    for (ranking, weight) in [(first, 1.0), (second, weight)] {
        for (rank, (addr, _)) in (1u16..).zip(ranking) {
            *relevance.entry(*addr).or_insert(0.0) += weight / (FUSION_RANK + f32::from(rank));
        }
    }
    let mut fused: Vec<(RowAddr, f32)> = relevance.into_iter().collect();
    fused.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    fused.truncate(k);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_rankings_come_before_rows_of_one() {
        let row = |offset: u32| RowAddr::new(0, offset);
        let near = [(row(5), 0.1), (row(7), 0.2), (row(9), 0.3)];
        let matching = [(row(9), 8.0), (row(4), 7.0)];
        let fused = fuse(&near, &matching, 1.0, 10);
        let expected = [
            (row(9), 1.0 / 63.0 + 1.0 / 61.0),
            (row(5), 1.0 / 61.0),
            (row(4), 1.0 / 62.0),
            (row(7), 1.0 / 62.0),
        ];
        assert_eq!(fused, expected);
        assert_eq!(fuse(&near, &matching, 1.0, 2), expected[..2]);
        // Without weight, the words change nothing.
        let by_vector: Vec<_> = fuse(&near, &matching, 0.0, 3).into_iter().map(|it| it.0).collect();
        assert_eq!(by_vector, [row(5), row(7), row(9)]);
        let by_words: Vec<_> = fuse(&near, &matching, 9.0, 2).into_iter().map(|it| it.0).collect();
        assert_eq!(by_words, [row(9), row(4)]);
        assert_eq!(fuse(&[], &[], 1.0, 5), []);
    }

    #[test]
    fn the_nearest_come_first_and_ties_go_by_address() {
        let pairs = |all: &[(u32, f32)]| -> Vec<_> {
            all.iter().map(|&(offset, d)| (RowAddr::new(0, offset), d)).collect()
        };
        let ranked = rank(pairs(&[(9, 0.5), (7, 0.1), (3, 0.5), (3, 0.5), (1, 2.0)]), 3);
        assert_eq!(ranked, pairs(&[(7, 0.1), (3, 0.5), (9, 0.5)]));
    }
}
