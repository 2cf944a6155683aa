//! What journals say, as the filler and the directory have it.

use std::sync::Arc;

use address::DriveNo;

use super::eviction::Log;
use super::segments::{Kept, SegmentNo};
use crate::directory::{ByKey, Extent};
use crate::slab::journal::Entry;
use crate::slab::{Found, segment_start};

/// What is taken over from the drives.
pub struct Restored {
    /// The newest of each name.
    pub extents: ByKey<Arc<Extent>>,
    /// Segments in use.
    pub kept: Vec<Kept>,
    /// Segments whose journal can't be read.
    pub unreadable: Vec<SegmentNo>,
}

/// Puts together what each drive's journals hold.
pub fn plan(found: Vec<Vec<Found>>, segment_sectors: u64) -> Restored {
    let (mut kept, mut unreadable, mut journals) = (Vec::new(), Vec::new(), Vec::new());
    for (drive, found) in found.into_iter().enumerate() {
        for Found { segment: index, journal } in found {
            let segment = SegmentNo { drive: DriveNo(drive as u16), index };
            match journal {
                // Nobody knows which use of the segment what is behind it speaks of.
                Ok(journal) if journal.blocks == 0 => {
                    tracing::warn!(?segment, "a segment's journal begins with a damaged block");
                    unreadable.push(segment);
                }
                Ok(journal) => {
                    kept.push(Kept {
                        segment,
                        epoch: journal.epoch,
                        log: if journal.log == Log::Main as u32 { Log::Main } else { Log::Small },
                        used_sectors: journal.entries.iter().map(Entry::end).max().unwrap_or(0),
                        journal_sectors: journal.sectors,
                        blocks: journal.blocks,
                        sum: journal.sum,
                    });
                    journals.push((segment, journal));
                }
                Err(error) => {
                    tracing::warn!(?segment, %error, "a segment's journal can't be read: what it holds is lost");
                    unreadable.push(segment);
                }
            }
        }
    }
    // An extent that was found wrong and filled again is there twice; the later one counts.
    journals.sort_by_key(|(_, journal)| journal.epoch);
    let count = journals.iter().map(|(_, journal)| journal.entries.len()).sum();
    let mut extents = ByKey::default();
    extents.reserve(count);
    for (segment, journal) in journals {
        let start = segment_start(segment.index, segment_sectors);
        for Entry { key, first, index } in journal.entries {
            let first = start.plus(first.into());
            let extent = Extent { key, index, drive: segment.drive, first, segment };
            extents.insert(key, Arc::new(extent));
        }
    }
    Restored { extents, kept, unreadable }
}

#[cfg(test)]
mod tests {
    use std::io;

    use address::{ExtentKey, PackKey};
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field};
    use pack::PackLayout;

    use super::*;
    use crate::slab::HEAD_SECTORS;
    use crate::slab::journal::Journal;

    fn entry(chunk: u32, first: u32) -> Entry {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..600));
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let index = PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap().index;
        Entry { key: ExtentKey { pack: PackKey(1), chunk }, first, index }
    }

    fn found(segment: u32, epoch: u64, entries: Vec<Entry>) -> Found {
        let journal = Journal { epoch, blocks: 1, sectors: 1, entries, ..Journal::default() };
        Found { segment, journal: Ok(journal) }
    }

    #[test]
    fn the_later_of_two_extents_of_a_name_counts() {
        let bad = Found { segment: 9, journal: Err(io::ErrorKind::Other.into()) };
        let drives = vec![
            vec![found(0, 5, vec![entry(0, 0), entry(1, 2)]), bad],
            vec![found(2, 4, vec![entry(1, 0), entry(2, 4)]), found(1, 6, vec![])],
        ];
        let restored = plan(drives, 100);
        let mut places: Vec<_> =
            restored.extents.values().map(|it| (it.key.chunk, it.drive.0, it.first.0)).collect();
        places.sort_unstable();
        let head = HEAD_SECTORS;
        assert_eq!(places, [(0, 0, head), (1, 0, head + 2), (2, 1, head + 204)]);
        let used: Vec<_> =
            restored.kept.iter().map(|kept| (kept.epoch, kept.used_sectors)).collect();
        assert_eq!(used, [(5, 4), (4, 6), (6, 0)]);
        assert_eq!(restored.unreadable, [SegmentNo { drive: DriveNo(0), index: 9 }]);
    }
}
