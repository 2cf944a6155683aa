//! A run whose pages stay in its file: only the head, and the first entry of each page of spilled entries, are in
//! memory.
//!
//! ```text
//! in memory   4 bytes per page: its CRC32C; 8 more per page of spilled entries: its first entry; the data files
//! in the file pages of buckets, pages of spilled entries (head.rs draws the file)
//! ```
//!
//! A look-up needs the page of the hash's bucket. If the bucket has spilled entries, and some of them may have the
//! hash's tag, it needs pages of spilled entries too, nearly always one. A page is checked as when a whole run is
//! loaded, so look-ups can rely on it.

use std::ops::{ControlFlow, Range};

use crate::KeyIndexError;
use crate::body::{MayBeSpilled, each_in_page};
use crate::check::Checked;
use crate::files::{DataFile, Files};
use crate::geometry::{Geometry, Spot, page_and_line, with_form};
use crate::head::page_checksum;
use crate::key::KeyHasher;
use crate::key_type::KeyType;
use crate::line::{LINE_BYTES, Line, PAGE_BYTES};
use crate::spill::Spilled;
use crate::spill_bytes::{SPILLED_A_PAGE, from_page};

/// The maximum number of pages of spilled entries that a look-up of a key reads in a run. Two pages are enough for up
/// to 341 spilled entries of a key, wherever these begin. A key that needs more pages is not looked up.
pub const SPILL_PAGES_MAX: u32 = 2;

/// A run whose pages stay in its file.
#[derive(Debug)]
pub struct PagedRun {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) key_type: KeyType,
    pub(crate) files: Files,
    pub(crate) entries: u64,
    pub(crate) geometry: Geometry,
    pub(crate) head_bytes: u64,
    pub(crate) spilled: u64,
    /// The CRC32C of each page, those of buckets first.
    pub(crate) checksums: Box<[u32]>,
    /// The first entry of each page of spilled entries.
    pub(crate) spill_begins: Box<[Spot]>,
}

/// A page of a run that was read from its file and checked.
#[derive(Debug)]
pub struct Page(Content);

#[derive(Debug)]
enum Content {
    Buckets(Box<[Line]>),
    Spilled(Vec<Spilled>),
}

impl PagedRun {
    /// Returns the name of the run's file, which the caller gave.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the hasher that the run's hashes were made with.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher::new(self.seed, self.key_type)
    }

    /// Returns the seed of the table's hashes.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the data files that the run covers.
    pub fn files(&self) -> &[DataFile] {
        self.files.list()
    }

    /// Returns the number of rows that have a key.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the size of the pages in bytes. They are not in memory.
    pub fn paged_bytes(&self) -> u64 {
        self.checksums.len() as u64 * PAGE_BYTES as u64
    }

    /// Returns the memory that the run takes:
    ///
    /// ```text
    /// 4 × pages of the file  +  8 × pages of spilled entries, 341 in each  +  36 × data files + their paths + the name
    /// ```
    pub fn ram_bytes(&self) -> usize {
        let begins = size_of_val(&self.spill_begins[..]);
        size_of_val(&self.checksums[..]) + begins + self.files.ram_bytes() + self.name.len()
    }

    /// Returns the range of a page in the file, in bytes.
    pub fn bytes_of(&self, page: u32) -> Range<u64> {
        let start = self.head_bytes + u64::from(page) * PAGE_BYTES as u64;
        start..start + PAGE_BYTES as u64
    }

    /// Checks the bytes of a page.
    ///
    /// # Errors
    /// [`KeyIndexError::CorruptPage`] if they are not the page that was written.
    pub fn check(&self, page: u32, bytes: &[u8]) -> Result<Page, KeyIndexError> {
        self.checked(page, bytes)
            .map(Page)
            .map_err(|reason| KeyIndexError::CorruptPage { page, reason })
    }

    fn checked(&self, page: u32, bytes: &[u8]) -> Result<Content, &'static str> {
        let checksum = *self.checksums.get(page as usize).ok_or("it is after the end")?;
        if bytes.len() != PAGE_BYTES {
            return Err("it is truncated");
        }
        if checksum != page_checksum(bytes) {
            return Err("wrong checksum");
        }
        let rows = self.files.rows();
        if let Some(spill_page) = page.checked_sub(self.geometry.pages()) {
            let mut entries = Vec::new();
            from_page(bytes, self.spilled_in(spill_page), &mut entries)?;
            return match entries.iter().all(|entry| entry.rank < rows) {
                true => Ok(Content::Spilled(entries)),
                false => Err("a spilled entry is of no row"),
            };
        }
        let lines: Box<[Line]> =
            bytes.as_chunks::<LINE_BYTES>().0.iter().map(|bytes| Line(*bytes)).collect();
        with_form!(self.geometry, F => Checked::default().page::<F>(&lines, rows))?;
        Ok(Content::Buckets(lines))
    }

    /// Returns the number of entries of a page of spilled entries.
    fn spilled_in(&self, spill_page: u32) -> usize {
        let before = u64::from(spill_page) * SPILLED_A_PAGE as u64;
        self.spilled.saturating_sub(before).min(SPILLED_A_PAGE as u64) as usize
    }

    /// Returns the bucket and the tag of a hash.
    pub(crate) fn spot(&self, hash: u64) -> Spot {
        with_form!(self.geometry, F => self.geometry.spot::<F>(hash))
    }

    /// Returns the page of a bucket.
    pub(crate) fn page_of(&self, spot: Spot) -> u32 {
        // There are fewer than 2^32 pages.
        with_form!(self.geometry, F => page_and_line::<F>(spot.bucket).0 as u32)
    }

    /// Returns the pages that have all spilled entries with the spot's bucket and tag, if there are such entries.
    /// Returns `None` if there are more pages than [`SPILL_PAGES_MAX`].
    pub(crate) fn spill_pages_of(&self, spot: Spot) -> Option<Range<u32>> {
        let begins = &self.spill_begins;
        // The entries may begin at the end of a page that begins with entries of an earlier spot: the page before the
        // first one that begins with this spot or a later one.
        let start = begins.partition_point(|begin| *begin < spot).saturating_sub(1) as u32;
        let end = begins.partition_point(|begin| *begin <= spot) as u32;
        let pages = self.geometry.pages();
        (end - start <= SPILL_PAGES_MAX).then_some(pages + start..pages + end)
    }

    /// Calls `each` with the rank of every entry in `page` that has the spot's bucket and tag, until `each` breaks.
    /// Returns whether more such entries may be spilled; `None` if `page` is a page of spilled entries.
    pub(crate) fn each_in_bucket(
        &self,
        page: &Page,
        spot: Spot,
        each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<(), Option<bool>> {
        let Content::Buckets(lines) = &page.0 else { return ControlFlow::Continue(None) };
        let MayBeSpilled(spilled) = with_form!(self.geometry, F => {
            let (_, home) = page_and_line::<F>(spot.bucket);
            each_in_page::<F>(lines, 0, home, spot.tag, each)?
        });
        ControlFlow::Continue(Some(spilled))
    }

    /// Returns whether spilled entries may have the spot's bucket and tag, according to the bucket's page.
    pub(crate) fn may_be_spilled(&self, page: &Page, spot: Spot) -> bool {
        let all = self.each_in_bucket(page, spot, |_| ControlFlow::Continue(()));
        matches!(all, ControlFlow::Continue(Some(true)))
    }
}

impl Page {
    /// Calls `each` with the rank of every spilled entry in the page that has the spot's bucket and tag, until `each`
    /// breaks.
    pub(crate) fn each_spilled(
        &self,
        spot: Spot,
        each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Content::Spilled(entries) = &self.0 else { return ControlFlow::Continue(()) };
        let place = |entry: &Spilled| Spot { bucket: entry.bucket, tag: entry.tag };
        let start = entries.partition_point(|entry| place(entry) < spot);
        let ranks = entries[start..].iter().take_while(|entry| place(entry) == spot);
        ranks.map(|entry| entry.rank).try_for_each(each)
    }
}
