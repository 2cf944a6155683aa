//! Opens a full-text index for searches without a plan.

use std::ops::RangeInclusive;
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::scanner::RowAddrMask;
use lance::index::DatasetIndexExt;
use lance::index::prefilter::{DatasetPreFilter, PreFilter};
use lance_index::scalar::inverted::InvertedIndex;
use lance_table::format::IndexMetadata;
use roaring::RoaringBitmap;

use super::index::TextIndex;
use super::open_segments::OpenSegments;
use crate::error::Result;
use crate::search::coverage::{Coverage, check_formats};
use crate::search::plan_reason::PlanReason;
use crate::search::row_addresses::RowAddresses;
use crate::table::Table;

/// The format versions of full-text indexes that are read directly: 0 (written by early versions of Lance) to 3. Lance
/// 14 knows the same ones.
pub(in crate::search) const FORMATS: RangeInclusive<i32> = 0..=3;

/// Opens the full-text index `name` of `column`. Returns the reason if a search needs more than the index and the rows
/// that it does not cover, or if a segment has a format version outside of `formats`.
///
/// Errors: those of the store.
pub(in crate::search) async fn open_text_index(
    table: &Table,
    column: &str,
    name: &str,
    formats: &RangeInclusive<i32>,
) -> Result<std::result::Result<TextIndex, PlanReason>> {
    let dataset = table.dataset();
    let coverage = match table.caught(Coverage::load(dataset, name)).await? {
        Ok(coverage) => coverage,
        Err(reason) => return Ok(Err(reason)),
    };
    if coverage.segments.is_empty() {
        return Ok(Err(PlanReason::CoversNothing));
    }
    let load = async {
        table.note_file_sizes().await?;
        let segments = dataset.load_indices_by_name(name).await?;
        Ok((segments, RowAddresses::load(dataset).await?))
    };
    let (segments, addresses) = table.caught(load).await?;
    let (uri, version) = (table.uri(), table.version());
    if let Err(reason) = check_formats(&segments, formats, uri, version) {
        return Ok(Err(reason));
    }
    let open = OpenSegments::default();
    let find_live = async {
        let opened = open.get(dataset, column, &segments).await?;
        live_rows(dataset, &segments, &opened).await
    };
    let live = table.caught(find_live).await?;
    let mut uncovered = coverage.uncovered;
    uncovered.retain(|id| table.live_rows_of([*id]) > 0);
    let uncovered_rows = table.live_rows_of(uncovered.iter().copied());
    let column = column.to_owned();
    Ok(Ok(TextIndex { column, segments, open, live, addresses, uncovered, uncovered_rows }))
}

/// Returns the mask of the rows that searches of the segments may return, as Lance's own searches make it each time;
/// `None` if they may return all of them.
async fn live_rows(
    dataset: &Arc<Dataset>,
    segments: &[IndexMetadata],
    opened: &[Arc<InvertedIndex>],
) -> lance::Result<Option<Arc<RowAddrMask>>> {
    let mut filter = DatasetPreFilter::new(Arc::clone(dataset), segments, None);
    let mut gone = RoaringBitmap::new();
    for segment in opened {
        gone |= segment.deleted_fragments();
    }
    if !gone.is_empty() {
        filter.set_deleted_fragments(gone);
    }
    filter.wait_for_ready().await?;
    Ok((!filter.is_empty()).then(|| filter.mask()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::text::tests::indexed;

    // Lance hides indexes of formats that it doesn't know, so no table has one that only this crate doesn't know.
    #[tokio::test]
    async fn an_index_of_an_unknown_format_is_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path().join("table").to_str().unwrap()).await;
        let index = table.indexes().await.unwrap()[0].clone();
        let format = index.format.unwrap();
        let open = async |known: RangeInclusive<i32>| {
            let opened = open_text_index(&table, "text", &index.name, &known).await.unwrap();
            opened.map(|index| index.segments.len())
        };
        assert_eq!(open(FORMATS).await, Ok(1));
        assert_eq!(open(0..=format - 1).await, Err(PlanReason::FormatUnknown(format)));
    }
}
