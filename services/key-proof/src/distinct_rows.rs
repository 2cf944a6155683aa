//! The rows to fetch for some tries: each row once, however many keys it is tried for.
//!
//! A caller may ask for a key twice, and several callers whose requests share a fetch often ask for the same keys.

use address::{RowAddr, without};
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take_record_batch;

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

    /// Returns the size in bytes of the batch that [`per_try`](Self::per_try) makes; 0 if it returns the fetched rows
    /// as they are. Parameters are those of `per_try`.
    pub fn per_try_bytes(&self, rows: &RecordBatch, missing: &[u32]) -> usize {
        let Some((present, _)) = self.sources(missing) else { return 0 };
        let mut tries = vec![0_usize; rows.num_rows()];
        present.iter().for_each(|&row| tries[row as usize] += 1);
        let of_column = |column: &dyn Array| {
            let data = column.to_data();
            let rows = tries.iter().enumerate();
            rows.map(|(row, &tries)| bytes_of(&data, row, 1).saturating_mul(tries)).fold(0, sum)
        };
        rows.columns().iter().map(|column| of_column(column)).fold(0, sum)
    }

    /// Repeats fetched rows, so that each try has its own. `rows` are the rows at [`addrs`](Self::addrs) that exist, and
    /// `missing` has the positions, ascending, of those that do not. Returns the same for the tries: the rows of tries
    /// whose row exists, and the positions of the other tries.
    ///
    /// # Errors
    /// If a column's repeated values are too large for its type.
    pub fn per_try(
        &self,
        rows: RecordBatch,
        missing: Vec<u32>,
    ) -> Result<(RecordBatch, Vec<u32>), ArrowError> {
        match self.sources(&missing) {
            None => Ok((rows, missing)),
            Some((present, missing)) => {
                Ok((take_record_batch(&rows, &UInt32Array::from(present))?, missing))
            }
        }
    }

    /// Returns the positions, in the fetched rows, of the rows of those tries whose row exists, and the positions of the
    /// other tries. Returns `None` if no address is repeated.
    fn sources(&self, missing: &[u32]) -> Option<(Vec<u32>, Vec<u32>)> {
        let row_of_try = self.row_of_try.as_ref()?;
        let mut fetched = vec![None; self.addrs.len()];
        let present = without(0..self.addrs.len() as u32, missing);
        (0..).zip(present).for_each(|(row, at)| fetched[at as usize] = Some(row));
        let (mut sources, mut gone) = (Vec::with_capacity(row_of_try.len()), Vec::new());
        for (at, &row) in (0..).zip(row_of_try) {
            match fetched[row as usize] {
                Some(row) => sources.push(row),
                None => gone.push(at),
            }
        }
        Some((sources, gone))
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

fn sum(one: usize, other: usize) -> usize {
    one.saturating_add(other)
}

/// Returns the size in bytes of `len` values from `start` on, without validity bits. Values of a type whose layout is
/// not known here count as much as the whole array.
fn bytes_of(data: &ArrayData, start: usize, len: usize) -> usize {
    let at = data.offset() + start;
    let small = || {
        let offsets = data.buffer::<i32>(0);
        (offsets[at] as usize, (offsets[at + len] - offsets[at]) as usize, len * size_of::<i32>())
    };
    let large = || {
        let offsets = data.buffer::<i64>(0);
        (offsets[at] as usize, (offsets[at + len] - offsets[at]) as usize, len * size_of::<i64>())
    };
    let text = |(_, bytes, offsets): (usize, usize, usize)| bytes + offsets;
    let items = |(start, len, offsets): (usize, usize, usize)| {
        bytes_of(&data.child_data()[0], start, len) + offsets
    };
    match data.data_type() {
        DataType::Null => 0,
        DataType::Boolean => len.div_ceil(8),
        DataType::Utf8 | DataType::Binary => text(small()),
        DataType::LargeUtf8 | DataType::LargeBinary => text(large()),
        DataType::List(_) | DataType::Map(..) => items(small()),
        DataType::LargeList(_) => items(large()),
        DataType::FixedSizeBinary(width) => len * *width as usize,
        DataType::FixedSizeList(_, width) => {
            items((at * *width as usize, len * *width as usize, 0))
        }
        DataType::Struct(_) => data.child_data().iter().map(|child| bytes_of(child, at, len)).sum(),
        other => match other.primitive_width() {
            Some(width) => len * width,
            None => data.get_array_memory_size(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, UInt32Type};
    use arrow_array::{
        ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, LargeListArray, LargeStringArray,
        ListArray, StringArray, StructArray,
    };
    use arrow_schema::Field;
    use arrow_select::take::take;
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
            let bytes = distinct.per_try_bytes(&batch, &missing);
            let (batch, missing) = distinct.per_try(batch, missing).unwrap();
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
            let (batch, missing) = distinct.per_try(batch, missing).unwrap();
            assert_eq!(batch.column(0).to_data().buffers()[0].as_ptr(), value, "not copied");
            let gone: Vec<u32> =
                rows.iter().position(|&row| row == 4).map(|at| at as u32).into_iter().collect();
            assert_eq!(missing, gone);
        }
    }

    #[test]
    fn the_size_of_repeated_values_is_known_before_they_are_copied() {
        let lists = [Some(vec![Some(1), None]), None, Some(vec![Some(2); 100])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(5), Some(6)])],
            2,
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let field = Arc::new(Field::new("n", DataType::Int64, false));
        let structs = StructArray::from(vec![(field, Arc::clone(&numbers))]);
        let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![]),
            Some(vec![Some(1)]),
            Some(vec![Some(4); 3]),
        ]);
        let columns: [(ArrayRef, [usize; 3]); 8] = [
            (numbers, [8; 3]),
            (Arc::new(StringArray::from(vec![Some("ab"), None, Some("abcde")])), [6, 4, 9]),
            (Arc::new(LargeStringArray::from(vec!["", "a", "abc"])), [8, 9, 11]),
            (Arc::new(BooleanArray::from(vec![true, false, true])), [1; 3]),
            (Arc::new(lists), [12, 4, 404]),
            (Arc::new(large), [8, 12, 20]),
            (Arc::new(pairs), [8; 3]),
            (Arc::new(structs), [8; 3]),
        ];
        for (column, expected) in columns {
            // A slice has the same sizes.
            let order = UInt32Array::from(vec![2, 0, 1, 2]);
            let sliced = take(&column, &order, None).unwrap().slice(1, 3);
            for array in [column, sliced] {
                let data = array.to_data();
                let sizes: [usize; 3] = std::array::from_fn(|row| bytes_of(&data, row, 1));
                assert_eq!(sizes, expected, "{:?}", array.data_type());
            }
        }
    }
}
