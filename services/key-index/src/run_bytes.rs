//! The persisted form of a run: its head, its pages of buckets, its pages of spilled entries.
//!
//! Pages have 4,096 bytes and are as they are in memory. Their checksums are in the head, so each page can be read and
//! checked alone. Loading checks each page's checksum, and that the entries have the order and the ranges that look-ups
//! and merges rely on. Nothing is built: pages are used as they are.

use crate::KeyIndexError;
use crate::body::{Body, reserve};
use crate::check::Checked;
use crate::geometry::with_form;
use crate::head::{Head, HeadFacts, page_checksum};
use crate::line::{Form, LINE_BYTES, Line, PAGE_BYTES, PAGE_LINES};
use crate::run::Run;
use crate::spill::{Spill, Spilled};
use crate::spill_bytes::{SPILLED_A_PAGE, from_page, to_page};

impl Run {
    /// Returns the number of pages after the head.
    fn page_count(&self) -> usize {
        let spill = self.body.spill.entries().len().div_ceil(SPILLED_A_PAGE);
        self.body.lines.len() / PAGE_LINES + spill
    }

    /// Returns the bytes of a page after the head.
    fn page(&self, number: usize) -> [u8; PAGE_BYTES] {
        let buckets = self.body.lines.len() / PAGE_LINES;
        let Some(spill) = number.checked_sub(buckets) else {
            let mut bytes = [0; PAGE_BYTES];
            let lines = &self.body.lines[number * PAGE_LINES..(number + 1) * PAGE_LINES];
            for (line, to) in lines.iter().zip(bytes.as_chunks_mut::<LINE_BYTES>().0) {
                *to = line.0;
            }
            return bytes;
        };
        let entries = self.body.spill.entries().chunks(SPILLED_A_PAGE).nth(spill);
        to_page(entries.unwrap_or_default())
    }

    /// Returns the persisted form, in pieces to be written one after the other: the head, then single pages.
    pub fn to_pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        let pages = 0..self.page_count();
        let head = Head {
            seed: self.seed,
            key_type: self.key_type,
            geometry: self.body.geometry,
            entries: self.entries,
            spilled: self.body.spill.entries().len() as u64,
            files: self.files.clone(),
            checksums: pages.clone().map(|number| page_checksum(&self.page(number))).collect(),
        };
        std::iter::once(head.to_bytes()).chain(pages.map(|number| self.page(number).to_vec()))
    }

    /// Returns the persisted form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.to_pieces().for_each(|piece| bytes.extend_from_slice(&piece));
        bytes
    }

    /// Loads a persisted run.
    ///
    /// # Errors
    /// [`KeyIndexError::CorruptHead`] or [`KeyIndexError::CorruptPage`] if the bytes are damaged or are
    /// not a persisted run. [`KeyIndexError::UnknownVersion`] if they have a format that this release can't read.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyIndexError> {
        let head = Loading::head_len(bytes)?;
        let Some((head, pages)) = bytes.split_at_checked(head) else {
            return Err(KeyIndexError::head("its head is truncated"));
        };
        let mut loading = Loading::new(head, bytes.len() as u64)?;
        loading.push(pages)?;
        loading.finish()
    }
}

/// Loads a persisted run piece by piece, so that its bytes are not in memory twice.
#[derive(Debug)]
pub struct Loading {
    head: Head,
    lines: Vec<Line>,
    spilled: Vec<Spilled>,
    checked: Checked,
    pages: usize,
}

impl Loading {
    /// The number of bytes that [`Loading::head_len`] needs.
    pub const BEGIN_BYTES: usize = 16;

    /// The bytes of a page.
    pub const PAGE_BYTES: usize = PAGE_BYTES;

    /// Returns the number of bytes that [`Loading::new`] needs of a file that begins with `bytes`.
    ///
    /// # Errors
    /// If the file is no key index, or [`KeyIndexError::UnknownVersion`].
    pub fn head_len(bytes: &[u8]) -> Result<usize, KeyIndexError> {
        Head::len_of(bytes)
    }

    /// Returns an upper bound of the memory that loading a run takes: its pages, the bytes of its head, and the decoded
    /// checksums and list of files. In the list, the shortest entry takes 36 bytes for 10 in the file.
    pub fn bytes_of(file_bytes: u64, head_bytes: u64) -> u64 {
        file_bytes.saturating_add(head_bytes.saturating_mul(7))
    }

    /// Begins to load a run of `file_bytes` bytes from its head.
    ///
    /// # Errors
    /// If the head is invalid, or the file has another length than the head says.
    pub fn new(head: &[u8], file_bytes: u64) -> Result<Self, KeyIndexError> {
        let head = decode_head(head, file_bytes)?;
        let (lines, spilled) = Default::default();
        Ok(Self { head, lines, spilled, checked: Checked::default(), pages: 0 })
    }

    /// Returns the head's facts about the run: its files, seed and key type.
    pub fn facts(&self) -> HeadFacts<'_> {
        self.head.facts()
    }

    /// Adds the next pages. The bytes must be whole pages.
    ///
    /// # Errors
    /// If a page is damaged or not whole.
    pub fn push(&mut self, pages: &[u8]) -> Result<(), KeyIndexError> {
        let (pages, rest) = pages.as_chunks::<PAGE_BYTES>();
        if self.lines.capacity() == 0 {
            self.lines = reserve(self.head.geometry.pages());
            self.spilled.reserve_exact(self.head.spilled as usize);
        }
        for page in pages {
            let number = self.pages as u32;
            self.push_page(page)
                .map_err(|reason| KeyIndexError::CorruptPage { page: number, reason })?;
        }
        match rest {
            [] => Ok(()),
            _ => Err(KeyIndexError::head("a part of a page was given to load")),
        }
    }

    fn push_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<(), &'static str> {
        let checksum = *self.head.checksums.get(self.pages).ok_or("it is after the end")?;
        if checksum != page_checksum(page) {
            return Err("wrong checksum");
        }
        self.pages += 1;
        if self.pages > self.head.geometry.pages() as usize {
            let spilled = self.head.spilled as usize - self.spilled.len();
            return from_page(page, spilled.min(SPILLED_A_PAGE), &mut self.spilled);
        }
        let start = self.lines.len();
        self.lines.extend(page.as_chunks::<LINE_BYTES>().0.iter().map(|bytes| Line(*bytes)));
        let lines = &self.lines[start..];
        let rows = self.head.files.rows();
        with_form!(self.head.geometry, F => self.checked.page::<F>(lines, rows))
    }

    /// Returns the run once all pages have been added.
    ///
    /// # Errors
    /// If pages are missing, or do not fit each other.
    pub fn finish(mut self) -> Result<Run, KeyIndexError> {
        if self.pages < self.head.checksums.len() {
            return Err(KeyIndexError::head("it is truncated"));
        }
        with_form!(self.head.geometry, F => self.check_all::<F>()).map_err(KeyIndexError::head)?;
        let Head { seed, key_type, geometry, entries, files, .. } = self.head;
        let home_lines = geometry.form().home_lines() as u32;
        let spill = Spill::new(self.spilled, geometry.pages(), home_lines);
        Ok(Run {
            seed,
            key_type,
            files,
            entries,
            body: Body { geometry, lines: self.lines, spill },
        })
    }

    fn check_all<F: Form>(&mut self) -> Result<(), &'static str> {
        let (geometry, rows) = (self.head.geometry, self.head.files.rows());
        self.checked.spill::<F>(&self.spilled, geometry, &self.lines, rows)?;
        match self.checked.entries == self.head.entries {
            true => Ok(()),
            false => Err("it has another number of entries than its head says"),
        }
    }
}

/// Decodes the head of a file, and checks that the file, of `file_bytes` bytes, has the length that the head says.
pub fn decode_head(bytes: &[u8], file_bytes: u64) -> Result<Head, KeyIndexError> {
    let head = Head::from_bytes(bytes)?;
    let expected = (bytes.len() + head.checksums.len() * PAGE_BYTES) as u64;
    match file_bytes == expected {
        true => Ok(head),
        false => Err(KeyIndexError::head("it is truncated, or has bytes after its end")),
    }
}
