//! Decides whether one segment of an index holds every row of a version, so that the index can be searched without the
//! scanner.

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_core::Result;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_table::format::{Fragment, IndexMetadata};

/// Returns the only segment of the index `name` if it holds every row of the version under its address. The segment may
/// also hold rows that the version does not have. Returns `None` if a search needs more: rows that the index does not
/// cover, several segments to merge, stable row ids to translate, overlaid or remapped fragments. Segments that cover
/// none of the version's fragments are ignored.
pub(crate) async fn sole_segment(dataset: &Dataset, name: &str) -> Result<Option<IndexMetadata>> {
    let fragments = dataset.fragments();
    let remapped = || async {
        let indexes = dataset.load_indices().await?;
        Result::Ok(indexes.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME))
    };
    if dataset.manifest().uses_stable_row_ids()
        || fragments.iter().any(|fragment| !fragment.overlays.is_empty())
        || remapped().await?
    {
        return Ok(None);
    }
    // A table's fragment ids fit 32 bits, which is checked when it is opened.
    let covers = |segment: &IndexMetadata, fragment: &Fragment| {
        segment.fragment_bitmap.as_ref().is_some_and(|it| it.contains(fragment.id as u32))
    };
    let mut segments = dataset.load_indices_by_name(name).await?;
    segments.retain(|segment| fragments.iter().any(|it| covers(segment, it)));
    let (Some(segment), true) = (segments.pop(), segments.is_empty()) else { return Ok(None) };
    let covers_all = fragments.iter().all(|it| covers(&segment, it));
    Ok(covers_all.then_some(segment))
}
