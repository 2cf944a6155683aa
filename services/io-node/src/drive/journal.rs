//! A segment's journal, from which its extents are found again after a restart.
//!
//! ```text
//! segment | extent | extent | extent | ... free ... | block 2 | block 1 | block 0 |
//! block   | record | record | ... | zeros | trailer |    whole sectors
//! ```
//!
//! Extents are added from the segment's front, blocks from its end, each block in front of the one before. So a journal
//! is read backwards from a known place. It is reclaimed with its segment: there is no log to be trimmed, and no
//! checkpoint. Little-endian:
//!
//! ```text
//! record                                         trailer, the last 64 bytes of a block
//!  0  u128 pack's key                             0  8 bytes  magic "BIREMEJ1"
//! 16  u32  chunk                                  8  16 bytes uuid of the slab
//! 20  u32  first sector, in the segment          24  u64      epoch of the segment
//! 24  u32  bytes of the index                    32  u32      number of the segment
//! 28  the extent's index (`pack`)                36  u32      number of the block in the segment, from 0
//!                                                40  u32      number of sectors of the block
//!                                                44  u32      number of records
//!                                                48  u32      bytes of the records
//!                                                52  u32      the log that the segment is in
//!                                                56  u32      checksum of the block before, 0 for the first
//!                                                60  u32      CRC32C of the block's bytes before this field
//! ```
//!
//! Each time a segment is filled anew it gets a higher epoch, and block 0 of that epoch is flushed to the drive before
//! anything else of the segment is overwritten. So an old block is never taken for a new one, and a journal never names
//! bytes that another extent has overwritten. Each block contains the checksum of the one before. So if a damaged block
//! was replaced by a new one, the blocks that followed the damaged one are not taken for successors of the new one.

use address::{ExtentKey, PackKey, SECTOR_BYTES};
use pack::ExtentIndex;
use ring::AlignedBuf;
use uuid::Uuid;

const MAGIC: [u8; 8] = *b"BIREMEJ1";
const TRAILER_BYTES: usize = 64;
const RECORD_HEAD_BYTES: usize = 28;

/// The maximum number of sectors that the records of several extents take in one block; the block's trailer may take
/// one more. A block of one extent may be longer. Each block is written in one operation. 256 sectors are 1 MiB, and
/// hold the records of 17,000 extents of one sector each: such a record has 60 bytes.
pub const BLOCK_SECTORS_MAX: u64 = 256;

/// Identifies a block of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    /// The slab's uuid.
    pub uuid: Uuid,
    /// The segment's number.
    pub segment: u32,
    /// The epoch of the segment's use.
    pub epoch: u64,
    /// The block's number. The block at the segment's end has number 0.
    pub number: u32,
    /// The segment's log.
    pub log: u32,
    /// The checksum of the block before; 0 for the first.
    pub previous: u32,
}

/// An extent to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The extent's name.
    pub key: ExtentKey,
    /// Its first sector, counted from the segment's first.
    pub first: u32,
    /// The part of the extent that stays in RAM.
    pub index: &'a ExtentIndex,
}

/// An extent as it was read from a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The extent's name.
    pub key: ExtentKey,
    /// Its first sector, counted from the segment's first.
    pub first: u32,
    /// The part of the extent that stays in RAM.
    pub index: ExtentIndex,
}

impl Entry {
    /// The extent's length in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.index.sectors()) * SECTOR_BYTES as u64
    }

    /// The sector after its last, counted from the segment's first.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.index.sectors())
    }
}

/// A segment's journal as it was read from the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// The epoch of the segment's use; 0 if there is no block.
    pub epoch: u64,
    /// The segment's log, from its last block.
    pub log: u32,
    /// The number of blocks.
    pub blocks: u32,
    /// The checksum of the last block; 0 if there is none.
    pub sum: u32,
    /// Whether the last valid block is followed by a block with an intact trailer and damaged contents, which was torn
    /// when the node ended, or damaged since. A block whose trailer is lost is not noticed.
    pub is_cut_short: bool,
    /// Sectors of all blocks.
    pub sectors: u64,
    /// Extents, oldest first.
    pub entries: Vec<Entry>,
}

/// The result of reading a journal.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// The whole journal.
    Whole(Journal),
    /// The journal begins before the given bytes. To read it, at least this many of the segment's last bytes are
    /// needed.
    More(usize),
}

/// The length of a record in bytes.
pub fn record_bytes(index: &ExtentIndex) -> usize {
    RECORD_HEAD_BYTES + index.bytes_len()
}

/// Returns the number of sectors of a block whose records have `records_bytes` bytes.
pub fn block_sectors(records_bytes: usize) -> u64 {
    address::sectors_for((records_bytes + TRAILER_BYTES) as u64)
}

/// Encodes a block.
pub fn to_block(id: &BlockId, records: &[Record<'_>]) -> AlignedBuf {
    let mut bytes = Vec::new();
    for record in records {
        let index = record.index.to_bytes();
        bytes.extend(record.key.pack.0.to_le_bytes());
        for word in [record.key.chunk, record.first, index.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(index);
    }
    let sectors = block_sectors(bytes.len());
    let mut block = AlignedBuf::for_sectors(sectors as usize);
    block[..bytes.len()].copy_from_slice(&bytes);
    let at = block.len() - TRAILER_BYTES;
    let mut put = |from: usize, bytes: &[u8]| {
        block[at + from..at + from + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &MAGIC);
    put(8, id.uuid.as_bytes());
    put(24, &id.epoch.to_le_bytes());
    let (sectors, count, len) = (sectors as u32, records.len() as u32, bytes.len() as u32);
    let words = [id.segment, id.number, sectors, count, len, id.log, id.previous];
    for (word, from) in words.iter().zip((32..).step_by(4)) {
        put(from, &word.to_le_bytes());
    }
    let end = block.len() - 4;
    let sum = pack::crc32c(&block[..end]);
    block[end..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Returns the checksum of a block, which the next block contains.
pub fn sum_of(block: &[u8]) -> u32 {
    block.last_chunk::<4>().map_or(0, |sum| u32::from_le_bytes(*sum))
}

/// Reads a segment's journal from the segment's last bytes, which are whole sectors. The journal ends where it is not
/// followed by another valid block of this segment.
///
/// Entries that overlap the journal or exceed the segment are left out.
pub fn read(uuid: Uuid, segment: u32, segment_sectors: u64, tail: &[u8]) -> Reading {
    let segment_bytes = segment_sectors as usize * SECTOR_BYTES;
    let mut journal = Journal::default();
    let mut end = tail.len();
    loop {
        let Some(trailer) = tail[..end].last_chunk::<TRAILER_BYTES>() else {
            if tail.len() < segment_bytes {
                return Reading::More(tail.len() + SECTOR_BYTES);
            }
            break;
        };
        let Some(head) = Head::from_trailer(trailer) else { break };
        let is_first = journal.blocks == 0;
        let is_next = head.uuid == uuid
            && head.segment == segment
            && head.number == journal.blocks
            && (is_first || head.epoch == journal.epoch)
            && head.previous == journal.sum
            && (1..=segment_sectors).contains(&head.sectors);
        if !is_next {
            break;
        }
        let len = head.sectors as usize * SECTOR_BYTES;
        let Some(start) = end.checked_sub(len) else {
            let wanted = tail.len() - end + len;
            match wanted <= segment_bytes {
                true => return Reading::More(wanted),
                false => break,
            }
        };
        let Some(entries) = entries(&tail[start..end], &head) else {
            journal.is_cut_short = true;
            break;
        };
        journal.epoch = head.epoch;
        journal.log = head.log;
        journal.sum = head.sum;
        journal.blocks += 1;
        journal.sectors += head.sectors;
        journal.entries.extend(entries);
        end = start;
    }
    let room = segment_sectors - journal.sectors.min(segment_sectors);
    journal.entries.retain(|entry| entry.end() <= room);
    Reading::Whole(journal)
}

/// The fields of a trailer.
struct Head {
    uuid: Uuid,
    epoch: u64,
    segment: u32,
    number: u32,
    sectors: u64,
    records: u32,
    records_bytes: u32,
    log: u32,
    previous: u32,
    sum: u32,
}

impl Head {
    fn from_trailer(trailer: &[u8; TRAILER_BYTES]) -> Option<Self> {
        let (magic, rest) = trailer.split_first_chunk::<8>()?;
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let (epoch, rest) = rest.split_first_chunk::<8>()?;
        let mut words = rest.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut word = || words.next();
        (*magic == MAGIC).then_some(())?;
        Some(Self {
            uuid: Uuid::from_bytes(*uuid),
            epoch: u64::from_le_bytes(*epoch),
            segment: word()?,
            number: word()?,
            sectors: word()?.into(),
            records: word()?,
            records_bytes: word()?,
            log: word()?,
            previous: word()?,
            sum: word()?,
        })
    }
}

/// Reads the records of a block; `None` if the block is damaged.
fn entries(block: &[u8], head: &Head) -> Option<Vec<Entry>> {
    let (checked, _) = block.split_last_chunk::<4>()?;
    if pack::crc32c(checked) != head.sum {
        return None;
    }
    let mut rest = block[..block.len() - TRAILER_BYTES].get(..head.records_bytes as usize)?;
    // The count is not trusted: memory is reserved for no more records than the bytes can have.
    let mut entries =
        Vec::with_capacity((head.records as usize).min(rest.len() / RECORD_HEAD_BYTES));
    for _ in 0..head.records {
        let (pack, after) = rest.split_first_chunk::<16>()?;
        let (words, after) = after.split_first_chunk::<12>()?;
        let [chunk, first, len] =
            [0, 1, 2].map(|at| u32::from_le_bytes(words.as_chunks::<4>().0[at]));
        let (index, after) = after.split_at_checked(len as usize)?;
        let key = ExtentKey { pack: PackKey(u128::from_le_bytes(*pack)), chunk };
        entries.push(Entry { key, first, index: ExtentIndex::from_bytes(index).ok()? });
        rest = after;
    }
    rest.is_empty().then_some(entries)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field};
    use pack::PackLayout;
    use proptest::prelude::*;

    use super::*;

    const SEGMENT_SECTORS: u64 = 64;
    const UUID: Uuid = Uuid::from_u128(7);

    fn index(rows: i64) -> ExtentIndex {
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap().index
    }

    fn key(chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey(1 << 100 | 5), chunk }
    }

    fn id(epoch: u64, number: u32, previous: u32) -> BlockId {
        BlockId { uuid: UUID, segment: 3, epoch, number, log: 1, previous }
    }

    /// Returns a segment with a journal, and the entries to be read back from it. `blocks` has the number of records of
    /// each block.
    fn segment(epoch: u64, blocks: &[u32]) -> (Vec<u8>, Vec<Entry>) {
        let mut bytes = vec![0; SEGMENT_SECTORS as usize * SECTOR_BYTES];
        let (mut end, mut next, mut entries) = (bytes.len(), 0, Vec::new());
        let mut previous = 0;
        for (number, &count) in blocks.iter().enumerate() {
            let indexes: Vec<_> = (0..count).map(|row| index(700 + i64::from(row))).collect();
            let mut records = Vec::new();
            for index in &indexes {
                records.push(Record { key: key(next), first: next * 2, index });
                entries.push(Entry { key: key(next), first: next * 2, index: index.clone() });
                next += 1;
            }
            let block = to_block(&id(epoch, number as u32, previous), &records);
            previous = sum_of(&block);
            bytes[end - block.len()..end].copy_from_slice(&block);
            end -= block.len();
        }
        (bytes, entries)
    }

    fn whole(tail: &[u8]) -> Journal {
        match read(UUID, 3, SEGMENT_SECTORS, tail) {
            Reading::Whole(journal) => journal,
            more => panic!("{more:?}"),
        }
    }

    #[test]
    fn a_block_is_as_drawn() {
        let index = index(700);
        let block = to_block(&id(9, 2, 77), &[Record { key: key(4), first: 11, index: &index }]);
        assert_eq!(block.len(), SECTOR_BYTES);
        assert_eq!(block[..16], (1u128 << 100 | 5).to_le_bytes());
        let record = RECORD_HEAD_BYTES + index.to_bytes().len();
        assert_eq!(record, record_bytes(&index));
        assert_eq!(block[16..24], [4, 0, 0, 0, 11, 0, 0, 0]);
        assert_eq!(block[28..record], index.to_bytes());
        let trailer = &block[SECTOR_BYTES - 64..];
        assert_eq!(trailer[..8], *b"BIREMEJ1");
        assert_eq!(trailer[8..24], *UUID.as_bytes());
        let words: Vec<_> =
            trailer[24..60].chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words, [9, 0, 3, 2, 1, 1, record as u32, 1, 77]);
    }

    #[test]
    fn a_journal_is_read_back_however_much_is_read_at_a_time() {
        let (bytes, entries) = segment(5, &[1, 0, 9, 2]);
        let journal = whole(&bytes);
        assert_eq!((journal.epoch, journal.log), (5, 1));
        assert_eq!((journal.blocks, journal.sectors), (4, 4));
        assert_eq!(journal.entries, entries);
        let mut wanted = SECTOR_BYTES;
        loop {
            match read(UUID, 3, SEGMENT_SECTORS, &bytes[bytes.len() - wanted..]) {
                Reading::Whole(read) => break assert_eq!(read, journal),
                Reading::More(more) => {
                    assert!(more > wanted && more <= bytes.len());
                    wanted = more;
                }
            }
        }
    }

    #[test]
    fn blocks_of_others_end_a_journal() {
        let (mut bytes, entries) = segment(5, &[1, 1]);
        assert_eq!(read(Uuid::from_u128(8), 3, SEGMENT_SECTORS, &bytes), empty());
        assert_eq!(read(UUID, 4, SEGMENT_SECTORS, &bytes), empty());
        // The segment was filled anew: its old blocks do not belong to the new journal.
        let end = bytes.len();
        bytes[end - SECTOR_BYTES..].copy_from_slice(&to_block(&id(6, 0, 0), &[]));
        let emptied = whole(&bytes);
        assert_eq!((emptied.epoch, emptied.blocks, emptied.entries.len()), (6, 1, 0));
        // A new block in place of a damaged one does not bring back the blocks behind it.
        let (mut bytes, _) = segment(5, &[1, 1, 1]);
        let anew = to_block(&id(5, 0, 0), &[]);
        bytes[end - SECTOR_BYTES..].copy_from_slice(&anew);
        assert_eq!(whole(&bytes).blocks, 1);
        let (bytes, _) = segment(5, &[1, 1]);
        assert_eq!(whole(&bytes).entries, entries);
    }

    fn empty() -> Reading {
        Reading::Whole(Journal::default())
    }

    #[test]
    fn an_extent_that_lies_over_the_journal_is_left_out() {
        let index = index(700);
        let records =
            [61, 62, u32::MAX].map(|first| Record { key: key(first), first, index: &index });
        let mut bytes = vec![0; SEGMENT_SECTORS as usize * SECTOR_BYTES];
        let end = bytes.len();
        bytes[end - SECTOR_BYTES..].copy_from_slice(&to_block(&id(1, 0, 0), &records));
        let kept: Vec<_> = whole(&bytes).entries.iter().map(|entry| entry.first).collect();
        assert_eq!(kept, [61]);
    }

    proptest! {
        #[test]
        fn a_torn_or_flipped_block_ends_the_journal_before_it(
            blocks in prop::collection::vec(0u32..30, 1..6),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let (mut bytes, entries) = segment(5, &blocks);
            let sectors = whole(&bytes).sectors as usize;
            let first = bytes.len() - sectors * SECTOR_BYTES;
            let at = first + at.index(sectors * SECTOR_BYTES);
            bytes[at] ^= 1 << bit;
            let read = whole(&bytes);
            prop_assert!(read.blocks < blocks.len() as u32);
            prop_assert!(read.is_cut_short || at % SECTOR_BYTES >= SECTOR_BYTES - TRAILER_BYTES);
            prop_assert_eq!(&read.entries[..], &entries[..read.entries.len()]);
        }

        #[test]
        fn no_bytes_make_it_panic(mut tail in prop::collection::vec(any::<u8>(), 4096..=8192)) {
            let len = tail.len() / SECTOR_BYTES * SECTOR_BYTES;
            let _ = read(UUID, 3, SEGMENT_SECTORS, &tail[..len]);
            // The checksum, identity and length are right; everything else is arbitrary.
            let good = to_block(&id(1, 0, 0), &[]);
            for at in (0..24).chain(32..40) {
                tail[len - TRAILER_BYTES + at] = good[good.len() - TRAILER_BYTES + at];
            }
            let sectors = 1 + (tail[0] % 2) as usize;
            let start = len.saturating_sub(sectors * SECTOR_BYTES);
            tail[len - 24..len - 20].copy_from_slice(&(sectors as u32).to_le_bytes());
            let sum = pack::crc32c(&tail[start..len - 4]);
            tail[len - 4..len].copy_from_slice(&sum.to_le_bytes());
            let _ = read(UUID, 3, SEGMENT_SECTORS, &tail[..len]);
        }
    }
}
