//! Turns the journals that were read at the start into extents and segments. The steps of a start, in order:
//!
//! ```text
//! drive/slab.rs: writes superblocks ─► drive/recover.rs, journal.rs: read all journals ─► combined here
//!     ─► fetch/replica.rs: every core's directory ─► the node serves ─► books/cache_books.rs: the books
//! ```

use std::sync::Arc;

use address::DriveNo;

use crate::cache::books::{EMPTY_BLOCK_SECTORS, Log, RestoredSegment};
use crate::drive::journal::{Entry, Journal};
use crate::drive::{FoundJournal, joined};
use crate::extent::{Extent, SegmentNo, segment_start};

/// Extents and segments found on the drives.
pub struct Restored {
    /// The extents, in the order of their segments' epochs and, within a segment, of their records. If two have the
    /// same name, the later one counts.
    pub extents: Vec<Arc<Extent>>,
    /// Segments that have a journal.
    pub segments: Vec<RestoredSegment>,
    /// Segments whose journal can't be read, begins with a damaged block, or contradicts itself.
    pub unreadable: Vec<SegmentNo>,
}

/// Combines the journals of all drives.
pub fn combine(found: Vec<Vec<FoundJournal>>, segment_sectors: u64) -> Restored {
    let (mut segments, mut unreadable, mut journals) = (Vec::new(), Vec::new(), Vec::new());
    for (drive, found) in found.into_iter().enumerate() {
        for FoundJournal { segment: index, journal } in found {
            let segment = SegmentNo { drive: DriveNo(drive as u16), index };
            match journal {
                // The first block is damaged, and the blocks after it may belong to an earlier use of the segment.
                Ok(journal) if journal.blocks == 0 => {
                    tracing::warn!(?segment, "a segment's journal begins with a damaged block");
                    unreadable.push(segment);
                }
                Ok(journal) if !is_consistent(&journal) => {
                    tracing::warn!(
                        ?segment,
                        "a segment's journal contradicts itself: its extents are lost"
                    );
                    unreadable.push(segment);
                }
                Ok(journal) => {
                    segments.push(RestoredSegment {
                        segment,
                        epoch: journal.epoch,
                        log: Log::of_number(journal.log),
                        used_sectors: journal.entries.iter().map(Entry::end).max().unwrap_or(0),
                        journal_sectors: journal.sectors,
                        blocks: journal.blocks,
                        sum: journal.sum,
                    });
                    journals.push((segment, journal));
                }
                Err(error) => {
                    tracing::warn!(?segment, %error, "a segment's journal can't be read: its extents are lost");
                    unreadable.push(segment);
                }
            }
        }
    }
    // An extent that was moved, or found damaged and filled again, may be in two journals. The later one counts.
    journals.sort_by_key(|(_, journal)| journal.epoch);
    Restored { extents: extents_of(journals, segment_sectors), segments, unreadable }
}

/// Returns whether a node can have written this journal: no two extents overlap, and a journal without extents has only
/// the block with which an emptied segment begins. The books rely on both.
fn is_consistent(journal: &Journal) -> bool {
    let mut ends: Vec<_> =
        journal.entries.iter().map(|entry| (u64::from(entry.first), entry.end())).collect();
    ends.sort_unstable();
    let are_apart = ends.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    are_apart && (!ends.is_empty() || journal.sectors <= EMPTY_BLOCK_SECTORS)
}

/// Creates the extents of the journals, in order. Runs on several threads, because a million allocations take long.
fn extents_of(mut journals: Vec<(SegmentNo, Journal)>, segment_sectors: u64) -> Vec<Arc<Extent>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = journals.len().div_ceil(threads).max(1);
    let extents = |journals: Vec<(SegmentNo, Journal)>| {
        let of_journal = |(segment, journal): (SegmentNo, Journal)| {
            let start = segment_start(segment.index, segment_sectors);
            journal.entries.into_iter().map(move |Entry { key, first, index }| {
                let first = start.plus(first.into());
                Arc::new(Extent { key, index, drive: segment.drive, first, segment })
            })
        };
        journals.into_iter().flat_map(of_journal).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let mut shares = Vec::new();
        while !journals.is_empty() {
            let rest = journals.split_off(share.min(journals.len()));
            let these = std::mem::replace(&mut journals, rest);
            shares.push(scope.spawn(move || extents(these)));
        }
        shares.into_iter().flat_map(joined).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use address::{ExtentKey, PackKey};
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field};
    use pack::PackLayout;

    use super::*;
    use crate::extent::HEAD_SECTORS;

    fn entry(chunk: u32, first: u32) -> Entry {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..600));
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let index = PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap().index;
        Entry { key: ExtentKey { pack: PackKey(1), chunk }, first, index }
    }

    fn found(segment: u32, epoch: u64, entries: Vec<Entry>) -> FoundJournal {
        let journal = Journal { epoch, blocks: 1, sectors: 1, entries, ..Journal::default() };
        FoundJournal { segment, journal: Ok(journal) }
    }

    #[test]
    fn journals_that_no_node_writes_are_given_up() {
        let overlapping = found(0, 5, vec![entry(0, 0), entry(1, 1)]);
        let mut without_extents = found(1, 6, vec![]);
        without_extents.journal.as_mut().unwrap().sectors = 2;
        let restored = combine(vec![vec![overlapping, without_extents]], 100);
        assert!(restored.extents.is_empty() && restored.segments.is_empty());
        let segment = |index| SegmentNo { drive: DriveNo(0), index };
        assert_eq!(restored.unreadable, [segment(0), segment(1)]);
    }

    #[test]
    fn extents_come_in_the_order_in_which_they_were_written() {
        let bad = FoundJournal { segment: 9, journal: Err(io::ErrorKind::Other.into()) };
        let drives = vec![
            vec![found(0, 5, vec![entry(0, 0), entry(1, 2)]), bad],
            vec![found(2, 4, vec![entry(1, 0), entry(2, 4)]), found(1, 6, vec![])],
        ];
        let restored = combine(drives, 100);
        let places: Vec<_> =
            restored.extents.iter().map(|it| (it.key.chunk, it.drive.0, it.first.0)).collect();
        let head = HEAD_SECTORS;
        let (older, newer) =
            ([(1, 1, head + 200), (2, 1, head + 204)], [(0, 0, head), (1, 0, head + 2)]);
        assert_eq!(places, [older, newer].concat());
        let used: Vec<_> = restored.segments.iter().map(|it| (it.epoch, it.used_sectors)).collect();
        assert_eq!(used, [(5, 4), (4, 6), (6, 0)]);
        assert_eq!(restored.unreadable, [SegmentNo { drive: DriveNo(0), index: 9 }]);
    }
}
