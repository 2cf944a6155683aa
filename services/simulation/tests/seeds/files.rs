//! The index and deletion files of the tables of all runs. Their bytes do not depend on the seed.

use std::ops::Range;

use address::SECTOR_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A file of a table.
#[derive(Debug)]
pub struct File {
    pub table: &'static str,
    pub path: &'static str,
    pub bytes: u64,
}

/// All files. The first has several blocks. The sizes of the first and the last are not multiples of a sector.
pub static FILES: [File; 3] = [
    File { table: "s3://sim/vectors", path: "_indices/a/index.idx", bytes: (3 << 19) + 1234 },
    File { table: "s3://sim/vectors", path: "_indices/a/auxiliary.idx", bytes: 1 << 19 },
    File { table: "s3://sim/documents", path: "_deletions/0-1-2.bin", bytes: 777 },
];

impl File {
    /// Returns the file of a table with this path.
    pub fn find(table: &str, path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.table == table && file.path == path)
    }

    /// Returns a range of the file's bytes.
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let word = |at: u64| xxh3_64_with_seed(self.path.as_bytes(), at / 8).to_le_bytes();
        range.map(|at| word(at)[(at % 8) as usize]).collect()
    }

    /// Returns a sector, padded with zeros. Returns `None` if the sector is beyond the file's end.
    pub fn sector(&self, number: u32) -> Option<Vec<u8>> {
        let start = u64::from(number) * SECTOR_BYTES as u64;
        (start < self.bytes).then(|| {
            let mut bytes = self.read(start..self.bytes.min(start + SECTOR_BYTES as u64));
            bytes.resize(SECTOR_BYTES, 0);
            bytes
        })
    }

    /// Returns the number of sectors.
    pub fn sectors(&self) -> u32 {
        self.bytes.div_ceil(SECTOR_BYTES as u64) as u32
    }
}
