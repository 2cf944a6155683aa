//! A BTREE that is searched for keys directly, without the scanner.

use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use lance::Dataset;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::Result;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::{SargableQuery, ScalarIndex, SearchOptions, SearchResult};
use lance_table::format::IndexMetadata;

use super::sole_segment::sole_segment;

/// The end of the type URL of a BTREE's `index_details`.
const BTREE_DETAILS: &str = "BTreeIndexDetails";

/// Returns whether a segment belongs to a BTREE. Old versions of Lance did not record an index's type; such an index does
/// not count as a BTREE.
pub(in crate::search) fn is_btree(segment: &IndexMetadata) -> bool {
    segment.index_details.as_ref().is_some_and(|it| it.type_url.ends_with(BTREE_DETAILS))
}

/// An open BTREE that covers the whole version.
#[derive(Clone)]
pub(crate) struct KeyBtree {
    index: Arc<dyn ScalarIndex>,
}

impl KeyBtree {
    /// Returns the only segment of the first BTREE on the column at `position` that alone answers a look-up. Returns `None`
    /// if there is none.
    pub async fn find(dataset: &Dataset, position: usize) -> Result<Option<IndexMetadata>> {
        let field = &dataset.schema().fields[position];
        for index in dataset.load_indices().await?.iter() {
            if !is_btree(index) || index.fields != [field.id] {
                continue;
            }
            if let Some(segment) = sole_segment(dataset, &index.name).await? {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    /// Opens the BTREE on the column at `position` that consists of `segment`.
    pub async fn open(dataset: &Dataset, position: usize, segment: &IndexMetadata) -> Result<Self> {
        let name = &dataset.schema().fields[position].name;
        let index = dataset.open_scalar_index(name, &segment.uuid, &NoOpMetricsCollector).await?;
        Ok(Self { index })
    }

    /// Returns the rows that have `value`, which must not be null. The result may have rows that were deleted after the
    /// index was built.
    pub async fn search(&self, value: &ScalarValue) -> Result<SearchResult> {
        let query = SargableQuery::Equals(value.clone());
        // Null is not a key, so the pages with nulls are not read.
        let options = SearchOptions::default().with_track_nulls(false);
        self.index.search_with_options(&query, options, &NoOpMetricsCollector).await
    }
}
