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

/// The bytes by which a file is overwritten are this many more than those that it has at first.
const OVERWRITTEN_MORE: u64 = 5000;

/// The contents of a file: its own bytes, or others that replace them for a while.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    file: &'static File,
    pub is_other: bool,
}

impl File {
    /// Returns the file of a table with this path.
    pub fn find(table: &str, path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.table == table && file.path == path)
    }

    /// Returns the file's own content, or with `is_other` that by which it is overwritten.
    pub fn content(&'static self, is_other: bool) -> Content {
        Content { file: self, is_other }
    }

    /// Returns the content of this size.
    pub fn content_of(&'static self, bytes: u64) -> Option<Content> {
        [false, true]
            .map(|is_other| self.content(is_other))
            .into_iter()
            .find(|it| it.bytes() == bytes)
    }
}

impl Content {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.file.bytes + if self.is_other { OVERWRITTEN_MORE } else { 0 }
    }

    /// Returns a range of the bytes.
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let seed = |at: u64| at / 8 + (u64::from(self.is_other) << 60);
        let word = |at: u64| xxh3_64_with_seed(self.file.path.as_bytes(), seed(at)).to_le_bytes();
        let words = (range.start / 8..range.end.div_ceil(8)).flat_map(|number| word(8 * number));
        words.skip((range.start % 8) as usize).take((range.end - range.start) as usize).collect()
    }

    /// Returns a sector, padded with zeros. Returns `None` if the sector is beyond the end.
    pub fn sector(&self, number: u32) -> Option<Vec<u8>> {
        let start = u64::from(number) * SECTOR_BYTES as u64;
        (start < self.bytes()).then(|| {
            let mut bytes = self.read(start..self.bytes().min(start + SECTOR_BYTES as u64));
            bytes.resize(SECTOR_BYTES, 0);
            bytes
        })
    }

    /// Returns the number of sectors.
    pub fn sectors(&self) -> u32 {
        self.bytes().div_ceil(SECTOR_BYTES as u64) as u32
    }
}
