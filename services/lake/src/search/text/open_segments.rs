//! The open segments of a full-text index.
//!
//! Lance keeps an open segment in the cache of indexes (`index_cache`). To look it up there, it copies and parses the
//! segment's description. Here the segments are remembered between searches, but not kept alive, so the bound of the
//! cache holds. Segments that were evicted are opened again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::future::try_join_all;
use lance::Dataset;
use lance::index::DatasetIndexInternalExt;
use lance_core::{Error, Result};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::ScalarIndex;
use lance_index::scalar::inverted::InvertedIndex;
use lance_table::format::IndexMetadata;

/// The first of this many searches looks the segments up in the cache. The cache would otherwise take them for unused,
/// and evict them first.
const SEARCHES_PER_LOOKUP: u32 = 16;

/// The segments of one full-text index that the cache of indexes had when they were last looked up there.
#[derive(Default)]
pub(crate) struct OpenSegments {
    /// Empty until the first call of [`get`](Self::get) has ended.
    segments: Mutex<Vec<Weak<dyn ScalarIndex>>>,
    /// The number of calls of [`get`](Self::get).
    searches: AtomicU32,
}

impl OpenSegments {
    /// Returns the segments `described` of the index on `column`, in this order. Opens them if one of them is no longer
    /// in the cache.
    pub async fn get(
        &self,
        dataset: &Dataset,
        column: &str,
        described: &[IndexMetadata],
    ) -> Result<Vec<Arc<InvertedIndex>>> {
        let search = self.searches.fetch_add(1, Ordering::Relaxed);
        let cached = if search.is_multiple_of(SEARCHES_PER_LOOKUP) { None } else { self.cached() };
        let segments = match cached {
            Some(segments) => segments,
            None => {
                let open = described.iter().map(|segment| {
                    dataset.open_scalar_index(column, &segment.uuid, &NoOpMetricsCollector)
                });
                let segments = try_join_all(open).await?;
                self.remember(&segments);
                segments
            }
        };
        segments.iter().map(|segment| inverted(segment.as_ref())).collect()
    }

    /// Returns whether all segments are still in the cache, or in use by a search.
    pub fn are_cached(&self) -> bool {
        self.cached().is_some()
    }

    fn cached(&self) -> Option<Vec<Arc<dyn ScalarIndex>>> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if segments.is_empty() {
            return None;
        }
        segments.iter().map(Weak::upgrade).collect()
    }

    fn remember(&self, segments: &[Arc<dyn ScalarIndex>]) {
        let remembered = segments.iter().map(Arc::downgrade).collect();
        *self.segments.lock().unwrap_or_else(PoisonError::into_inner) = remembered;
    }
}

/// Returns `segment` as the type that has the searches. Lance shares the data of all copies.
fn inverted(segment: &dyn ScalarIndex) -> Result<Arc<InvertedIndex>> {
    let found = segment.as_any().downcast_ref::<InvertedIndex>();
    let found = found.ok_or_else(|| Error::internal("a segment is not of a full-text index"))?;
    Ok(Arc::new(found.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::text::TextIndex;
    use crate::search::text::tests::indexed;
    use crate::{Table, TextExpr, TextQuery};

    async fn cached(table: &Table) -> Option<Vec<Arc<dyn ScalarIndex>>> {
        table.text_index_alone("text").await.unwrap().unwrap().open.cached()
    }

    #[tokio::test]
    async fn segments_that_were_evicted_are_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path().join("table").to_str().unwrap()).await;
        let query = TextQuery { query: TextExpr::words("oaks"), k: 5, ..Default::default() };
        let found = table.search_text(&query).await.unwrap();
        assert_eq!((found.hits.len(), found.planned), (1, None));
        assert!(cached(&table).await.is_some());
        for _ in 0..2 {
            table.index_cache().clear().await;
            assert!(cached(&table).await.is_none(), "the cache alone keeps them");
            assert_eq!(table.search_text(&query).await.unwrap(), found);
            assert!(cached(&table).await.is_some());
        }
    }

    #[tokio::test]
    async fn the_cache_sees_that_segments_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path().join("table").to_str().unwrap()).await;
        let TextIndex { column, segments, open, .. } =
            table.text_index_alone("text").await.unwrap().unwrap();
        let before = open.cached().unwrap();
        // They are still in use, so they are found although the cache has evicted them.
        table.index_cache().clear().await;
        let is_before = || Arc::ptr_eq(&open.cached().unwrap()[0], &before[0]);
        assert!(is_before());
        for _ in 0..SEARCHES_PER_LOOKUP {
            open.get(table.dataset(), column, segments).await.unwrap();
        }
        assert!(!is_before(), "they were looked up in the cache, which had to open them");
    }
}
