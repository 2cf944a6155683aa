//! Opens a vector index for searches without a plan.

use std::ops::RangeInclusive;
use std::sync::Arc;

use address::RowAddr;
use futures::future::try_join_all;
use lance::Dataset;
use lance::dataset::rowids::row_addrs_to_row_ids;
use lance::dataset::scanner::RowAddrMask;
use lance::index::DatasetIndexInternalExt;
use lance_core::Result;
use lance_index::metrics::NoOpMetricsCollector;
use lance_table::format::IndexMetadata;
use roaring::RoaringBitmap;
use tables::FragmentInfo;

use super::group::Group;
use super::partitions::Partitions;
use super::read_ahead::ReadAhead;
use super::segment::{Segment, share_of};
use crate::search::beside::beside;
use crate::search::coverage::{Coverage, check_formats};
use crate::search::plan_reason::PlanReason;
use crate::search::row_addresses::RowAddresses;
use crate::search::selection::Selection;
use crate::table::Table;
use crate::table::fragment::{hash_contents, hash_part};
use crate::table::index_info::IndexInfo;

/// The format versions of vector indexes that are read directly: 0 (written by early versions of Lance), 1 (all kinds)
/// and 2 (IVF_RQ).
const FORMATS: RangeInclusive<i32> = 0..=2;

/// Maximum number of uncovered rows, which are in no segment, for a search without a plan. The I/O nodes score all of
/// them, at a million rows a second or more (`docs/performance.md`), where Lance's plan would read the vectors of all of
/// them from the store. Their addresses take 8 MB, and as much again with stable row ids.
const FRESH_VECTORS_MAX: u64 = 1_000_000;

/// Opens `index` of `column`. Returns the reason if a search needs more than its partitions and the uncovered rows.
pub(crate) async fn open_partitions(
    table: &Table,
    column: &str,
    index: &IndexInfo,
) -> crate::error::Result<std::result::Result<Partitions, PlanReason>> {
    let dataset = table.dataset();
    let coverage = match table.caught(Coverage::load(dataset, &index.name)).await? {
        Ok(coverage) => coverage,
        Err(reason) => return Ok(Err(reason)),
    };
    let (uri, version) = (table.uri(), table.version());
    if let Err(reason) = check_formats(&coverage.segments, &FORMATS, uri, version) {
        return Ok(Err(reason));
    }
    let uncovered = match uncovered_rows(table, &coverage).await? {
        Ok(uncovered) => uncovered,
        Err(reason) => return Ok(Err(reason)),
    };
    let is_flat = index.kind.starts_with("IVF_") && !index.kind.contains("HNSW");
    let open = async {
        table.note_file_sizes().await?;
        let open = coverage.segments.iter().map(|it| open_segment(table, column, it, is_flat));
        let ids = if table.has_stable_row_ids() {
            let addresses = uncovered.iter().map(|row| Some(row.to_u64()));
            let ids = row_addrs_to_row_ids(dataset, addresses).await?.into_iter();
            // Each uncovered row has an id: it is in a fragment of the version.
            Some(ids.map(Option::unwrap_or_default).collect())
        } else {
            None
        };
        let (segments, addresses) = (try_join_all(open).await?, RowAddresses::load(dataset).await?);
        let groups = Group::all(segments, table.index_cache());
        Ok(Partitions::new(column, groups, addresses, uncovered, ids))
    };
    table.caught(open).await.map(Ok)
}

/// Returns the live rows that no segment covers, or the reason if the index covers no rows, or leaves too many
/// uncovered to compare them one by one.
async fn uncovered_rows(
    table: &Table,
    coverage: &Coverage,
) -> crate::error::Result<std::result::Result<Arc<[RowAddr]>, PlanReason>> {
    let count = table.live_rows_of(coverage.uncovered.iter().copied());
    if coverage.segments.is_empty() {
        return Ok(Err(PlanReason::CoversNothing));
    }
    if count > FRESH_VECTORS_MAX {
        return Ok(Err(PlanReason::Uncovered(count)));
    }
    let fragments: Vec<_> =
        coverage.uncovered.iter().filter_map(|id| table.fragment(*id)).collect();
    Ok(Ok(table.live_rows_in(&fragments).await?.into()))
}

async fn open_segment(
    table: &Table,
    column: &str,
    segment: &IndexMetadata,
    is_flat: bool,
) -> Result<Segment> {
    let dataset: &Arc<Dataset> = table.dataset();
    let open = dataset.open_vector_index(column, &segment.uuid, &NoOpMetricsCollector);
    let index = beside(open, table.read_file_ends(segment)).await?;
    let covered = segment.fragment_bitmap.clone().unwrap_or_default();
    let live_rows = table.live_rows_of(covered.iter());
    let mask = match may_have_other_rows(table, &covered) {
        true => Some(Arc::new(RowAddrMask::from_allowed(table.live_ids(&covered).await?))),
        false => None,
    };
    let share = share_of(live_rows, index.num_rows());
    let (uri, cache, bytes) =
        (table.canonical_uri(), table.index_cache(), table.index_cache_bytes());
    let read_ahead = ReadAhead::new(uri, segment, index.as_ref(), cache, bytes).await?;
    let (identity, live) = (identity(table, segment, &covered), Selection { mask, share });
    Ok(Segment { index, identity, live, is_flat, read_ahead })
}

/// Identifies a segment that covers the fragments `covered`, with those of its rows that are live, by the segment's name
/// and the contents of the fragments. Versions that differ in other fragments have the same identity.
fn identity(table: &Table, segment: &IndexMetadata, covered: &RoaringBitmap) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    hash_part(&mut hash, segment.uuid.as_bytes());
    let fragments = table.file_fragments(covered.iter());
    fragments.for_each(|fragment| hash_contents(&mut hash, fragment.metadata()));
    hash.finalize()
}

/// Returns whether a segment that covers the fragments `covered` may have rows besides their live ones. When a fragment's
/// vectors are rewritten, a segment no longer covers the fragment, but still has its rows, also after the fragment has
/// left the table.
fn may_have_other_rows(table: &Table, covered: &RoaringBitmap) -> bool {
    let is_whole = |info: &FragmentInfo| {
        covered.contains(info.id) && info.live_rows() == u64::from(info.physical_rows)
    };
    let ever = table.dataset().manifest().max_fragment_id.map(|id| id as usize + 1);
    !table.fragments().iter().all(is_whole) || ever != Some(table.fragments().len())
}
