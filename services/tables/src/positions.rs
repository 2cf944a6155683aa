//! Finds rows by their positions: their numbers in the order of a scan, without deleted rows.

use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;
use spelling::counted;
use wire::{Fault, Reason};

use crate::{DeletedRows, FragmentInfo};

/// Consecutive physical rows of one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentRows {
    /// The fragment's id.
    pub fragment: u32,
    /// The physical offsets of the rows. The range may include deleted rows, which were not asked for.
    pub offsets: Range<u32>,
}

/// Implements [`Table::rows_at`](crate::Table::rows_at). `fragments` must be in ascending order of their ids, which is
/// the order of a scan.
pub async fn rows_at<'a>(
    uri: &str,
    fragments: &[FragmentInfo],
    positions: Range<u64>,
    deleted: impl Fn(u32) -> BoxFuture<'a, Result<Arc<DeletedRows>, Fault>>,
) -> Result<Vec<FragmentRows>, Fault> {
    let rows = fragments.iter().map(FragmentInfo::live_rows).sum();
    let end = if positions.end == u64::MAX { rows } else { positions.end };
    let positions = positions.start..end;
    if positions.start >= end || end > rows {
        let Range { start, end } = positions;
        let count = counted(rows, "row");
        let what = format!(
            "rows {start}..{end} are not in {uri}, which has {count}: give a first row and a later end, both counted \
             from 0"
        );
        return Err(Fault::new(Reason::BadArgument, what).with("table", uri));
    }
    let mut found = Vec::new();
    let mut begin = 0;
    for info in fragments {
        let live = info.live_rows();
        let from = positions.start.max(begin) - begin;
        let to = positions.end.min(begin + live).saturating_sub(begin);
        begin += live;
        if from < to {
            let offsets = match (from, to) {
                (0, to) if to == live => 0..info.physical_rows,
                (from, to) => {
                    let deleted = deleted(info.id).await?;
                    offset_of(info, &deleted, from)..offset_of(info, &deleted, to - 1) + 1
                }
            };
            found.push(FragmentRows { fragment: info.id, offsets });
        }
    }
    Ok(found)
}

/// Returns the physical offset of a fragment's row number `live`, which must exist. Rows are numbered from 0, without
/// deleted ones.
fn offset_of(info: &FragmentInfo, deleted: &DeletedRows, live: u64) -> u32 {
    deleted.nth_live(live).min(info.physical_rows.saturating_sub(1))
}
