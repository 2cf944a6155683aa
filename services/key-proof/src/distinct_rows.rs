//! The rows to fetch for some tries: each row once, however many keys it is tried for.
//!
//! A caller may ask for a key twice, and several callers whose requests share a fetch often ask for the same keys.

use address::{RowAddr, without};
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::take::take_record_batch;
use wire::bytes_of_values;

/// The addresses of the rows to fetch for some tries, without repeats.
#[derive(Debug)]
pub struct DistinctRows {
    addrs: Vec<RowAddr>,
    /// For each try, the position of its row in `addrs`. `None` if no address is repeated: then each try has the row at
    /// its own position.
    row_of_try: Option<Vec<u32>>,
}

impl DistinctRows {
    /// Finds the rows to fetch for `tries`. The addresses keep their order if none is repeated; otherwise they ascend.
    pub fn of(tries: &[(u32, RowAddr)]) -> Self {
        let addrs: Vec<RowAddr> = tries.iter().map(|&(_, addr)| addr).collect();
        if !may_repeat(&addrs) {
            return Self { addrs, row_of_try: None };
        }
        let mut distinct = addrs.clone();
        distinct.sort_unstable();
        if distinct.is_sorted_by(|one, next| one < next) {
            return Self { addrs, row_of_try: None };
        }
        distinct.dedup();
        let position = |addr| distinct.partition_point(|it| it < addr) as u32;
        let row_of_try = Some(addrs.iter().map(position).collect());
        Self { addrs: distinct, row_of_try }
    }

    /// Returns the addresses.
    pub fn addrs(&self) -> &[RowAddr] {
        &self.addrs
    }

    /// Returns which of the fetched rows each try has. `missing` has the positions, ascending, of the
    /// [addresses](Self::addrs) at which there is no row.
    pub fn rows_of_tries(&self, missing: Vec<u32>) -> RowsOfTries {
        let Some(row_of_try) = &self.row_of_try else {
            return RowsOfTries { sources: None, missing };
        };
        let mut fetched = vec![None; self.addrs.len()];
        let present = without(0..self.addrs.len() as u32, &missing);
        (0..).zip(present).for_each(|(row, at)| fetched[at as usize] = Some(row));
        let (mut sources, mut gone) = (Vec::with_capacity(row_of_try.len()), Vec::new());
        for (at, &row) in (0..).zip(row_of_try) {
            match fetched[row as usize] {
                Some(row) => sources.push(row),
                None => gone.push(at),
            }
        }
        RowsOfTries { sources: Some(sources), missing: gone }
    }
}

/// Which of the fetched rows each try has.
#[derive(Debug)]
pub struct RowsOfTries {
    /// For each try whose row exists, the position of its row in the fetched rows. `None` if no address is repeated:
    /// then the fetched rows are those of the tries.
    sources: Option<Vec<u32>>,
    /// The positions of the other tries, ascending.
    missing: Vec<u32>,
}

impl RowsOfTries {
    /// Returns the size in bytes of the batch that [`repeat`](Self::repeat) makes of `rows`; 0 if it returns them as
    /// they are.
    pub fn bytes(&self, rows: &RecordBatch) -> usize {
        let Some(sources) = &self.sources else { return 0 };
        let mut tries = vec![0_usize; rows.num_rows()];
        sources.iter().for_each(|&row| tries[row as usize] += 1);
        let of_column = |column: &dyn Array| {
            let data = column.to_data();
            let rows = tries.iter().enumerate();
            rows.map(|(row, &tries)| bytes_of_values(&data, row, 1).saturating_mul(tries))
                .fold(0, usize::saturating_add)
        };
        rows.columns().iter().map(|column| of_column(column)).fold(0, usize::saturating_add)
    }

    /// Repeats the fetched rows, so that each try has its own. Returns the rows of tries whose row exists, and the
    /// positions of the other tries.
    ///
    /// # Errors
    /// If a column's repeated values are too large for its type.
    pub fn repeat(self, rows: RecordBatch) -> Result<(RecordBatch, Vec<u32>), ArrowError> {
        let rows = match self.sources {
            None => rows,
            Some(sources) => take_record_batch(&rows, &UInt32Array::from(sources))?,
        };
        Ok((rows, self.missing))
    }
}

/// Returns whether an address may be repeated. It certainly is not if the result is false.
///
/// A hash table of positions, at most half full, takes 4 to 7 ns for an address, and sorting a copy of the addresses 13
/// to 31 ns (64 to 10,000 addresses, on a shared AMD EPYC). A look-up of many keys takes 770 ns for a key.
fn may_repeat(addrs: &[RowAddr]) -> bool {
    /// Whoever chooses the rows of a table could make their hashes collide, so a long search is given up.
    const PROBES_MAX: usize = 32;
    /// 2^64 divided by the golden ratio, which spreads neighbouring addresses.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let slots = (addrs.len() * 2).next_power_of_two().max(2);
    let shift = u64::BITS - slots.trailing_zeros();
    // The number of the address in each slot, from 1 on; 0 for none.
    let mut numbers = vec![0_u32; slots];
    addrs.iter().zip(1..).any(|(addr, number)| {
        let first = (addr.to_u64().wrapping_mul(SPREAD) >> shift) as usize;
        let mut probes = (first..first + PROBES_MAX).map(|slot| slot & (slots - 1));
        let is_new = probes.find_map(|slot| match numbers[slot] {
            0 => {
                numbers[slot] = number;
                Some(true)
            }
            other => (addrs[other as usize - 1] == *addr).then_some(false),
        });
        is_new != Some(true)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::ArrayRef;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use proptest::prelude::*;

    use super::*;

    fn tries(rows: &[u32]) -> Vec<(u32, RowAddr)> {
        (0..).zip(rows).map(|(key, &row)| (key, RowAddr::new(row % 3, row))).collect()
    }

    /// Rows as a fetch returns them: each row's value is its offset, and rows whose offset `is_gone` are missing.
    fn fetched(addrs: &[RowAddr], is_gone: impl Fn(u32) -> bool) -> (RecordBatch, Vec<u32>) {
        let offsets = addrs.iter().map(|addr| addr.offset());
        let missing =
            (0..).zip(addrs).filter(|(_, addr)| is_gone(addr.offset())).map(|(at, _)| at).collect();
        let present: ArrayRef =
            Arc::new(UInt32Array::from_iter_values(offsets.filter(|&offset| !is_gone(offset))));
        (RecordBatch::try_from_iter([("row", present)]).unwrap(), missing)
    }

    proptest! {
        #[test]
        fn each_row_is_fetched_once_and_each_try_gets_its_own(
            rows in proptest::collection::vec(0_u32..40, 0..60),
            gone in 1_u32..8,
        ) {
            let is_gone = |row: u32| row % 8 >= gone;
            let tries = tries(&rows);
            let distinct = DistinctRows::of(&tries);
            let mut sorted = distinct.addrs().to_vec();
            sorted.sort_unstable();
            let mut expected: Vec<RowAddr> = tries.iter().map(|&(_, addr)| addr).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(&sorted, &expected);

            let (batch, missing) = fetched(distinct.addrs(), is_gone);
            let of_tries = distinct.rows_of_tries(missing);
            let bytes = of_tries.bytes(&batch);
            let (batch, missing) = of_tries.repeat(batch).unwrap();
            let present: Vec<u32> = rows.iter().copied().filter(|&row| !is_gone(row)).collect();
            prop_assert_eq!(batch.column(0).as_primitive::<UInt32Type>().values(), &present[..]);
            let absent = (0..).zip(&rows).filter(|(_, row)| is_gone(**row));
            prop_assert_eq!(missing, absent.map(|(at, _)| at).collect::<Vec<u32>>());
            let is_repeated = expected.len() < rows.len();
            prop_assert_eq!(bytes, if is_repeated { 4 * present.len() } else { 0 });
        }
    }

    #[test]
    fn repeats_are_recognised_whatever_the_addresses_are() {
        let addrs =
            |rows: &[u64]| rows.iter().map(|&row| RowAddr::from_u64(row)).collect::<Vec<_>>();
        for count in [0, 1, 2, 3, 31, 1000] {
            let neighbours: Vec<u64> = (0..count).map(|row| (7 << 32) + row).collect();
            let far: Vec<u64> = (0..count).map(|row| row << 32).collect();
            for rows in [neighbours, far] {
                assert!(!may_repeat(&addrs(&rows)), "{count}");
                for &row in rows.first().iter().chain(&rows.last()) {
                    assert!(may_repeat(&addrs(&[&rows[..], &[*row]].concat())), "{count}");
                }
            }
        }
    }

    #[test]
    fn rows_without_repeats_are_passed_on_in_their_order() {
        for rows in [&[][..], &[7], &[1, 4, 9], &[9, 1, 4]] {
            let tries = tries(rows);
            let distinct = DistinctRows::of(&tries);
            let expected: Vec<RowAddr> = tries.iter().map(|&(_, addr)| addr).collect();
            assert_eq!(distinct.addrs(), expected);
            let (batch, missing) = fetched(distinct.addrs(), |row| row == 4);
            let value = batch.column(0).to_data().buffers()[0].as_ptr();
            let (batch, missing) = distinct.rows_of_tries(missing).repeat(batch).unwrap();
            assert_eq!(batch.column(0).to_data().buffers()[0].as_ptr(), value, "not copied");
            let gone: Vec<u32> =
                rows.iter().position(|&row| row == 4).map(|at| at as u32).into_iter().collect();
            assert_eq!(missing, gone);
        }
    }
}
