//! Decides how many candidates of a search are compared with its filter. Pure.

use super::partitions::further_probes;
use crate::search::selection::{passing_share, rows_to_search};

/// A search for rows that pass a filter, among candidates of which it is not known whether they pass. The nearest ones
/// are compared with the filter. If too few pass, the search is widened: to more candidates of the same partitions, and
/// once there are no more, to further partitions, as in a search whose allow-list is known.
#[derive(Clone, Debug)]
pub(crate) struct Widening {
    /// The number of rows that are to pass.
    pub wanted: usize,
    /// The number of candidates to search for.
    pub depth: usize,
    /// The number of partitions of each segment to search.
    pub probed: usize,
    /// The maximum number of partitions of each segment to search.
    pub probed_max: usize,
    /// The number of partitions of the largest segment.
    pub partitions: usize,
    /// The number of rows of the index that may be found.
    pub index_rows: u64,
    /// The number of all rows that may be candidates.
    pub rows: u64,
    /// The maximum number of candidates to compare with the filter.
    pub checks_max: u64,
}

/// The next step of a search whose candidates were compared with the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widened {
    /// The wanted number of rows pass, or no candidates are left: as many partitions as allowed were searched, and all their
    /// rows that may be candidates (within the upper bound of distances, if there is one) were compared.
    Enough,
    /// The search was widened.
    Further,
    /// Comparing as many candidates as will probably be needed costs more than a scan.
    Costly,
}

impl Widening {
    /// Begins with fewer candidates if there are fewer rows.
    pub fn limited(mut self) -> Self {
        self.depth = self.at_most_rows(self.depth);
        self
    }

    /// Widens the search after `passed` of the `found` nearest candidates have passed, and `checked` candidates were
    /// compared with the filter in all.
    pub fn next(&mut self, found: usize, passed: usize, checked: u64) -> Widened {
        if passed >= self.wanted || checked >= self.rows {
            return Widened::Enough;
        }
        let probed = self.probed;
        if found < self.depth {
            // The index found fewer candidates than it was searched for: all rows of the partitions that were searched,
            // or all of these within the search's upper bound of distances.
            if self.probed >= self.probed_max {
                return Widened::Enough;
            }
            self.probed = further_probes(self.probed, passed, self.wanted).min(self.probed_max);
        }
        let needed = rows_to_search(self.wanted, passing_share(passed as u64, found as u64));
        let depth = needed.clamp(self.depth.saturating_mul(2), self.depth.saturating_mul(16));
        if self.checks_max >= self.rows {
            self.depth = self.at_most_rows(depth);
            return Widened::Further;
        }
        let left = usize::try_from(self.checks_max.saturating_sub(checked)).unwrap_or(usize::MAX);
        let more = self.rows_in_reach(found, probed).min(depth as f64) - found as f64;
        if left == 0 || more > left as f64 {
            return Widened::Costly;
        }
        // The partitions may hold more rows than was estimated.
        self.depth = depth.min(found.saturating_add(left));
        Widened::Further
    }

    /// Limits a number of candidates to the rows that there are: an index allocates memory for as many as it is
    /// searched for.
    fn at_most_rows(&self, depth: usize) -> usize {
        depth.min(usize::try_from(self.rows).unwrap_or(usize::MAX)).max(1)
    }

    /// Estimates the number of rows in the partitions to search, of which `found` were found in `probed` partitions.
    fn rows_in_reach(&self, found: usize, probed: usize) -> f64 {
        if self.probed > probed {
            return found as f64 * self.probed as f64 / probed as f64;
        }
        let mean = self.index_rows as f64 * self.probed as f64 / self.partitions as f64;
        // Partitions near many queries hold more rows than the mean. If as many as the mean were found already, it is
        // not known how many are left.
        if mean > found as f64 { mean } else { f64::INFINITY }
    }

    /// Returns whether `checked` rows are more than a search may compare with the filter.
    pub fn is_exceeded(&self, checked: u64) -> bool {
        checked > self.checks_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widening() -> Widening {
        Widening {
            wanted: 100,
            depth: 200,
            probed: 4,
            probed_max: 64,
            partitions: 64,
            index_rows: 64_000,
            rows: 64_000,
            checks_max: 20_000,
        }
    }

    #[test]
    fn a_search_is_widened_by_the_share_that_passed() {
        let mut search = widening();
        assert_eq!(search.next(200, 100, 200), Widened::Enough);
        // A tenth passes: about 1,000 candidates, and some more, are needed.
        assert_eq!(search.next(200, 20, 200), Widened::Further);
        assert_eq!((search.depth, search.probed), (1_146, 4));
        // The depth grows geometrically, whatever was estimated.
        assert_eq!(search.next(1_146, 99, 1_146), Widened::Further);
        assert_eq!(search.depth, 2_292);
        let mut search = widening();
        assert_eq!(search.next(200, 0, 200), Widened::Further);
        assert_eq!(search.depth, 3_200);
    }

    #[test]
    fn further_partitions_are_searched_once_all_rows_were_compared() {
        let mut search = widening();
        assert_eq!(search.next(150, 50, 150), Widened::Further);
        assert_eq!(search.probed, 10);
        search.probed = 64;
        assert_eq!(search.next(300, 50, 300), Widened::Enough);
    }

    #[test]
    fn a_scan_is_made_if_too_few_rows_pass() {
        let mut search = Widening { checks_max: 1_000, ..widening() };
        assert_eq!(search.next(200, 90, 200), Widened::Further);
        assert_eq!(search.next(400, 20, 400), Widened::Costly);
        // The partitions have fewer rows than the depth.
        let mut search = Widening { index_rows: 6_400, checks_max: 1_000, ..widening() };
        assert_eq!(search.next(200, 20, 200), Widened::Further);
    }

    #[test]
    fn partitions_with_more_rows_than_the_mean_do_not_exceed_the_bound() {
        // The mean of 20 partitions is 20,000 rows, but these hold 200,000, of which a few pass.
        let mut search = Widening {
            wanted: 100,
            depth: 222,
            probed: 20,
            probed_max: 1_000,
            partitions: 1_000,
            index_rows: 1_000_000,
            rows: 1_000_000,
            checks_max: 50_000,
        };
        assert_eq!(search.next(222, 0, 222), Widened::Further);
        assert_eq!(search.next(3_552, 1, 3_552), Widened::Further);
        assert_eq!(search.depth, 50_000);
        assert_eq!(search.clone().next(50_000, 10, 50_000), Widened::Costly);
        // More rows were found than the mean, and fewer than needed may be compared.
        let mut search = Widening { depth: 30_000, ..search };
        assert_eq!(search.next(30_000, 6, 30_000), Widened::Costly);
        // Uncovered rows are compared too.
        let mut search = Widening { depth: 16_000, probed: 20, ..search };
        assert_eq!(search.next(16_000, 30, 20_000), Widened::Further);
        assert_eq!(search.depth, 46_000);
        assert!(search.is_exceeded(50_001) && !search.is_exceeded(50_000));
    }

    #[test]
    fn a_search_whose_rows_may_all_be_compared_needs_no_scan() {
        let few = Widening { index_rows: 3_000, rows: 3_010, checks_max: 3_010, ..widening() };
        // Hardly any row passes: all partitions are searched.
        let mut search = few.clone();
        assert_eq!(search.next(150, 0, 160), Widened::Further);
        assert_eq!(search.probed, 64);
        assert_eq!(search.next(2_990, 0, 3_000), Widened::Enough);
        // Some rows pass: more candidates of the same partitions are searched for.
        let mut search = few.clone();
        assert_eq!(search.next(200, 1, 210), Widened::Further);
        assert_eq!((search.depth, search.probed), (3_010, 4));
        // Even if hardly any row passes, a search is for no more candidates than there are rows.
        let mut search = Widening { wanted: 100_000, depth: 3_010, ..few.clone() };
        assert_eq!(search.next(2_900, 0, 2_900), Widened::Further);
        assert_eq!((search.depth, search.probed), (3_010, 64));
        // All rows were compared.
        assert_eq!(few.clone().next(200, 0, 3_010), Widened::Enough);
        let mut none = Widening { index_rows: 0, rows: 0, checks_max: 0, ..widening() };
        assert_eq!(none.next(0, 0, 0), Widened::Enough);
        // If not all rows may be compared, a scan may be cheaper.
        let mut search = Widening { rows: 64_000, ..few };
        assert_eq!(search.next(200, 0, 210), Widened::Costly);
    }

    #[test]
    fn a_search_ends_with_the_partitions_that_it_may_search() {
        let mut search = Widening { probed_max: 6, checks_max: 64_000, ..widening() };
        // All rows of 4 partitions are fewer than were searched for, and too few of them pass.
        assert_eq!(search.next(150, 10, 150), Widened::Further);
        assert_eq!(search.probed, 6);
        assert_eq!(search.next(search.depth - 1, 20, 250), Widened::Enough);
        // More candidates of the same partitions are still searched for.
        let mut search = Widening { probed_max: 4, checks_max: 64_000, ..widening() };
        assert_eq!(search.next(200, 10, 200), Widened::Further);
        assert!(search.depth > 200 && search.probed == 4);
    }

    #[test]
    fn rows_beyond_an_upper_bound_of_distances_are_not_expected() {
        let mut search = Widening { checks_max: 1_000, ..widening() };
        // Only 3 rows of 4 partitions are within the bound.
        assert_eq!(search.next(3, 1, 3), Widened::Further);
        assert!(search.probed > 4);
        search.probed = 64;
        assert_eq!(search.next(5, 2, 5), Widened::Enough);
        let mut search = Widening { checks_max: 1_000, ..widening() };
        assert_eq!(search.next(0, 0, 0), Widened::Further);
    }
}
