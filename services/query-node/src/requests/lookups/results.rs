//! Divides what was found for a group among its batches. Pure.

use std::ops::Range;

use address::without;
use arrow_array::{Array, ArrayRef};
use arrow_select::filter::filter_record_batch;
use key_proof::FoundRows;
use wire::query::LookupResult;
use wire::{Fault, query};

use crate::error::Result;

/// The batches of a group, divided by whether they have unread keys.
pub struct Divided {
    /// The batches without unread keys.
    pub read: Vec<(u64, ArrayRef)>,
    /// The rows that were found for these.
    pub found: FoundRows,
    /// The positions of the other batches.
    pub others: Vec<usize>,
}

/// Divides batches. `unread` are positions among the keys of all batches, ascending.
pub fn without_unread(
    batches: &[(u64, ArrayRef)],
    found: FoundRows,
    mut unread: &[u32],
) -> Result<Divided> {
    let FoundRows { rows, keys: all_keys, addrs } = found;
    let mut all_keys = all_keys.as_slice();
    let (mut kept, mut others, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_kept = Vec::with_capacity(addrs.len());
    let (mut end, mut kept_end) = (0, 0);
    for (at, batch) in batches.iter().enumerate() {
        let count = batch.1.len() as u32;
        let range = end..end + count;
        end = range.end;
        let own = taken(&mut all_keys, &range);
        let is_read = taken(&mut unread, &range).is_empty();
        is_kept.extend(own.iter().map(|_| is_read));
        if is_read {
            keys.extend(own.iter().map(|key| kept_end + key));
            kept_end += count;
            kept.push(batch.clone());
        } else {
            others.push(at);
        }
    }
    let addrs = addrs.into_iter().zip(&is_kept).filter(|(_, is_kept)| **is_kept);
    let addrs = addrs.map(|(addr, _)| addr).collect();
    let rows = filter_record_batch(&rows, &is_kept.into())?;
    Ok(Divided { read: kept, found: FoundRows { rows, keys, addrs }, others })
}

/// Returns the result of each batch. `found`, `unproven` and `unread` are positions among the keys of all batches,
/// ascending. `fault` is the reason why keys are unread. With `all_rows`, `found` has the position of a key as often as
/// it has rows.
pub fn results(
    batches: &[(u64, ArrayRef)],
    mut found: &[u32],
    mut unproven: &[u32],
    mut unread: &[u32],
    fault: Option<&Fault>,
    all_rows: bool,
) -> Vec<LookupResult> {
    let mut end = 0;
    let result = |(id, keys): &(u64, ArrayRef)| {
        let range = end..end + keys.len() as u32;
        end = range.end;
        let mut keys_found = taken(&mut found, &range);
        let rows = keys_found.len() as u32;
        let unproven = taken(&mut unproven, &range);
        let row_keys = if all_rows { keys_found.clone() } else { Vec::new() };
        keys_found.dedup();
        let failed = taken(&mut unread, &range);
        let error = fault.filter(|_| !failed.is_empty()).map(|it| query::Error::from(it.clone()));
        let without_row = without(0..keys.len() as u32, &keys_found);
        let not_found = without(without_row, &failed).collect();
        LookupResult { id: *id, rows, not_found, error, unproven, row_keys, failed }
    };
    batches.iter().map(result).collect()
}

/// Takes the positions that are in `range` from the front of `positions`. Returns them relative to the start of
/// `range`.
fn taken(positions: &mut &[u32], range: &Range<u32>) -> Vec<u32> {
    let count = positions.partition_point(|position| *position < range.end);
    let (taken, rest) = positions.split_at(count);
    *positions = rest;
    taken.iter().map(|position| position - range.start).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use address::RowAddr;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use arrow_array::{RecordBatch, UInt64Array};

    use super::*;

    #[test]
    fn each_batch_gets_its_part_of_the_keys() {
        let keys = |len| -> ArrayRef { Arc::new(UInt64Array::from(vec![0; len])) };
        let batches = [(7, keys(2)), (8, keys(1)), (9, keys(3))];
        let result = |id, rows, not_found: &[u32], unproven: &[u32]| LookupResult {
            id,
            rows,
            not_found: not_found.to_vec(),
            unproven: unproven.to_vec(),
            ..Default::default()
        };
        let expected =
            [result(7, 1, &[0], &[1]), result(8, 1, &[], &[]), result(9, 1, &[0, 2], &[1])];
        assert_eq!(results(&batches, &[1, 2, 4], &[1, 4], &[], None, false), expected);
        let row_keys = [vec![1, 1], vec![], vec![0, 2, 2, 2]];
        let not_found = [vec![0], vec![0], vec![1]];
        for (result, (row_keys, not_found)) in
            results(&batches, &[1, 1, 3, 5, 5, 5], &[], &[], None, true)
                .iter()
                .zip(row_keys.iter().zip(not_found))
        {
            assert_eq!((&result.row_keys, &result.not_found), (row_keys, &not_found));
            assert_eq!(result.rows as usize, row_keys.len());
        }
    }

    #[test]
    fn each_batch_gets_its_unread_keys() {
        let keys = |len| -> ArrayRef { Arc::new(UInt64Array::from(vec![0; len])) };
        let batches = [(7, keys(2)), (9, keys(3))];
        let fault = Fault::new(wire::Reason::TableDamaged, "damaged");
        let error = Some(query::Error::from(fault.clone()));
        let found = LookupResult { id: 7, rows: 2, ..Default::default() };
        let some = LookupResult {
            id: 9,
            rows: 1,
            not_found: vec![1],
            error,
            failed: vec![2],
            ..Default::default()
        };
        let all = results(&batches, &[0, 1, 2], &[], &[4], Some(&fault), false);
        assert_eq!(all, [found, some]);
    }

    #[test]
    fn batches_with_unread_keys_are_left_out_with_their_rows() {
        let keys = |len| -> ArrayRef { Arc::new(UInt64Array::from(vec![0; len])) };
        let batches = [(7, keys(2)), (8, keys(2)), (9, keys(3)), (9, keys(1))];
        let found = || {
            let addrs = [0, 1, 3, 4, 6].map(|row| RowAddr::new(0, row)).to_vec();
            let ids: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1, 3, 4, 6]));
            let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
            FoundRows { rows, keys: vec![0, 1, 3, 4, 6], addrs }
        };
        let left = |unread: &[u32]| {
            let Divided { read, found, others } =
                without_unread(&batches, found(), unread).unwrap();
            let counts: Vec<_> = read.iter().map(|(id, keys)| (*id, keys.len())).collect();
            let ids = found.rows["id"].as_primitive::<UInt64Type>().values().to_vec();
            let addrs: Vec<u64> = found.addrs.iter().map(|addr| addr.to_u64()).collect();
            assert_eq!(ids, addrs);
            (counts, found.keys, ids, others)
        };
        let expected = (vec![(7, 2), (9, 3)], vec![0, 1, 2, 4], vec![0, 1, 4, 6], vec![1, 3]);
        assert_eq!(left(&[2, 7]), expected);
        assert_eq!(left(&[0, 3, 5, 7]), (vec![], vec![], vec![], vec![0, 1, 2, 3]));
    }
}
