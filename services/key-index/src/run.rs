//! A run: the immutable index of the keys of some data files.

use std::ops::ControlFlow;

use crate::KeyIndexError;
use crate::body::Body;
use crate::build::{KeyHashes, SCRATCH_BYTES_MAX, build};
use crate::files::{DataFile, Files};
use crate::geometry::{Geometry, Spot, with_form};
use crate::key::KeyHasher;
use crate::key_type::KeyType;
use crate::line::PAGE_BYTES;

/// The index of the keys of one or several data files.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) seed: u64,
    pub(crate) key_type: KeyType,
    pub(crate) files: Files,
    pub(crate) entries: u64,
    pub(crate) body: Body,
}

impl Run {
    /// Builds the run of some files. `hashes` has the hash of each row's key, file after file, made by the table's
    /// [`KeyHasher`] with `seed`. Rows of earlier files are found first: give newer files first.
    ///
    /// # Errors
    /// If there are too many rows, not as many hashes as rows, or if the path of a file is too long.
    pub fn build(
        seed: u64,
        key_type: KeyType,
        files: Vec<DataFile>,
        hashes: &KeyHashes,
    ) -> Result<Self, KeyIndexError> {
        let geometry = Geometry::for_keys(hashes.keys() as u64, u64::BITS);
        Self::build_as(geometry, seed, key_type, files, hashes)
    }

    pub(crate) fn build_as(
        geometry: Geometry,
        seed: u64,
        key_type: KeyType,
        files: Vec<DataFile>,
        hashes: &KeyHashes,
    ) -> Result<Self, KeyIndexError> {
        let files = Files::new(files)?;
        if hashes.rows() as u64 != u64::from(files.rows()) {
            let (expected, found) = (u64::from(files.rows()), hashes.rows() as u64);
            return Err(KeyIndexError::Rows { expected, found });
        }
        let body = build(geometry, hashes, SCRATCH_BYTES_MAX);
        Ok(Self { seed, key_type, files, entries: hashes.keys() as u64, body })
    }

    /// Returns the hasher that the run's hashes were made with.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher::new(self.seed, self.key_type)
    }

    /// Returns the seed of the table's hashes.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the type of the key column.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Returns the data files that the run covers.
    pub fn files(&self) -> &[DataFile] {
        self.files.list()
    }

    /// Returns the number of rows of the files, those without a key included.
    pub fn rows(&self) -> u32 {
        self.files.rows()
    }

    /// Returns the number of rows that have a key.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the number of entries that have no room in their pages. Many of them are a sign of keys with many rows.
    pub fn spilled_entries(&self) -> usize {
        self.body.spill.entries().len()
    }

    /// Returns how many bits of each hash the run keeps. A merged run keeps no more bits than any of the runs that it
    /// was merged from.
    pub fn hash_bits(&self) -> u32 {
        self.body.geometry.hash_bits()
    }

    /// Returns how many of the bits that the run keeps distinguish the keys of a bucket. With `n` such bits, one
    /// look-up in 2^n / 19 to 2^n / 9 gets a candidate that is not its row (with wide lines, 2^n / 13 to 2^n / 6).
    pub fn tag_bits(&self) -> u32 {
        self.body.geometry.effective_tag_bits()
    }

    /// Returns the memory that the run takes:
    ///
    /// ```text
    /// 4,096 × pages  +  36 × files + their paths
    ///                +  12 × spilled entries + 4 × (pages + 1), if there are spilled entries
    ///
    /// pages = entries / 528, rounded up (wide lines, for fewer than 2.4 million keys: / 345); at least 1
    /// ```
    pub fn ram_bytes(&self) -> usize {
        self.body.ram_bytes() + self.files.ram_bytes()
    }

    /// Returns the memory that a run of `keys` keys takes, without spilled entries and the list of files.
    pub fn ram_bytes_of(keys: u64) -> u64 {
        let pages = u64::from(Geometry::for_keys(keys, u64::BITS).pages());
        pages * PAGE_BYTES as u64
    }

    /// Returns the memory that building a run of `rows` rows takes at most, if few entries spill: the hashes, the
    /// scratch memory and the run.
    pub fn build_bytes_of(rows: u64) -> u64 {
        // A row without a key takes a rank beside the hash.
        let hashes = rows * (size_of::<u64>() + size_of::<u32>()) as u64;
        hashes + (rows * 16).min(SCRATCH_BYTES_MAX as u64) + Self::ram_bytes_of(rows)
    }

    /// Returns the hash and the rank of every entry, in the order of the hashes. Bits that the run does not keep are 0.
    pub(crate) fn hashes(&self) -> Box<dyn Iterator<Item = (u64, u32)> + '_> {
        with_form!(self.body.geometry, F => Box::new(self.body.entries::<F>()))
    }

    /// Computes the spots of some hashes and prefetches their buckets.
    pub(crate) fn prefetch(&self, hashes: &[u64], spots: &mut [Spot]) {
        with_form!(self.body.geometry, F => for (hash, spot) in hashes.iter().zip(spots) {
            *spot = self.body.geometry.spot::<F>(*hash);
            self.body.prefetch::<F>(*spot);
        });
    }

    /// Prefetches the overflow of buckets, where look-ups need it. Reads the buckets, and so waits until they are in
    /// the CPU's cache.
    pub(crate) fn prefetch_overflow(&self, spots: &[Spot]) {
        with_form!(self.body.geometry, F => spots.iter().for_each(|&spot| self.body.prefetch_overflow::<F>(spot)));
    }

    /// Calls `each` with the rank of each row that may have the key whose hash has this spot, until `each` breaks.
    #[inline]
    pub(crate) fn each(
        &self,
        spot: Spot,
        each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        with_form!(self.body.geometry, F => self.body.each::<F>(spot, each))
    }
}
