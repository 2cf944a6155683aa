//! The rows that a search of an index may return.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use address::RowAddr;
use async_trait::async_trait;
use lance::dataset::scanner::RowAddrMask;
use lance_core::Result;
use lance_core::deepsize::DeepSizeOf;
use lance_index::prefilter::PreFilter;

/// The rows of an index's segments that a search may return.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Selects the rows by the ids that the segments hold; `None` if all of them may be returned.
    pub mask: Option<Arc<RowAddrMask>>,
    /// The approximate share of the segments' rows that are selected.
    pub share: f64,
}

impl Selection {
    /// Selects all rows.
    pub const ALL: Self = Self { mask: None, share: 1.0 };
}

/// The rows that pass a filter, in the form in which searches of one vector index take them.
#[derive(Debug)]
pub(crate) struct SelectedByIndex {
    /// The selection of each group of the index's segments.
    pub groups: Vec<Selection>,
    /// The number of the rows that segments cover. Rows without a vector count too, until a search has found that there
    /// are some.
    pub covered: AtomicU64,
    /// The rows that no segment covers, ascending.
    pub uncovered: Arc<[RowAddr]>,
    /// All rows, ascending, if they are so few that each of them may be scored.
    pub all: Option<Arc<[RowAddr]>>,
}

impl SelectedByIndex {
    /// Returns the bytes of memory that the selection takes, besides the mask of the allow-list that it was made of.
    pub fn bytes(&self, of_list: &Arc<RowAddrMask>) -> usize {
        let masks = self.groups.iter().filter_map(|group| group.mask.as_ref());
        let masks = masks.filter(|mask| !Arc::ptr_eq(mask, of_list));
        let rows = self.uncovered.len() + self.all.as_ref().map_or(0, |all| all.len());
        masks.map(|mask| mask.deep_size_of()).sum::<usize>() + rows * size_of::<RowAddr>()
    }
}

/// Lets an index return only the rows that a mask selects.
pub(crate) struct Selected(pub Arc<RowAddrMask>);

#[async_trait]
impl PreFilter for Selected {
    async fn wait_for_ready(&self) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self) -> bool {
        false
    }

    fn mask(&self) -> Arc<RowAddrMask> {
        Arc::clone(&self.0)
    }

    fn filter_row_ids<'a>(&self, row_ids: Box<dyn Iterator<Item = &'a u64> + 'a>) -> Vec<u64> {
        self.0.selected_indices(row_ids)
    }
}

/// Estimates the share of rows that pass a filter, if `passed` of `checked` rows did.
pub(crate) fn passing_share(passed: u64, checked: u64) -> f64 {
    (passed as f64 + 1.0) / (checked as f64 + 2.0)
}

/// Returns the number of rows to search for so that about 49 times in 50 at least `k` of them are selected, if every
/// row is selected with probability `share`.
pub(crate) fn rows_to_search(k: usize, share: f64) -> usize {
    if share >= 1.0 {
        return k;
    }
    let wanted = k as f64;
    let deviation = (wanted * (1.0 - share)).sqrt() / share;
    ((wanted / share + 2.0 * deviation).ceil() as usize).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_widened_by_the_rows_that_are_not_selected() {
        assert_eq!(rows_to_search(500, 1.0), 500);
        assert_eq!(rows_to_search(500, 0.9999), 502);
        assert_eq!(rows_to_search(500, 0.8), 651);
        assert_eq!(rows_to_search(500, 0.5), 1065);
        assert_eq!(rows_to_search(1, 0.5), 6);
        assert_eq!(rows_to_search(1, 0.0), usize::MAX);
    }
}
