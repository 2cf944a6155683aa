//! Indexes that are searched without the scanner, which plans each query anew: for one row that costs more
//! than all the rest of its search.
//!
//! They are opened once a version and column, and only where the index is all that there is to search
//! ([`sole_segment`] says which those are); others go the long way.

use std::sync::atomic::AtomicBool;

use lance::index::DatasetIndexExt;
use lance_core::Result;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_table::format::IndexMetadata;
use tokio::sync::OnceCell;

use super::keys::Keys;
use super::partitions::Partitions;
use crate::table::Table;

/// The indexes of a column that are searched directly, once they were asked for; `None` in a cell for one
/// that can't be.
#[derive(Default)]
pub(crate) struct Direct {
    pub partitions: OnceCell<Option<Partitions>>,
    pub keys: OnceCell<Option<Keys>>,
    /// Whether it was told that opening the latter failed: it is tried anew, and told once.
    pub keys_failed: AtomicBool,
}

/// The segment that is all of the index `name`, and has each row of the version under its address. `None`
/// where a search needs more: rows that the index doesn't cover, several segments to merge, stable row ids
/// to translate, overlaid or remapped fragments. It may also have rows that the version doesn't. Segments that cover
/// none of the version's fragments are as good as none.
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
