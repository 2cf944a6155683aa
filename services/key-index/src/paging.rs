//! Opens a persisted run whose pages stay in its file.
//!
//! The caller reads the head, and each page of spilled entries once. The first entry of each of these pages is kept in
//! memory. Pages of buckets are checked when look-ups read them.

use std::ops::Range;

use crate::KeyIndexError;
use crate::check::is_possible;
use crate::geometry::{Spot, with_form};
use crate::head::{Head, HeadFacts, page_checksum};
use crate::line::{Form, PAGE_BYTES};
use crate::paged_run::PagedRun;
use crate::run_bytes::decode_head;
use crate::spill::Spilled;
use crate::spill_bytes::{SPILLED_A_PAGE, from_page};

/// Opens a persisted run whose pages stay in its file.
#[derive(Debug)]
pub struct Paging {
    name: String,
    head: Head,
    head_bytes: u64,
    spill_begins: Vec<Spot>,
    last: Option<Spilled>,
}

impl Paging {
    /// Returns the memory that [`new`](Self::new) takes at most for the head that begins with `first`: the head's bytes,
    /// and what is decoded of them.
    ///
    /// # Errors
    /// If `first` does not have the fields before the list of files, or is no head.
    pub fn bytes_of(first: &[u8]) -> Result<u64, KeyIndexError> {
        Ok(Head::len_of(first)? as u64 + Head::decoded_bytes_max(first)?)
    }

    /// Returns the memory that the run will take, once the head's own bytes are dropped, and the memory that
    /// [`push`](Self::push) takes besides the pages that it is given.
    pub fn bytes_to_finish(&self) -> u64 {
        let of_head = self.head.files.ram_bytes() + self.name.len();
        let checksums = size_of_val(&self.head.checksums[..]);
        let begins = self.spill_begins.capacity() * size_of::<Spot>();
        (of_head + checksums + begins + PAGE_BYTES) as u64
    }

    /// Begins to open the run in the file `name`, which has `file_bytes` bytes, from its head.
    ///
    /// # Errors
    /// If the head is invalid, or the file has another length than the head says.
    pub fn new(name: &str, head: &[u8], file_bytes: u64) -> Result<Self, KeyIndexError> {
        let head_bytes = head.len() as u64;
        let head = decode_head(head, file_bytes)?;
        let spill_pages = head.checksums.len() - head.geometry.pages() as usize;
        let spill_begins = Vec::with_capacity(spill_pages);
        Ok(Self { name: name.to_owned(), head, head_bytes, spill_begins, last: None })
    }

    /// Returns the head's facts about the run: its files, seed and key type.
    pub fn facts(&self) -> HeadFacts<'_> {
        self.head.facts()
    }

    /// Returns the range of the file that [`push`](Self::push) needs: the pages of spilled entries.
    pub fn spill_bytes(&self) -> Range<u64> {
        let page = |number: usize| self.head_bytes + (number * PAGE_BYTES) as u64;
        page(self.head.geometry.pages() as usize)..page(self.head.checksums.len())
    }

    /// Adds the next pages of spilled entries. `pages` must be a number of whole pages.
    ///
    /// # Errors
    /// If a page is damaged or not whole.
    pub fn push(&mut self, pages: &[u8]) -> Result<(), KeyIndexError> {
        let (pages, rest) = pages.as_chunks::<PAGE_BYTES>();
        for page in pages {
            let number = self.head.geometry.pages() + self.spill_begins.len() as u32;
            with_form!(self.head.geometry, F => self.push_page::<F>(number, page))
                .map_err(|reason| KeyIndexError::CorruptPage { page: number, reason })?;
        }
        match rest {
            [] => Ok(()),
            _ => Err(KeyIndexError::head("a part of a page was given to load")),
        }
    }

    fn push_page<F: Form>(
        &mut self,
        number: u32,
        page: &[u8; PAGE_BYTES],
    ) -> Result<(), &'static str> {
        let checksum = *self.head.checksums.get(number as usize).ok_or("it is after the end")?;
        if checksum != page_checksum(page) {
            return Err("wrong checksum");
        }
        let before = self.spill_begins.len() as u64 * SPILLED_A_PAGE as u64;
        let count = self.head.spilled.saturating_sub(before).min(SPILLED_A_PAGE as u64);
        let mut entries = Vec::with_capacity(SPILLED_A_PAGE);
        from_page(page, count as usize, &mut entries)?;
        let (geometry, rows) = (self.head.geometry, self.head.files.rows());
        for entry in entries.iter().copied() {
            if self.last.replace(entry).is_some_and(|last| last >= entry) {
                return Err("spilled entries are not in order");
            }
            if !is_possible::<F>(entry, geometry, rows) {
                return Err("a spilled entry is of no bucket or no row");
            }
        }
        let first = entries.first().ok_or("a page has no spilled entry")?;
        self.spill_begins.push(Spot { bucket: first.bucket, tag: first.tag });
        Ok(())
    }

    /// Returns the run, once all pages of spilled entries have been added.
    ///
    /// # Errors
    /// If pages are missing.
    pub fn finish(self) -> Result<PagedRun, KeyIndexError> {
        let Self { name, head, head_bytes, spill_begins, .. } = self;
        let Head { seed, key_type, geometry, entries, spilled, files, checksums } = head;
        if geometry.pages() as usize + spill_begins.len() < checksums.len() {
            return Err(KeyIndexError::head("it is truncated"));
        }
        let (checksums, spill_begins) = (checksums.into(), spill_begins.into());
        Ok(PagedRun {
            name,
            seed,
            key_type,
            files,
            entries,
            geometry,
            head_bytes,
            spilled,
            checksums,
            spill_begins,
        })
    }
}
