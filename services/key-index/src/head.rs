//! The head of a persisted run. All numbers are little-endian.
//!
//! ```text
//!   0  8 bytes  "BIREMEKX"
//!   8  u32      version of the format, 1
//!  12  u32      bytes of the head, in whole pages of 4,096
//!  16  u64      seed
//!  24  u8       key type: 1 integer, 2 text, 3 bytes, 4 decimal, 5 date, 6 timestamp
//!  25  i8       scale of a decimal, digits of a timestamp's second, else 0
//!  26  u8       lines: 1 narrow, 2 wide
//!  27  u8       bits of each hash that the run keeps
//!  28  u32      pages of buckets
//!  32  u64      entries, spilled ones included
//!  40  u64      spilled entries
//!  48  u32      files
//!  52  u32      CRC32C of all other bytes of the head
//!  56  files    u32 fragment, u32 rows, u16 length of the path, the path in UTF-8
//!      u32      × pages of buckets and of spilled entries: CRC32C of each
//!      0        to the end of the page
//! ```

use crc_fast::{CrcAlgorithm, Digest, checksum};

use crate::KeyIndexError;
use crate::files::{DataFile, Files};
use crate::geometry::{FormName, Geometry, Spot};
use crate::key_type::KeyType;
use crate::line::PAGE_BYTES;
use crate::spill_bytes::SPILLED_A_PAGE;

const MAGIC: [u8; 8] = *b"BIREMEKX";
const VERSION: u32 = 1;
const CRC_AT: usize = 52;
const FIXED_BYTES: usize = 56;

/// The bytes of a file in the list of files, besides its path.
const FILE_BYTES: usize = 10;

/// The decoded head of a run.
#[derive(Debug)]
pub struct Head {
    pub seed: u64,
    pub key_type: KeyType,
    pub geometry: Geometry,
    pub entries: u64,
    pub spilled: u64,
    pub files: Files,
    /// The CRC32C of each page, those of buckets first.
    pub checksums: Vec<u32>,
}

/// The facts in the head of a run that callers of this crate need.
#[derive(Clone, Copy, Debug)]
pub struct HeadFacts<'a> {
    /// The data files that the run covers.
    pub files: &'a [DataFile],
    /// The seed of the run's hashes.
    pub seed: u64,
    /// The type of the run's keys.
    pub key_type: KeyType,
    /// The number of bits of each hash that the run keeps.
    pub hash_bits: u32,
}

impl Head {
    /// Returns the head's facts about the run: its files, seed and key type.
    pub fn facts(&self) -> HeadFacts<'_> {
        HeadFacts {
            files: self.files.list(),
            seed: self.seed,
            key_type: self.key_type,
            hash_bits: self.geometry.hash_bits(),
        }
    }

    /// Returns the head's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let files = self.files.list();
        let paths: usize = files.iter().map(|file| FILE_BYTES + file.path.len()).sum();
        let bytes = FIXED_BYTES + paths + 4 * self.checksums.len();
        let len = bytes.next_multiple_of(PAGE_BYTES);
        let mut out = Vec::with_capacity(len);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((len as u32).to_le_bytes());
        out.extend(self.seed.to_le_bytes());
        out.extend(self.key_type.to_bytes());
        out.push(match self.geometry.form() {
            FormName::Narrow => 1,
            FormName::Wide => 2,
        });
        out.push(self.geometry.hash_bits() as u8);
        out.extend(self.geometry.pages().to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        out.extend(self.spilled.to_le_bytes());
        out.extend((files.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        for file in files {
            out.extend(file.fragment.to_le_bytes());
            out.extend(file.rows.to_le_bytes());
            out.extend((file.path.len() as u16).to_le_bytes());
            out.extend(file.path.as_bytes());
        }
        out.extend(self.checksums.iter().flat_map(|sum| sum.to_le_bytes()));
        out.resize(len, 0);
        let sum = head_checksum(&out).to_le_bytes();
        out[CRC_AT..FIXED_BYTES].copy_from_slice(&sum);
        out
    }

    /// Returns the length of the head that begins with `bytes`.
    pub fn len_of(bytes: &[u8]) -> Result<usize, KeyIndexError> {
        let (version, len) = Self::version_and_len(bytes).map_err(KeyIndexError::head)?;
        if version != VERSION {
            return Err(KeyIndexError::UnknownVersion { found: version, known: VERSION });
        }
        match len > 0 && len.is_multiple_of(PAGE_BYTES) {
            true => Ok(len),
            false => Err(KeyIndexError::head("its head has an impossible length")),
        }
    }

    /// Returns the memory that the decoded head takes at most, if the head begins with `bytes`, which must have at least
    /// the bytes before the list of files. The numbers in `bytes` are not checked before the whole head is there, so the
    /// head's length bounds them.
    ///
    /// # Errors
    /// If `bytes` are too few, or no head.
    pub fn decoded_bytes_max(bytes: &[u8]) -> Result<u64, KeyIndexError> {
        let len = Self::len_of(bytes)?;
        let (spilled, files) = Self::spilled_and_files(bytes).map_err(KeyIndexError::head)?;
        let rest = (len - FIXED_BYTES) as u64;
        let files = u64::from(files).min(rest / FILE_BYTES as u64);
        let spill_pages = spilled.div_ceil(SPILLED_A_PAGE as u64).min(rest / 4);
        // Paths and checksums take as much memory as they have bytes in the head. A file has an entry in the list and
        // the rank of its first row, and a page of spilled entries its first entry.
        let file = (size_of::<DataFile>() + size_of::<u32>()) as u64;
        Ok(rest - files * FILE_BYTES as u64 + files * file + spill_pages * size_of::<Spot>() as u64)
    }

    fn spilled_and_files(bytes: &[u8]) -> Result<(u64, u32), &'static str> {
        let mut reader = Reader(bytes);
        reader.take(40)?;
        Ok((reader.u64()?, reader.u32()?))
    }

    fn version_and_len(bytes: &[u8]) -> Result<(u32, usize), &'static str> {
        let mut reader = Reader(bytes);
        if reader.take(8)? != MAGIC {
            return Err("the file is none");
        }
        Ok((reader.u32()?, reader.u32()? as usize))
    }

    /// Decodes a head. Checks everything that can be checked without the pages.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyIndexError> {
        match Self::len_of(bytes)? == bytes.len() {
            true => Self::decode(bytes).map_err(KeyIndexError::head),
            false => Err(KeyIndexError::head("its head is truncated")),
        }
    }

    /// Decodes a head of the known version and the right length.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        reader.take(16)?;
        let seed = reader.u64()?;
        let [code, scale, form, hash_bits] = *reader.array::<4>()?;
        let pages = reader.u32()?;
        let (entries, spilled) = (reader.u64()?, reader.u64()?);
        let files = reader.u32()?;
        if reader.u32()? != head_checksum(bytes) {
            return Err("its head has a wrong checksum");
        }
        let key_type = KeyType::from_bytes([code, scale]).ok_or("its key type is unknown")?;
        let form = match form {
            1 => FormName::Narrow,
            2 => FormName::Wide,
            _ => return Err("its form is unknown"),
        };
        let geometry = Geometry::from_parts(form, pages, hash_bits.into())
            .ok_or("its numbers of pages and of hash bits do not fit each other")?;
        let files = Files::new(reader.files(files)?).map_err(|_| "its files have too many rows")?;
        if entries > u64::from(files.rows()) || spilled > entries {
            return Err("it has more entries than rows");
        }
        let spill_pages = spilled.div_ceil(SPILLED_A_PAGE as u64);
        let checksums = reader.words(u64::from(pages) + spill_pages)?;
        let is_rest_empty = reader.0.len() < PAGE_BYTES && reader.0.iter().all(|&byte| byte == 0);
        match is_rest_empty {
            true => Ok(Self { seed, key_type, geometry, entries, spilled, files, checksums }),
            false => Err("its head has bytes after its end"),
        }
    }
}

/// Returns the CRC32C of a page.
pub fn page_checksum(bytes: &[u8]) -> u32 {
    // The algorithm is 32-bit, so the cast loses nothing.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC32C of a head, without the bytes where it is stored.
pub fn head_checksum(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CRC_AT.min(bytes.len())]);
    digest.update(&bytes[FIXED_BYTES.min(bytes.len())..]);
    digest.finalize() as u32
}

/// The bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("its head is truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], &'static str> {
        self.take(N)?.first_chunk().ok_or("its head is truncated")
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn words(&mut self, count: u64) -> Result<Vec<u32>, &'static str> {
        let bytes = count.checked_mul(4).and_then(|len| usize::try_from(len).ok());
        let bytes = self.take(bytes.ok_or("its head is truncated")?)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn files(&mut self, count: u32) -> Result<Vec<DataFile>, &'static str> {
        // The exact capacity, so that the list is not in memory twice while it grows.
        let mut files = Vec::with_capacity((count as usize).min(self.0.len() / FILE_BYTES));
        for _ in 0..count {
            let (fragment, rows) = (self.u32()?, self.u32()?);
            let len = u16::from_le_bytes(*self.array()?);
            let path = str::from_utf8(self.take(len.into())?);
            let path = path.map_err(|_| "a file's path is not UTF-8")?.to_owned();
            files.push(DataFile { path, fragment, rows });
        }
        Ok(files)
    }
}
