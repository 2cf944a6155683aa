//! Indexes that are searched directly, without the scanner. The scanner plans each query anew, which for one row costs
//! more than the search itself.
//!
//! An index is opened once per version and column, and only if it alone answers a search ([`sole_segment`] decides).
//! Other searches go through the scanner.

use std::sync::atomic::AtomicBool;

use lance::index::DatasetIndexExt;
use lance_core::Result;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_table::format::IndexMetadata;
use tokio::sync::OnceCell;

use super::key_index::KeyIndex;
use super::partitions::Partitions;
use crate::table::Table;

/// A column's indexes that are searched directly. The first search that may use an index fills its cell, with `None` if
/// the index can't be searched directly.
#[derive(Default)]
pub(crate) struct DirectIndexes {
    pub partitions: OnceCell<Option<Partitions>>,
    pub key_index: OnceCell<Option<KeyIndex>>,
    /// Whether a failure to open `key_index` was logged. Opening is retried, but logged only once.
    pub key_index_failed: AtomicBool,
}

/// Returns the only segment of the index `name` if it holds every row of the version under its address. The segment may
/// also hold rows that the version does not have. Returns `None` if a search needs more: rows that the index does not
/// cover, several segments to merge, stable row ids to translate, overlaid or remapped fragments. Segments that cover
/// none of the version's fragments are ignored.
pub(crate) async fn sole_segment(table: &Table, name: &str) -> Result<Option<IndexMetadata>> {
    let dataset = table.dataset();
    let overlaid = |id| table.file_fragment(id).is_ok_and(|it| !it.metadata().overlays.is_empty());
    let remapped = || async {
        let indexes = dataset.load_indices().await?;
        Result::Ok(indexes.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME))
    };
    if dataset.manifest().uses_stable_row_ids()
        || table.fragments().iter().any(|fragment| overlaid(fragment.id))
        || remapped().await?
    {
        return Ok(None);
    }
    let covers = |segment: &IndexMetadata, id| {
        segment.fragment_bitmap.as_ref().is_some_and(|it| it.contains(id))
    };
    let mut segments = dataset.load_indices_by_name(name).await?;
    segments.retain(|segment| table.fragments().iter().any(|it| covers(segment, it.id)));
    let (Some(segment), true) = (segments.pop(), segments.is_empty()) else { return Ok(None) };
    let covers_all = table.fragments().iter().all(|it| covers(&segment, it.id));
    Ok(covers_all.then_some(segment))
}
