//! Draws row addresses in random order. Every address is drawn once before any is drawn again.
//!
//! With independent draws, as many draws as rows would reach only 63 % of the rows, and a cache would look better than
//! it is.

use address::RowAddr;
use wire::query::Fragment;

use super::permutation::Permutation;

/// The rows of one version of a table. Deleted rows of a fragment are drawn as well, and come back as missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRows {
    /// For each fragment, the number of rows up to its end, and its id.
    fragments: Vec<(u64, u32)>,
}

impl LiveRows {
    /// Returns the rows of the fragments that have a live row; `None` if no fragment has one.
    pub fn new(fragments: &[Fragment]) -> Option<Self> {
        let mut end = 0;
        let live = fragments.iter().filter(|it| it.physical_rows > it.deleted_rows).map(|it| {
            end += u64::from(it.physical_rows);
            (end, it.id)
        });
        let fragments: Vec<_> = live.collect();
        (!fragments.is_empty()).then_some(Self { fragments })
    }

    /// Returns the number of rows to draw from.
    pub fn len(&self) -> u64 {
        self.fragments.last().map_or(0, |(end, _)| *end)
    }

    /// Returns the address of the row at `place`, counted over all fragments.
    fn at(&self, place: u64) -> RowAddr {
        let fragment = self.fragments.partition_point(|(end, _)| *end <= place);
        let before = if fragment == 0 { 0 } else { self.fragments[fragment - 1].0 };
        // The cast is lossless, because a fragment has fewer than 2^32 rows.
        RowAddr::new(self.fragments[fragment].1, (place - before) as u32)
    }

    /// Returns `count` addresses, from position `from` on, of the endless sequence that belongs to `seed`: all rows in
    /// a random order, then all rows in another order, and so on.
    pub fn draw(&self, seed: u64, from: u64, count: usize) -> Vec<RowAddr> {
        let len = self.len();
        let (mut addrs, mut number) = (Vec::with_capacity(count), from);
        while addrs.len() < count {
            let (round, place) = (number / len, number % len);
            let order = Permutation::new(len, seed.wrapping_add(round << 32));
            let places = place..len.min(place + (count - addrs.len()) as u64);
            number += places.end - places.start;
            addrs.extend(places.map(|place| self.at(order.at(place))));
        }
        addrs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn fragment(id: u32, physical_rows: u32, deleted_rows: u32) -> Fragment {
        Fragment { id, physical_rows, deleted_rows }
    }

    #[test]
    fn places_run_through_the_fragments() {
        let rows =
            LiveRows::new(&[fragment(0, 2, 0), fragment(3, 5, 5), fragment(7, 3, 1)]).unwrap();
        assert_eq!(rows.len(), 5);
        let all: Vec<_> = (0..5).map(|place| rows.at(place)).collect();
        let expected = [(0, 0), (0, 1), (7, 0), (7, 1), (7, 2)];
        assert_eq!(all, expected.map(|(fragment, offset)| RowAddr::new(fragment, offset)));
        assert_eq!(LiveRows::new(&[fragment(0, 5, 5)]), None);
        assert_eq!(LiveRows::new(&[]), None);
    }

    #[test]
    fn a_seed_draws_the_same_rows_and_repeats_none_before_all_are_drawn() {
        let rows = LiveRows::new(&[fragment(1, 40, 0), fragment(2, 60, 0)]).unwrap();
        assert_eq!(rows.draw(1, 7, 250), rows.draw(1, 7, 250));
        assert_ne!(rows.draw(1, 0, 50), rows.draw(2, 0, 50));
        for round in 0..3 {
            let drawn: BTreeSet<_> = rows.draw(1, round * 100, 100).into_iter().collect();
            assert_eq!(drawn.len(), 100);
        }
        assert_ne!(rows.draw(1, 0, 100), rows.draw(1, 100, 100));
        let parts = [rows.draw(1, 90, 5), rows.draw(1, 95, 20)].concat();
        assert_eq!(parts, rows.draw(1, 90, 25));
    }
}
