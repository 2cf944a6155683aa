//! The deleted rows of a version, and the live ones by their position in a scan, which Lance calls a row's offset: rows
//! are numbered from 0, without deleted ones, by ascending fragment and physical position.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance_table::io::deletion::relative_deletion_file_path;
use tables::{DeletedRows, FragmentInfo};

use crate::error::{LakeError, Result};
use crate::table::base_paths::place_of;
use crate::table::deleted::{DeletionFileId, deleted_rows};
use crate::table::{Inner, Table};

/// The maximum number of fragments whose deletions or row ids are loaded at the same time. Like `FRAGMENTS_OPENING_MAX`
/// in `table.rs`, it leaves most of the requests that a node may have in flight to a store to other tables.
pub(crate) const FRAGMENTS_LOADING_MAX: usize = 16;

impl Table {
    /// Returns the deleted rows of `fragment`. The first call reads them from the store, unless an open version has
    /// loaded the same deletion file. Errors: `FragmentNotFound`, and those of the store.
    pub async fn deleted(&self, fragment: u32) -> Result<Arc<DeletedRows>> {
        let at = self.position(fragment)?;
        self.inner.deleted[at]
            .get_or_try_init(|| self.on_own_runtime(self.caught(self.load_deleted(at)).boxed()))
            .await
            .cloned()
    }

    async fn load_deleted(&self, position: usize) -> lance::Result<Arc<DeletedRows>> {
        let Inner { opener, uri, dataset, fragments, .. } = &*self.inner;
        let fragment = &fragments[position];
        let Some(file) = &fragment.metadata().deletion_file else { return Ok(Arc::default()) };
        let path = relative_deletion_file_path(fragment.metadata().id, file);
        let file = DeletionFileId::new(uri, &place_of(uri, dataset, file.base_id, &path));
        if let Some(rows) = opener.loaded_deletions().get(&file) {
            return Ok(rows);
        }
        let vector = fragment.get_deletion_vector().await?;
        let rows = Arc::new(deleted_rows(vector.as_deref()));
        opener.loaded_deletions().insert(file, &rows);
        Ok(rows)
    }

    /// Returns the deleted rows of `fragment` if they have been loaded.
    pub(crate) fn loaded_deleted(&self, fragment: u32) -> Option<&DeletedRows> {
        self.inner.deleted[self.position(fragment).ok()?].get().map(Arc::as_ref)
    }

    /// Returns the addresses of the live rows at `positions`, ascending. The range may end after the last row.
    ///
    /// Errors: those of the store, which deletions are read from.
    pub async fn live_rows(&self, positions: Range<u64>) -> Result<Vec<RowAddr>> {
        self.check_all_rows_shown()?;
        let within = self.begins().into_iter().filter_map(|(begin, info)| {
            let end = begin + info.live_rows();
            let (from, to) = (positions.start.max(begin), positions.end.min(end));
            (from < to).then(|| (info, from - begin..to - begin))
        });
        self.live_rows_of_parts(within.collect()).await
    }

    /// Returns the addresses of the live rows of `fragments`, in their order.
    ///
    /// Errors: those of the store, which deletions are read from.
    pub(crate) async fn live_rows_in(&self, fragments: &[&FragmentInfo]) -> Result<Vec<RowAddr>> {
        let with_rows = fragments.iter().filter(|info| info.live_rows() > 0);
        self.live_rows_of_parts(with_rows.map(|info| (*info, 0..info.live_rows())).collect()).await
    }

    /// Returns the addresses of the live rows at positions of fragments. The positions are counted in each fragment,
    /// and none is after its last live row.
    async fn live_rows_of_parts(
        &self,
        parts: Vec<(&FragmentInfo, Range<u64>)>,
    ) -> Result<Vec<RowAddr>> {
        let deleted = self.deleted_of(parts.iter().map(|(info, _)| info.id)).await?;
        let count = parts.iter().map(|(_, positions)| positions.end - positions.start);
        let mut rows = Vec::with_capacity(count.sum::<u64>() as usize);
        for (info, positions) in parts {
            let deleted = &deleted[&info.id];
            let first = deleted.nth_live(positions.start);
            let live = (first..info.physical_rows).filter(|&offset| !deleted.contains(offset));
            let count = (positions.end - positions.start) as usize;
            rows.extend(live.take(count).map(|offset| RowAddr::new(info.id, offset)));
        }
        Ok(rows)
    }

    /// Returns the address of the live row at each of `positions`; `None` after the last row.
    ///
    /// Errors: those of the store, which deletions are read from.
    pub async fn live_rows_at(&self, positions: &[u64]) -> Result<Vec<Option<RowAddr>>> {
        self.check_all_rows_shown()?;
        let begins = self.begins();
        let found: Vec<_> =
            positions.iter().map(|&position| fragment_of(&begins, position)).collect();
        let deleted = self.deleted_of(found.iter().flatten().map(|(info, _)| info.id)).await?;
        let addr = |(info, position): (&FragmentInfo, u64)| {
            RowAddr::new(info.id, deleted[&info.id].nth_live(position))
        };
        Ok(found.into_iter().map(|found| found.map(addr)).collect())
    }

    /// Returns the position of each of `rows`, which are live.
    ///
    /// Errors: `FragmentNotFound`, `Corrupt`, and those of the store, which deletions are read from.
    pub async fn positions_of(&self, rows: &[RowAddr]) -> Result<Vec<u64>> {
        self.check_all_rows_shown()?;
        let begins: HashMap<u32, u64> =
            self.begins().into_iter().map(|(begin, info)| (info.id, begin)).collect();
        let deleted = self.deleted_of(rows.iter().map(|row| row.fragment())).await?;
        let position = |row: &RowAddr| {
            let fragment = row.fragment();
            let begin = begins.get(&fragment).ok_or_else(|| LakeError::Corrupt {
                uri: self.uri().to_owned(),
                why: format!(
                    "by its manifest, no row of fragment {fragment} is live, but {row:?} is"
                ),
            })?;
            Ok(begin + u64::from(row.offset()) - deleted[&fragment].before(row.offset()))
        };
        rows.iter().map(position).collect()
    }

    /// Returns the fragments that have live rows, each with the position of its first one.
    fn begins(&self) -> Vec<(u64, &FragmentInfo)> {
        let mut begin = 0;
        let with_begin = |info| {
            let here = begin;
            begin += FragmentInfo::live_rows(info);
            (here, info)
        };
        let all = self.fragments().iter().filter(|info| info.live_rows() > 0);
        all.map(with_begin).collect()
    }

    /// Returns the deleted rows of each of `fragments`. Reads those that have not been loaded from the store, up to 16 at
    /// the same time.
    ///
    /// Errors: `FragmentNotFound`, and those of the store.
    pub async fn deleted_of(
        &self,
        fragments: impl Iterator<Item = u32>,
    ) -> Result<HashMap<u32, Arc<DeletedRows>>> {
        let mut fragments: Vec<_> = fragments.collect();
        fragments.sort_unstable();
        fragments.dedup();
        let load = async |id| Ok((id, self.deleted(id).await?));
        let loads: Vec<_> = fragments.into_iter().map(load).collect();
        stream::iter(loads).buffered(FRAGMENTS_LOADING_MAX).try_collect().await
    }
}

/// Returns the fragment that holds the live row at `position`, and the row's position among the fragment's live rows.
fn fragment_of<'a>(
    begins: &[(u64, &'a FragmentInfo)],
    position: u64,
) -> Option<(&'a FragmentInfo, u64)> {
    let at = begins.partition_point(|(begin, _)| *begin <= position).checked_sub(1)?;
    let (begin, info) = begins[at];
    (position - begin < info.live_rows()).then_some((info, position - begin))
}
