//! Decides whether one segment of an index holds every row of a version under its address, so that the index can be
//! searched without the scanner.

use lance::Dataset;
use lance_core::Result;
use lance_table::format::IndexMetadata;

use crate::search::coverage::Coverage;

/// Returns the only segment of the index `name` if it holds every row of the version under its address. The segment may
/// also hold rows that the version does not have. Returns `None` if a search needs more: rows that the index does not
/// cover, several segments to merge, stable row ids to translate, overlaid or remapped fragments. Segments that cover
/// none of the version's fragments are ignored.
pub(crate) async fn sole_segment(dataset: &Dataset, name: &str) -> Result<Option<IndexMetadata>> {
    if dataset.manifest().uses_stable_row_ids() {
        return Ok(None);
    }
    let Ok(Coverage { mut segments, uncovered }) = Coverage::load(dataset, name).await? else {
        return Ok(None);
    };
    let is_sole = segments.len() == 1 && uncovered.is_empty();
    Ok(segments.pop().filter(|_| is_sole))
}
