//! Chooses which tables of folders are closed, so that few are open, however many tables the folders have. Pure.

/// The maximum number of tables of folders that are open. Each costs a request to its store every `refresh_interval`.
const OPEN_MAX: usize = 256;

/// The maximum number of fragments of all open tables of folders together. A fragment takes one or two KiB. A table
/// counts as at most half of this maximum, so that a table with more fragments leaves room for others.
const FRAGMENTS_MAX: usize = 100_000;

/// The number of rounds after which a table that nobody has asked for is closed: 10 minutes with the default of
/// `refresh_interval`.
const IDLE_ROUNDS: u64 = 300;

/// A table that is open or being opened, or could not be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenedInFolder {
    /// The round in which a request last asked for the table.
    pub used: u64,
    /// The number of its fragments.
    pub fragments: usize,
}

/// Returns the positions of the tables that are closed in round `now`: those that nobody has asked for lately, and the
/// least recently used ones beyond the maxima.
pub fn to_close(tables: &[OpenedInFolder], now: u64) -> Vec<usize> {
    let mut latest_first: Vec<usize> = (0..tables.len()).collect();
    latest_first.sort_by_key(|&at| std::cmp::Reverse(tables[at].used));
    let (mut kept, mut fragments) = (0, 0);
    let mut closed = Vec::new();
    for at in latest_first {
        let table = tables[at];
        let with_it = fragments + table.fragments.min(FRAGMENTS_MAX / 2);
        let is_idle = now.saturating_sub(table.used) > IDLE_ROUNDS;
        if is_idle || kept >= OPEN_MAX || with_it > FRAGMENTS_MAX {
            closed.push(at);
        } else {
            kept += 1;
            fragments = with_it;
        }
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(tables: &[(u64, usize)], now: u64) -> Vec<usize> {
        let table = |&(used, fragments): &(u64, usize)| OpenedInFolder { used, fragments };
        to_close(&tables.iter().map(table).collect::<Vec<_>>(), now)
    }

    #[test]
    fn what_nobody_asks_for_is_closed() {
        assert_eq!(closed(&[(1, 1), (301, 1), (2, 1)], 301), [0; 0]);
        assert_eq!(closed(&[(1, 1), (302, 1), (2, 1)], 302), [0]);
    }

    #[test]
    fn the_least_recently_used_are_closed_beyond_the_maxima() {
        let many: Vec<_> = (0..OPEN_MAX as u64 + 2).map(|used| (used, 1)).collect();
        assert_eq!(closed(&many, 257), [1, 0]);
        assert_eq!(closed(&[(3, 40_000), (0, 1), (2, 45_000), (1, 20_000)], 3), [3]);
        // A table counts for at most 50,000 fragments.
        assert_eq!(closed(&[(3, 200_000), (1, 1), (2, 49_999)], 3), [0; 0]);
        assert_eq!(closed(&[(3, 200_000), (1, 1), (2, 200_000)], 3), [1]);
    }
}
