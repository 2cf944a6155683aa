//! Fuzzes everything on a drive: superblocks, journals, and slabs with both damaged. `pack` fuzzes rows and extents'
//! indexes.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use address::{ExtentKey, PackKey, SECTOR_BYTES};
use arrow_array::{ArrayRef, BinaryArray, Int64Array};
use arrow_schema::Field;
use fuzz::{cases, damage, noise, within};
use pack::{ExtentIndex, PackLayout};
use rand::Rng;
use rand::rngs::StdRng;
use uuid::Uuid;

use super::inspect::Inspection;
use super::journal::{BlockId, Entry, Journal, Reading, Record, read, sum_of, to_block};
use super::{Superblock, lay_out};
use crate::extent::HEAD_SECTORS;

const UUID: Uuid = Uuid::from_u128(7);
const SEGMENT: u32 = 3;
const SEGMENT_SECTORS: u64 = 64;

/// Damages bytes without changing their number.
fn damage_in_place(rng: &mut StdRng, bytes: &mut [u8]) {
    let mut damaged = bytes.to_vec();
    damage(rng, &mut damaged);
    damaged.resize(bytes.len(), 0);
    bytes.copy_from_slice(&damaged);
}

#[test]
fn fuzz_superblocks() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_superblocks", 20_000, |rng| {
        let segment_sectors = rng.random_range(1..=1 << 40);
        let superblock = Superblock { uuid: UUID, segment_sectors, sectors: rng.random() };
        let mut sector = superblock.to_sector();
        assert_eq!(Superblock::from_sector(&sector), Ok(superblock));
        match rng.random_bool(0.05) {
            true => sector.fill_with(|| rng.random()),
            false => damage_in_place(rng, &mut sector[..64]),
        }
        if rng.random_bool(0.7) {
            let sum = pack::crc32c(&sector[..48]);
            sector[48..52].copy_from_slice(&sum.to_le_bytes());
        }
        match Superblock::from_sector(&sector) {
            Ok(read) => {
                accepted += 1;
                assert!(read.segment_sectors > 0);
                assert_eq!(Superblock::from_sector(&read.to_sector()), Ok(read));
            }
            Err(why) => {
                refused += 1;
                assert!(!why.to_string().is_empty());
            }
        }
    });
    assert!(refused > accepted / 100 && accepted > refused / 100, "{refused} {accepted}");
}

fn index(rng: &mut StdRng) -> ExtentIndex {
    let rows = rng.random_range(1..40);
    let column: ArrayRef = match rng.random() {
        true => Arc::new(Int64Array::from_iter_values(0..rows)),
        false => {
            let value = |_| rng.random_bool(0.8).then(|| noise(rng, 30));
            Arc::new((0..rows).map(value).collect::<BinaryArray>())
        }
    };
    let field = Arc::new(Field::new("a", column.data_type().clone(), true));
    PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap().index
}

/// Returns a segment's bytes with a journal of some blocks, the entries to be read from it, and the offset at which
/// each block begins. The first block is at the segment's end.
fn segment(rng: &mut StdRng) -> (Vec<u8>, Vec<Entry>, Vec<usize>) {
    let mut bytes = vec![0; SEGMENT_SECTORS as usize * SECTOR_BYTES];
    let epoch = rng.random();
    let (mut end, mut previous) = (bytes.len(), 0);
    let (mut entries, mut starts) = (Vec::new(), Vec::new());
    for number in 0..rng.random_range(1..6) {
        let some: Vec<_> = (0..rng.random_range(0..12))
            .map(|_| {
                let pack = PackKey(rng.random());
                let key = ExtentKey { pack, chunk: rng.random() };
                Entry { key, first: rng.random_range(0..30), index: index(rng) }
            })
            .collect();
        let record = |it: &Entry| (it.key, it.first, it.index.clone());
        let owned: Vec<_> = some.iter().map(record).collect();
        let records: Vec<_> = owned
            .iter()
            .map(|(key, first, index)| Record { key: *key, first: *first, index })
            .collect();
        let id = BlockId { uuid: UUID, segment: SEGMENT, epoch, number, log: 1, previous };
        let block = to_block(&id, &records);
        previous = sum_of(&block);
        bytes[end - block.len()..end].copy_from_slice(&block);
        end -= block.len();
        starts.push(end);
        entries.extend(some);
    }
    (bytes, entries, starts)
}

/// Reads a journal as a starting node does: reads more bytes until the journal is whole.
fn journal(bytes: &[u8]) -> Journal {
    let mut wanted = SECTOR_BYTES;
    loop {
        match read(UUID, SEGMENT, SEGMENT_SECTORS, &bytes[bytes.len() - wanted..]) {
            Reading::Whole(journal) => return journal,
            Reading::More(more) => {
                assert!(more > wanted && more <= bytes.len(), "{more}");
                wanted = more.next_multiple_of(SECTOR_BYTES);
            }
        }
    }
}

#[test]
fn fuzz_journals() {
    let (mut shorter, mut otherwise) = (0, 0);
    cases("fuzz_journals", 4_000, |rng| {
        let (good, entries, starts) = segment(rng);
        let whole = journal(&good);
        assert_eq!((whole.blocks as usize, whole.is_cut_short), (starts.len(), false));
        assert_eq!(whole.entries, entries);
        for _ in 0..6 {
            let mut bytes = good.clone();
            let number = rng.random_range(0..starts.len());
            let end = number.checked_sub(1).map_or(bytes.len(), |before| starts[before]);
            let block = &mut bytes[starts[number]..end];
            // Records are at the block's front, the trailer at its end.
            let len = block.len();
            match rng.random_range(0..3) {
                0 => damage_in_place(rng, block),
                1 => damage_in_place(rng, &mut block[len - 64..]),
                _ => block.fill_with(|| rng.random()),
            }
            let is_resealed = rng.random_bool(0.6);
            if is_resealed {
                let sum = pack::crc32c(&block[..len - 4]);
                block[len - 4..].copy_from_slice(&sum.to_le_bytes());
            }
            let read = within(bytes.len() * 8, || journal(&bytes));
            let room = SEGMENT_SECTORS - read.sectors;
            assert!(read.entries.iter().all(|entry| entry.end() <= room));
            if is_resealed {
                otherwise += usize::from(read.entries != entries);
                continue;
            }
            // The journal has only entries that were written, up to the damaged block.
            assert!(read.blocks as usize <= starts.len());
            assert_eq!(read.entries[..], entries[..read.entries.len()]);
            shorter += usize::from(read.entries.len() < entries.len());
        }
    });
    assert!(shorter > 0 && otherwise > 0, "{shorter} {otherwise}");
}

#[test]
fn fuzz_journals_of_noise() {
    cases("fuzz_journals_of_noise", 2_000, |rng| {
        let mut bytes = vec![0; SEGMENT_SECTORS as usize * SECTOR_BYTES];
        let id = BlockId { uuid: UUID, segment: SEGMENT, epoch: 1, number: 0, log: 0, previous: 0 };
        let trailer = to_block(&id, &[])[SECTOR_BYTES - 64..].to_vec();
        let sectors = rng.random_range(1..4usize);
        let (end, len) = (bytes.len(), sectors * SECTOR_BYTES);
        bytes[end - len..].fill_with(|| rng.random());
        // The block's identity, length, previous checksum and own checksum are right; everything else is arbitrary.
        bytes[end - 64..end - 24].copy_from_slice(&trailer[..40]);
        bytes[end - 24..end - 20].copy_from_slice(&(sectors as u32).to_le_bytes());
        bytes[end - 8..end - 4].fill(0);
        let sum = pack::crc32c(&bytes[end - len..end - 4]);
        bytes[end - 4..].copy_from_slice(&sum.to_le_bytes());
        let read = within(len * 64, || journal(&bytes));
        assert!(read.entries.is_empty());
    });
}

/// Damages slabs anywhere. An inspection must refuse such a slab with an error that names its path, or return plausible
/// counts.
#[test]
fn fuzz_slabs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut opened, mut refused) = (0, 0);
    cases("fuzz_slabs", 150, |rng| {
        let path = folder.path().join("slab");
        let _ = std::fs::remove_file(&path);
        let extents = rng.random_range(1..60);
        let segment_bytes = 16 * SECTOR_BYTES as u64;
        lay_out(&path, extents, rng.random_range(1..4), segment_bytes).unwrap();
        damage_slab(rng, &path);
        match Inspection::open(&path) {
            Ok(slab) => {
                opened += 1;
                let found: usize = slab.segments().iter().map(|it| it.extents()).sum();
                assert!(found <= 60 * 4, "{found}");
                let bad = slab.verify(|_| {});
                assert!(bad.len() <= found);
                assert!(bad.iter().all(|it| 0 < it.bad_sectors && it.bad_sectors <= it.sectors));
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
        }
    });
    assert!(opened > 0 && refused > 0, "{opened} {refused}");
}

/// Damages the superblock, some sectors of segments, both or neither, and sometimes cuts off the file. Damaged sectors
/// may have valid checksums.
fn damage_slab(rng: &mut StdRng, path: &Path) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let sectors = file.metadata().unwrap().len() / SECTOR_BYTES as u64;
    if rng.random_bool(0.5) {
        let mut head = vec![0; SECTOR_BYTES];
        file.read_exact_at(&mut head, 0).unwrap();
        damage_in_place(rng, &mut head[..64]);
        if rng.random_bool(0.7) {
            let sum = pack::crc32c(&head[..48]);
            head[48..52].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&head, 0).unwrap();
    }
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(HEAD_SECTORS..sectors) * SECTOR_BYTES as u64;
        let mut sector = vec![0; SECTOR_BYTES];
        file.read_exact_at(&mut sector, at).unwrap();
        let from = if rng.random() { SECTOR_BYTES - 64 } else { 0 };
        damage_in_place(rng, &mut sector[from..]);
        if rng.random() {
            let sum = pack::crc32c(&sector[..SECTOR_BYTES - 4]);
            sector[SECTOR_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&sector, at).unwrap();
    }
    if rng.random_bool(0.1) {
        file.set_len(rng.random_range(0..sectors) * SECTOR_BYTES as u64).unwrap();
    }
}
