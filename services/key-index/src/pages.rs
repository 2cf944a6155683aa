//! The pages of paged runs that a batch of look-ups needs.

use std::collections::HashMap;

use crate::paged_run::Page;

/// Identifies a page of a paged run in a [`RunSet`](crate::RunSet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The run's position among the set's paged runs.
    pub run: usize,
    /// The page's number in the run's file, counted from the first page after the head.
    pub page: u32,
}

/// Pages that were read for look-ups in a [`RunSet`](crate::RunSet).
#[derive(Debug, Default)]
pub struct Pages(HashMap<PageId, Option<Page>>);

impl Pages {
    /// Adds a page, or `None` for a page that could not be read or is damaged. Keys that need such a page are not
    /// looked up.
    pub fn insert(&mut self, id: PageId, page: Option<Page>) {
        self.0.insert(id, page);
    }

    /// Removes all pages except `ids`, which must be in ascending order.
    pub fn keep(&mut self, ids: &[PageId]) {
        self.0.retain(|id, _| ids.binary_search(id).is_ok());
    }

    /// Returns whether [`insert`](Self::insert) was called for the page, even if it could not be read.
    pub fn contains(&self, id: &PageId) -> bool {
        self.0.contains_key(id)
    }

    /// Returns a page: `None` if it has not been added, `Some(None)` if it could not be read or is damaged.
    pub(crate) fn get(&self, run: usize, page: u32) -> Option<Option<&Page>> {
        self.0.get(&PageId { run, page }).map(Option::as_ref)
    }
}
