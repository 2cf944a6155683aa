//! Reads the partitions that a search needs several at a time, if no search has read them before.
//!
//! Lance reads as many partitions at the same time as there are cores, and a partition takes two reads, one after the
//! other. With two cores and a store that takes 30 ms to answer, a first search of 20 partitions waits for 20 reads in
//! turn. Here they are read into Lance's cache together, before the search. Whether the cache has a partition is not
//! known, so the partitions that were read before are remembered, for all versions of the table that have the segment.
//! If the cache has dropped one of them since, the search reads it itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::stream::{self, StreamExt, TryStreamExt};
use lance_core::Result;
use lance_core::cache::{CacheKey, LanceCache};
use lance_core::deepsize::{Context, DeepSizeOf};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::prefilter::NoFilter;
use lance_index::vector::{Query, VectorIndex};
use lance_table::format::IndexMetadata;
use tables::TableUri;

/// The maximum number of partitions that one search reads at the same time.
const PARTITIONS_MAX: u64 = 32;

/// The memory of the partitions that one search reads at the same time, in bytes, estimated by the size of the index's
/// files. Larger partitions are left to Lance.
const BYTES_MAX: u64 = 16 << 20;

/// The partitions of a segment that searches have read.
pub(crate) struct ReadAhead {
    were_read: Arc<WereRead>,
    /// The bytes of a row in the index's files; `None` if they are not known. Then nothing is read ahead.
    row_bytes: Option<u64>,
    /// The bytes that one search reads at most: a part of the cache, so that the partitions that are read first are
    /// still there when the search begins.
    total_max: u64,
}

/// For each partition of a segment, whether a search has read it, or was left to read it. Lance's cache has partitions
/// by their segment, so versions of a table that have a segment in common share this too.
struct WereRead(Vec<AtomicBool>);

impl DeepSizeOf for WereRead {
    fn deep_size_of_children(&self, _: &mut Context) -> usize {
        self.0.len()
    }
}

/// The key of [`WereRead`] in the cache of indexes: the table's URI, and the segment's id.
struct Key(String);

impl CacheKey for Key {
    type ValueType = WereRead;

    fn key(&self) -> Cow<'_, str> {
        (&self.0).into()
    }

    fn type_name() -> &'static str {
        "BiremePartitionsRead"
    }
}

impl ReadAhead {
    /// Reads ahead in `index`, the segment `segment` of the table at `uri`. Its partitions are kept in `cache`, which
    /// may have `cache_bytes`.
    ///
    /// # Errors
    /// Never: the list of partitions that were read is made without a request or a wait. Only the signature of the
    /// cache's method makes this asynchronous and fallible.
    pub async fn new(
        uri: &TableUri,
        segment: &IndexMetadata,
        index: &dyn VectorIndex,
        cache: &LanceCache,
        cache_bytes: u64,
    ) -> Result<Self> {
        let partitions = index.total_partitions();
        let none_read = || async move {
            Ok(WereRead((0..partitions).map(|_| AtomicBool::new(false)).collect()))
        };
        let key = Key(format!("{uri}/{}", segment.uuid));
        let were_read = cache.get_or_insert_with_key(key, none_read).await?;
        let bytes = segment.total_size_bytes().filter(|&bytes| bytes > 0);
        let row_bytes = bytes.map(|bytes| bytes.div_ceil(index.num_rows().max(1)));
        Ok(Self { were_read, row_bytes, total_max: cache_bytes / 4 })
    }

    /// Reads those of `partitions` that no search has read yet.
    ///
    /// # Errors
    /// The errors that the search itself would have: it needs the same partitions.
    pub async fn read(
        &self,
        index: &Arc<dyn VectorIndex>,
        query: &Query,
        partitions: &[u32],
    ) -> Result<()> {
        let is_new =
            |id: &u32| self.were_read.0.get(*id as usize).is_some_and(|it| !it.load(Relaxed));
        if !partitions.iter().any(&is_new) {
            return Ok(());
        }
        let new = partitions.iter().copied().filter(is_new);
        let sized = new.map(|id| (id, self.bytes_of(index.partition_size(id as usize))));
        let (new, at_once) = plan(sized, self.total_max);
        if at_once > 1 && index.supports_prepared_partition_search() {
            let read = |id: u32| {
                let (index, query) = (Arc::clone(index), query.clone());
                async move {
                    let (id, metrics) = (id as usize, NoOpMetricsCollector);
                    // The partition stays in the cache.
                    index
                        .prepare_partition_search(id, &query, Arc::new(NoFilter), &metrics)
                        .await
                        .map(drop)
                }
            };
            // A loop instead of `map`: with a closure the compiler can't prove that the future is `Send`.
            let mut reads = Vec::with_capacity(new.len());
            for &id in &new {
                reads.push(read(id));
            }
            stream::iter(reads).buffer_unordered(at_once).try_collect::<()>().await?;
            self.mark(&new);
        } else {
            // The search reads them.
            self.mark(partitions);
        }
        Ok(())
    }

    fn mark(&self, partitions: &[u32]) {
        for id in partitions {
            if let Some(was_read) = self.were_read.0.get(*id as usize) {
                was_read.store(true, Relaxed);
            }
        }
    }

    /// Returns the estimated bytes of a partition of `rows` rows; the most possible if they are not known.
    fn bytes_of(&self, rows: usize) -> u64 {
        self.row_bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(rows as u64))
    }
}

/// Returns the partitions to read of those in `sized`, each with its bytes: as many of the first as have `total_max`
/// bytes together. Also returns how many of them to read at the same time.
fn plan(sized: impl Iterator<Item = (u32, u64)>, total_max: u64) -> (Vec<u32>, usize) {
    let (mut total, mut largest, mut ids) = (0_u64, 1, Vec::new());
    for (id, bytes) in sized {
        total = total.saturating_add(bytes);
        if total > total_max {
            break;
        }
        largest = largest.max(bytes);
        ids.push(id);
    }
    let at_once = (BYTES_MAX / largest).min(PARTITIONS_MAX).min(ids.len() as u64);
    (ids, at_once as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_together_within_the_bounds_of_memory() {
        let of = |bytes: &[u64], total_max| plan((0..).zip(bytes.iter().copied()), total_max);
        let ids = |ids: std::ops::Range<u32>| ids.collect::<Vec<_>>();
        assert_eq!(of(&[1 << 17; 20], 1 << 30), (ids(0..20), 20));
        assert_eq!(of(&[1 << 17; 100], 1 << 30), (ids(0..100), 32));
        // The largest one counts.
        assert_eq!(of(&[1, 4 << 20, 1, 1, 1], 1 << 30), (ids(0..5), 4));
        // Partitions that the cache can't hold are not read ahead.
        assert_eq!(of(&[1 << 20; 20], 5 << 20), (ids(0..5), 5));
        // Only one of these large partitions would fit at a time. Lance reads more.
        assert_eq!(of(&[10 << 20; 20], 1 << 30).1, 1);
        assert_eq!(of(&[u64::MAX; 20], 1 << 30), (Vec::new(), 0));
        assert_eq!(of(&[], 1 << 30), (Vec::new(), 0));
    }
}
