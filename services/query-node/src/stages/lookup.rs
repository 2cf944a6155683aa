//! Lookup: finds the rows that may have some keys.
//!
//! The key index returns candidates from the data files that its runs cover. A candidate's key is compared after the
//! row was fetched (`requests/by_key/find.rs`). Data files that no run covers yet are searched only for keys that the
//! covered files do not answer. Without the key index, the column's BTREE or a scan returns each key's row.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_select::take::take;
use futures::FutureExt;

use crate::error::Result;
use crate::key_index::{Candidates, VersionKeys, WantedRows};
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};
use crate::tables::OpenTable;

/// Keys to look up in a column.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// The table.
    pub open: &'a Arc<OpenTable>,
    /// The column.
    pub column: &'a str,
    /// The keys, as values of the column's type. Null is the key of no row.
    pub keys: &'a ArrayRef,
}

/// A look-up in progress. [`next`](Self::next) returns the next row for each key. The row may turn out to have another
/// key.
pub struct Lookup<'a> {
    keys: Keys<'a>,
    context: RequestContext,
    candidates: Candidates,
    /// For each key, the position in `candidates.rows` of its next candidate.
    cursors: Vec<u32>,
    /// For each key, the result of a search of the table for rows that `candidates` may leave out.
    rest: Vec<Rest>,
    /// The number of keys that were looked up through the BTREE or a scan.
    keys_in_table: usize,
}

/// The keys that have a row.
#[derive(Debug, Default)]
pub struct Presence {
    /// The positions of the keys that have a row, ascending.
    pub found: Vec<u32>,
    /// The positions of the found keys for which only the key index names a row. That row may turn out to have another
    /// key.
    pub unproven: Vec<u32>,
}

/// The result of searching the table for a key: the files without a run, or all files if the candidates leave out rows
/// of covered files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// The table has not been searched for the key.
    Unknown,
    /// The row, if there is one that has not been returned.
    Known(Option<RowAddr>),
}

impl<'a> Lookup<'a> {
    /// Begins a look-up.
    ///
    /// The key index, or an open BTREE that needs no plan, is searched on this core: in memory, looking up a few keys
    /// takes less time than handing them to the background. If something has to be read, the look-up moves to the
    /// background; if pages of the key index have to be read, it begins there. A look-up in another column than the
    /// table's own key begins in the background: a key of such a column may have any number of rows, and looking up a
    /// key with many rows would occupy the core for long.
    ///
    /// # Errors
    /// The errors of the admission queue, and those of the store.
    pub async fn begin(
        state: &ShardState,
        keys: Keys<'a>,
        context: RequestContext,
    ) -> Result<Self> {
        let count = keys.keys.len();
        let admission = &state.shared.admission;
        let ask = Ask { during: "lookup", rows: count, context };
        let index = keys.open.keys.as_ref().filter(|index| index.column() == keys.column);
        if let Some(index) = index {
            index.want();
        }
        let direct = match index {
            Some(index) if index.covers_all() => None,
            _ if keys.open.key_column.as_deref() != Some(keys.column) => None,
            _ => keys.open.table.direct_lookup(keys.column, keys.keys)?,
        };
        let found = match (direct, index) {
            (Some(lookup), _) => {
                let lookup = async move { Ok(lookup.await?) }.boxed();
                admission.begin_on_core(ask, lookup).await?
            }
            (None, Some(index)) if index.covers_any() => {
                let candidates =
                    candidates(state, ask, index, keys.keys, WantedRows::Lowest).await?;
                return Ok(Self::of_candidates(keys, context, candidates));
            }
            _ => {
                let (open, column) = (Arc::clone(keys.open), keys.column.to_owned());
                let keys = Arc::clone(keys.keys);
                let lookup = async move { Ok(open.table.lookup(&column, &keys).await?) };
                admission.run_in_background(ask, lookup.boxed()).await?
            }
        };
        let rest = found.into_iter().map(Rest::Known).collect();
        let candidates = Candidates { ends: vec![0; count], ..Candidates::default() };
        Ok(Self { keys, context, candidates, cursors: vec![0; count], rest, keys_in_table: count })
    }

    fn of_candidates(keys: Keys<'a>, context: RequestContext, candidates: Candidates) -> Self {
        let starts = [0].into_iter().chain(candidates.ends.iter().copied());
        let cursors = starts.take(candidates.ends.len()).collect();
        let nothing = match candidates.uncovered.is_empty() {
            true => Rest::Known(None),
            false => Rest::Unknown,
        };
        let mut rest = vec![nothing; candidates.ends.len()];
        candidates.cut.iter().for_each(|&key| rest[key as usize] = Rest::Unknown);
        Self { keys, context, candidates, cursors, rest, keys_in_table: 0 }
    }

    /// Returns the next row for each key of `wanted` (positions, ascending), in the same order. The rows of a key are
    /// returned by ascending address, one with each call. Keys without a further row are left out.
    ///
    /// # Errors
    /// The errors of the admission queue, and those of the store.
    pub async fn next(
        &mut self,
        state: &ShardState,
        wanted: &[u32],
    ) -> Result<Vec<(u32, RowAddr)>> {
        let unknown: Vec<u32> =
            wanted.iter().copied().filter(|&key| self.needs_rest(key as usize)).collect();
        if !unknown.is_empty() {
            self.search_rest(state, &unknown).await?;
        }
        Ok(wanted.iter().filter_map(|&key| Some((key, self.pop(key as usize)?))).collect())
    }

    /// Returns whether the next row of a key is known only once the table has been searched for the key.
    fn needs_rest(&self, key: usize) -> bool {
        let first_uncovered = self.candidates.uncovered.first();
        let is_first =
            |addr: RowAddr| first_uncovered.is_none_or(|fragment| addr.fragment() < *fragment);
        self.rest[key] == Rest::Unknown && !self.candidate(key).is_some_and(is_first)
    }

    /// Searches the table for keys of which the candidates may leave out rows.
    async fn search_rest(&mut self, state: &ShardState, wanted: &[u32]) -> Result<()> {
        let Keys { open, column, keys } = self.keys;
        let searched = take(keys, &UInt32Array::from(wanted.to_vec()), None)?;
        // In covered files, candidates are missing only for keys that have more of them than were returned, or whose
        // page could not be read. If one of these keys is wanted, the whole table is searched for all wanted keys.
        let is_cut = |key: &u32| self.candidates.cut.binary_search(key).is_ok();
        let is_whole = wanted.iter().any(is_cut);
        let uncovered = Arc::clone(&self.candidates.uncovered);
        let (open, column) = (Arc::clone(open), column.to_owned());
        let search = async move {
            Ok(match is_whole {
                true => open.table.lookup(&column, &searched).await?,
                false => open.table.lookup_within(&column, &searched, &uncovered).await?,
            })
        };
        let ask = Ask { during: "lookup", rows: wanted.len(), context: self.context };
        let found = state.shared.admission.run_in_background(ask, search.boxed()).await?;
        for (&key, row) in wanted.iter().zip(found) {
            self.rest[key as usize] = Rest::Known(row);
        }
        self.keys_in_table += wanted.len();
        Ok(())
    }

    /// Returns a key's next candidate.
    fn candidate(&self, key: usize) -> Option<RowAddr> {
        let at = self.cursors[key];
        (at < self.candidates.ends[key]).then(|| self.candidates.rows[at as usize])
    }

    /// Takes the next row of a key: the lower of its next candidate and the row that a search of the table found.
    fn pop(&mut self, key: usize) -> Option<RowAddr> {
        let candidate = self.candidate(key);
        let rest = match self.rest[key] {
            Rest::Known(row) => row,
            Rest::Unknown => None,
        };
        match (candidate, rest) {
            (Some(candidate), rest) if rest.is_none_or(|row| candidate <= row) => {
                self.cursors[key] += 1;
                Some(candidate)
            }
            (_, rest) => {
                self.rest[key] = Rest::Known(None);
                rest
            }
        }
    }

    /// Returns which keys have a row, without reading any row that the key index names.
    ///
    /// # Errors
    /// The errors of the admission queue, and those of the store.
    pub async fn presence(&mut self, state: &ShardState) -> Result<Presence> {
        let keys = self.keys.keys.len() as u32;
        let has_candidate = |lookup: &Self, key: u32| lookup.candidate(key as usize).is_some();
        // Null may have candidates like any key, but it is the key of no row.
        let is_null = |key: u32| self.keys.keys.is_null(key as usize);
        let unknown = |&key: &u32| {
            !is_null(key) && !has_candidate(self, key) && self.needs_rest(key as usize)
        };
        let unknown: Vec<u32> = (0..keys).filter(unknown).collect();
        if !unknown.is_empty() {
            self.search_rest(state, &unknown).await?;
        }
        let mut presence = Presence::default();
        for key in (0..keys).filter(|&key| self.keys.keys.is_valid(key as usize)) {
            let is_proven = matches!(self.rest[key as usize], Rest::Known(Some(_)));
            match has_candidate(self, key) {
                true => presence.unproven.push(key),
                false if is_proven => {}
                false => continue,
            }
            presence.found.push(key);
        }
        Ok(presence)
    }

    /// Counts the keys by the way in which they were looked up. Returns how many needed only the key index.
    pub fn count(&self, state: &ShardState) -> usize {
        let by_index = self.keys.keys.len() - self.keys_in_table;
        state.metrics.looked_up(by_index, self.keys_in_table);
        by_index
    }
}

/// Returns the candidates of keys from the key index. Begins on this core if the index is in memory, and in the
/// background if pages of it have to be read.
pub(super) async fn candidates(
    state: &ShardState,
    ask: Ask,
    index: &Arc<VersionKeys>,
    keys: &ArrayRef,
    wanted: WantedRows,
) -> Result<Candidates> {
    let admission = &state.shared.admission;
    let is_paged = index.is_paged();
    let (index, keys) = (Arc::clone(index), Arc::clone(keys));
    let lookup = async move { index.candidates(&keys, wanted).await }.boxed();
    match is_paged {
        true => admission.run_paged(ask, lookup).await,
        false => admission.begin_on_core(ask, lookup).await,
    }
}
