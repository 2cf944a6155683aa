//! Rank: selects the nearest of the scored rows. Pure.

use address::RowAddr;

/// Returns the `k` nearest rows, nearest first. Ties are broken by address, so that equal requests get equal answers.
pub fn rank(mut scored: Vec<(RowAddr, f32)>, k: usize) -> Vec<(RowAddr, f32)> {
    scored.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    scored.dedup_by_key(|(addr, _)| *addr);
    scored.truncate(k);
    scored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_ties_go_by_address() {
        let pairs = |all: &[(u32, f32)]| -> Vec<_> {
            all.iter().map(|&(offset, d)| (RowAddr::new(0, offset), d)).collect()
        };
        let ranked = rank(pairs(&[(9, 0.5), (7, 0.1), (3, 0.5), (3, 0.5), (1, 2.0)]), 3);
        assert_eq!(ranked, pairs(&[(7, 0.1), (3, 0.5), (9, 0.5)]));
    }
}
