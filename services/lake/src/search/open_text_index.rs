//! Opens a full-text index for searches without a plan.

use lance::index::DatasetIndexExt;

use super::coverage::Coverage;
use super::plan_reason::PlanReason;
use super::row_addresses::RowAddresses;
use super::text_index::TextIndex;
use crate::error::Result;
use crate::table::Table;

/// Opens the full-text index `name` of `column`. Returns the reason if a search needs more than the index and the rows
/// that it does not cover.
///
/// Errors: those of the store.
pub(super) async fn open_text_index(
    table: &Table,
    column: &str,
    name: &str,
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
    let mut uncovered = coverage.uncovered;
    uncovered.retain(|id| table.live_rows_of([*id]) > 0);
    let uncovered_rows = table.live_rows_of(uncovered.iter().copied());
    let column = column.to_owned();
    Ok(Ok(TextIndex { column, segments, addresses, uncovered, uncovered_rows }))
}
