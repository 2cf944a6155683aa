//! The addresses of rows that an index knows by their ids.

use std::sync::Arc;

use address::RowAddr;
use lance::Dataset;
use lance::dataset::rowids::get_row_id_index;
use lance_core::Result;
use lance_table::rowids::RowIdIndex;

/// Maps row ids to addresses. Without stable row ids, a row's id is its address.
pub(crate) struct RowAddresses(Option<Arc<RowIdIndex>>);

impl RowAddresses {
    /// Loads the map of a version.
    pub async fn load(dataset: &Dataset) -> Result<Self> {
        get_row_id_index(dataset).await.map(Self)
    }

    /// Returns the addresses of the rows that the version has, ascending.
    pub fn ascending(&self, ids: &[u64]) -> Result<Arc<[RowAddr]>> {
        let mut rows: Vec<_> = self.of(ids)?.into_iter().flatten().collect();
        rows.sort_unstable();
        Ok(rows.into())
    }

    /// Returns the address of each row, in the order of `ids`; `None` for a stable row id that the version does not
    /// have. An id that is an address is returned unchecked.
    pub fn of(&self, ids: &[u64]) -> Result<Vec<Option<RowAddr>>> {
        let addr = |addr: u64| Some(RowAddr::from_u64(addr));
        Ok(match &self.0 {
            None => ids.iter().copied().map(addr).collect(),
            Some(index) => {
                let found = index.get_many(ids)?.into_iter();
                found.map(|found| found.and_then(|found| addr(found.into()))).collect()
            }
        })
    }
}
