//! Reads a slab's journals, when a node starts or when the slab is inspected.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;

use address::{ByteOffset, SECTOR_BYTES};
use ring::{AlignedBuf, SlabFile};

use super::journal::{Journal, Reading, read};
use super::superblock::Superblock;
use crate::extent::{segment_start, segments};

/// The maximum number of threads that read one drive. Each has one read in flight. With 8, the journals of a million
/// extents, 60 MB, are read and decoded in 0.19 s (`docs/performance.md`).
const READERS: u32 = 8;

/// A segment's length divided by this is the length of the first read of its journal. The read covers the whole journal
/// if the segment's extents are large. In a segment of 64 MiB it has 128 KiB: enough for 15 extents of 4 MiB, whose
/// records take two sectors each if their rows have a fixed width.
const FIRST_READ_PART: u64 = 512;

/// The minimum and maximum length of the first read, in sectors. They apply to segments of less than 8 MiB and of more
/// than 512 MiB. Without the minimum, the first read of the smallest segments, of 1 MiB, would have no sectors.
const FIRST_READ_SECTORS: (u64, u64) = (4, 256);

/// A segment and its journal.
#[derive(Debug)]
pub struct FoundJournal {
    /// The segment's number.
    pub segment: u32,
    /// The journal, or why it can't be read.
    pub journal: io::Result<Journal>,
}

/// Reads the journals of all slabs in parallel.
pub fn recover_all(slabs: &[SlabFile], superblocks: &[Superblock]) -> Vec<Vec<FoundJournal>> {
    std::thread::scope(|scope| {
        let drives = slabs.iter().zip(superblocks);
        let readers: Vec<_> =
            drives.map(|(slab, superblock)| scope.spawn(|| recover(slab, superblock))).collect();
        readers.into_iter().map(joined).collect()
    })
}

/// Reads the journals of a slab's segments, several at a time. Leaves out segments that were never used. The journals
/// are in the order of their segments, because it decides which segment is reclaimed first if several can't be read.
pub fn recover(slab: &SlabFile, superblock: &Superblock) -> Vec<FoundJournal> {
    let count = segments(superblock.sectors, superblock.segment_sectors);
    in_parallel(count, || {
        let mut buf = AlignedBuf::for_sectors(0);
        move |segment| {
            let journal = segment_journal(slab, superblock, segment, &mut buf);
            let is_unused =
                matches!(&journal, Ok(journal) if journal.blocks == 0 && !journal.is_cut_short);
            (!is_unused).then_some(FoundJournal { segment, journal }).into_iter().collect()
        }
    })
}

/// Calls workers, one per thread, with the numbers from 0 to `count - 1`. Returns their results in the order of the
/// numbers.
pub fn in_parallel<T: Send, W: FnMut(u32) -> Vec<T>>(
    count: u32,
    worker: impl Fn() -> W + Sync,
) -> Vec<T> {
    let next = AtomicU32::new(0);
    let work = || {
        let mut work = worker();
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let numbers = numbers.take_while(|&number| number < count);
        numbers.map(|number| (number, work(number))).collect::<Vec<_>>()
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..READERS.min(count)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(joined).collect()
    });
    results.sort_unstable_by_key(|&(number, _)| number);
    results.into_iter().flat_map(|(_, results)| results).collect()
}

/// Waits for a thread's result. If the thread panicked, the panic continues in the caller.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Reads one segment's journal into a buffer that is reused.
fn segment_journal(
    slab: &SlabFile,
    superblock: &Superblock,
    segment: u32,
    buf: &mut AlignedBuf,
) -> io::Result<Journal> {
    let segment_sectors = superblock.segment_sectors;
    let (least, most) = FIRST_READ_SECTORS;
    let first = (segment_sectors / FIRST_READ_PART).clamp(least, most).min(segment_sectors);
    let end = segment_start(segment, segment_sectors).plus(segment_sectors).byte_offset().0;
    let mut wanted = first as usize * SECTOR_BYTES;
    loop {
        if buf.len() != wanted {
            *buf = AlignedBuf::zeroed(wanted);
        }
        slab.read_at(ByteOffset(end - wanted as u64), buf)?;
        match read(superblock.uuid, segment, segment_sectors, buf) {
            Reading::Whole(journal) => return Ok(journal),
            // Reads at least twice as much as before, so that a long journal takes few reads.
            Reading::More(more) => {
                let doubled = more.max(wanted * 2);
                wanted = doubled.min(segment_sectors as usize * SECTOR_BYTES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_numbers() {
        // Each thread gets one of the first numbers, and then one of the others.
        let threads = Barrier::new(READERS as usize);
        let work = |number: u32| {
            threads.wait();
            vec![number]
        };
        let results = in_parallel(2 * READERS, || work);
        assert_eq!(results, (0..2 * READERS).collect::<Vec<_>>());
    }
}
