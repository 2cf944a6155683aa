//! The rounds in which the rows of keys are found.

use address::{RowAddr, without};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_ord::ord::make_comparator;
use arrow_schema::{ArrowError, SortOptions};
use arrow_select::take::take_record_batch;

use crate::found_rows::{FoundRows, joined};

/// A search for the rows of some keys. Each round tries one row for each open key that has a further candidate.
#[derive(Debug)]
pub struct Rounds<'a> {
    keys: &'a ArrayRef,
    /// The position of the key column in the fetched rows.
    key_at: usize,
    /// The positions, ascending, of the keys without a row that may still have one.
    open: Vec<u32>,
    done: Vec<FoundRows>,
}

impl<'a> Rounds<'a> {
    /// Begins the search. All keys are open. `key_at` is the position of the key column in the rows that will be
    /// fetched.
    pub fn new(keys: &'a ArrayRef, key_at: usize) -> Self {
        let open = (0..keys.len() as u32).collect();
        Self { keys, key_at, open, done: Vec::with_capacity(1) }
    }

    /// Returns the positions, ascending, of the keys that have no row yet and may still have one.
    pub fn open_keys(&self) -> &[u32] {
        &self.open
    }

    /// Returns whether to fetch the rows of a round, which tries `tries`. The first round is made even without
    /// candidates: its empty batch has the right columns.
    pub fn goes_on(&self, tries: &[(u32, RowAddr)]) -> bool {
        self.done.is_empty() || !tries.is_empty()
    }

    /// Adds a round. `tries` has the rows that were fetched, each with the position of its key, in ascending order of
    /// these positions. `rows` are the rows that exist, and `missing` has the positions in `tries` of the rows that do
    /// not. Keys that are not in `tries` have no further candidate, so they are no longer open. Returns whether any key
    /// is open.
    ///
    /// # Errors
    /// If the key column's type is not that of the keys.
    pub fn add(
        &mut self,
        tries: &[(u32, RowAddr)],
        rows: &RecordBatch,
        missing: &[u32],
    ) -> Result<bool, ArrowError> {
        let found = self.prove(tries, rows, missing)?;
        self.open = without(tries.iter().map(|&(key, _)| key), &found.keys).collect();
        self.done.push(found);
        Ok(!self.open.is_empty())
    }

    /// Closes `keys` (positions, ascending), so that no further candidate of theirs is tried.
    pub fn close(&mut self, keys: &[u32]) {
        self.open.retain(|key| keys.binary_search(key).is_err());
    }

    /// Adds a part of the candidates of all keys, for callers that want all rows of each key. Parameters are those of
    /// [`add`](Self::add), but a key may have several candidates, in ascending order of their addresses. The parts must
    /// come in the order of the keys.
    ///
    /// # Errors
    /// If the key column's type is not that of the keys.
    pub fn add_all(
        &mut self,
        candidates: &[(u32, RowAddr)],
        rows: &RecordBatch,
        missing: &[u32],
    ) -> Result<(), ArrowError> {
        let found = self.prove(candidates, rows, missing)?;
        let last = self.done.last().and_then(|part| part.keys.last());
        let is_in_order = last.is_none_or(|last| found.keys.first().is_none_or(|key| last <= key));
        assert!(is_in_order, "parts must come in the order of the keys");
        self.done.push(found);
        Ok(())
    }

    /// Returns the rows of all rounds.
    ///
    /// # Errors
    /// If the rounds' rows differ in their columns.
    ///
    /// # Panics
    /// If there was no round.
    pub fn finish(self) -> Result<FoundRows, ArrowError> {
        joined(self.done)
    }

    /// Returns the rows that have the key for which they were fetched.
    fn prove(
        &self,
        tries: &[(u32, RowAddr)],
        rows: &RecordBatch,
        missing: &[u32],
    ) -> Result<FoundRows, ArrowError> {
        let column = rows.column(self.key_at);
        let compare = make_comparator(column, self.keys, SortOptions::default())?;
        let has_key = |row: usize, key: usize| column.is_valid(row) && compare(row, key).is_eq();
        let mut right = Vec::with_capacity(tries.len());
        let (mut keys, mut addrs) =
            (Vec::with_capacity(tries.len()), Vec::with_capacity(tries.len()));
        for (row, at) in without(0..tries.len() as u32, missing).enumerate() {
            let (key, addr) = tries[at as usize];
            if has_key(row, key as usize) {
                right.push(row as u32);
                keys.push(key);
                addrs.push(addr);
            }
        }
        let rows = match right.len() == rows.num_rows() {
            true => rows.clone(),
            false => take_record_batch(rows, &UInt32Array::from(right))?,
        };
        Ok(FoundRows { rows, keys, addrs })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringArray;
    use arrow_array::cast::AsArray;

    use super::*;

    fn keys(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    fn rows(texts: &[Option<&str>]) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("key", keys(texts), true)]).unwrap()
    }

    fn texts_of(rows: &RecordBatch) -> Vec<&str> {
        rows.column(0).as_string::<i32>().iter().flatten().collect()
    }

    fn tries(keys: &[u32]) -> Vec<(u32, RowAddr)> {
        keys.iter().map(|&key| (key, RowAddr::new(7, key))).collect()
    }

    #[test]
    fn a_row_with_another_key_counts_as_not_found() {
        let keys = keys(&[Some("a"), Some("b"), Some("c"), Some("d")]);
        let mut rounds = Rounds::new(&keys, 0);
        assert_eq!(rounds.open_keys(), [0, 1, 2, 3]);
        // Keys 0, 1 and 3 have candidates. The row of key 1 is missing, and the row of key 3 has another key.
        let is_open = rounds.add(&tries(&[0, 1, 3]), &rows(&[Some("a"), Some("x")]), &[1]).unwrap();
        assert_eq!((is_open, rounds.open_keys()), (true, &[1, 3][..]));
        let found = rounds.finish().unwrap();
        assert_eq!(texts_of(&found.rows), ["a"]);
        assert_eq!((found.keys, found.addrs), (vec![0], vec![RowAddr::new(7, 0)]));
    }

    #[test]
    fn closed_keys_are_not_tried_again() {
        let keys = keys(&[Some("a"), Some("b"), Some("c")]);
        let mut rounds = Rounds::new(&keys, 0);
        assert!(rounds.add(&tries(&[0, 1, 2]), &rows(&[Some("x")]), &[0, 1]).unwrap());
        rounds.close(&[0, 2]);
        assert_eq!(rounds.open_keys(), [1]);
        rounds.close(&[0, 1, 2]);
        assert!(rounds.open_keys().is_empty());
    }

    #[test]
    fn rows_of_a_second_round_take_their_places() {
        let keys = keys(&[Some("a"), Some("b"), Some("c"), Some("d")]);
        let mut rounds = Rounds::new(&keys, 0);
        let first = rows(&[Some("a"), Some("x"), Some("x"), Some("d")]);
        assert!(rounds.add(&tries(&[0, 1, 2, 3]), &first, &[]).unwrap());
        assert!(rounds.add(&tries(&[1, 2]), &rows(&[Some("b"), Some("y")]), &[]).unwrap());
        assert!(!rounds.add(&tries(&[2]), &rows(&[Some("c")]), &[]).unwrap());
        let found = rounds.finish().unwrap();
        assert_eq!(texts_of(&found.rows), ["a", "b", "c", "d"]);
        assert_eq!(found.keys, [0, 1, 2, 3]);
        assert_eq!(found.addrs, (0..4).map(|key| RowAddr::new(7, key)).collect::<Vec<_>>());
    }

    #[test]
    fn all_rows_of_a_key_stay_together() {
        let keys = keys(&[Some("a"), None, Some("b"), Some("a")]);
        let mut rounds = Rounds::new(&keys, 0);
        let candidates = |of: &[(u32, u32)]| -> Vec<(u32, RowAddr)> {
            of.iter().map(|&(key, row)| (key, RowAddr::new(7, row))).collect()
        };
        let first = rows(&[Some("a"), Some("x"), None]);
        rounds.add_all(&candidates(&[(0, 1), (0, 2), (0, 4), (1, 5)]), &first, &[2]).unwrap();
        let second = rows(&[Some("b"), Some("b"), Some("a"), Some("a")]);
        rounds.add_all(&candidates(&[(2, 0), (2, 9), (3, 1), (3, 8)]), &second, &[]).unwrap();
        let found = rounds.finish().unwrap();
        assert_eq!(texts_of(&found.rows), ["a", "b", "b", "a", "a"]);
        assert_eq!(found.keys, [0, 2, 2, 3, 3]);
        assert_eq!(found.addrs, [1, 0, 9, 1, 8].map(|row| RowAddr::new(7, row)));
    }

    #[test]
    fn null_is_the_key_of_no_row() {
        let keys = keys(&[None, Some("a"), None]);
        let mut rounds = Rounds::new(&keys, 0);
        assert!(rounds.add(&tries(&[0, 1, 2]), &rows(&[None, None, Some("a")]), &[]).unwrap());
        assert_eq!(rounds.open_keys(), [0, 1, 2]);
        assert_eq!(rounds.finish().unwrap().rows.num_rows(), 0);
    }

    #[test]
    fn the_first_round_is_made_without_candidates_too() {
        let keys = keys(&[Some("a")]);
        let mut rounds = Rounds::new(&keys, 0);
        assert!(rounds.goes_on(&[]));
        assert!(!rounds.add(&[], &rows(&[]), &[]).unwrap());
        assert!(!rounds.goes_on(&[]));
        assert_eq!(rounds.finish().unwrap().rows.schema().field(0).name(), "key");
    }
}
