//! Runs whose pages stay in their files: opened with a few reads, and then read page by page.
//!
//! Every read is a range of the file, and goes through the store that Lance reads with. So if a query node reads files
//! through the I/O nodes, it reads pages from their drives.

use std::ops::Range;

use bytes::Bytes;
use key_index::{HeadFacts, KeyIndexError, Loading, Page, PagedRun, Paging};
use lake::{FilePath, LakeError};

use crate::run_file::{RunFile, RunFileError, RunFiles};

/// The sizes, in bytes, of the pieces in which spilled entries may be read while a run is opened. Opening a run takes
/// the memory of one piece, besides that of the head. The smallest piece is a page.
pub const SPILL_PIECES_BYTES: [u64; 3] = [1 << 20, 1 << 16, Loading::PAGE_BYTES as u64];

/// A run whose head is about to be read.
pub struct PagedReader {
    file: RunFile,
    head_bytes: u64,
    bytes_max: u64,
}

/// A run whose head has been read.
pub struct PagedHead {
    file: RunFile,
    paging: Paging,
}

impl RunFiles {
    /// Begins to open a run whose pages stay in its file. `None` if the file does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn open_paged(&self, file: &RunFile) -> Result<Option<PagedReader>, RunFileError> {
        let first = 0..(Loading::PAGE_BYTES as u64).min(file.bytes);
        if first.is_empty() {
            return Err(KeyIndexError::CorruptHead { reason: "its head is truncated" }.into());
        }
        let Some(first) = self.bytes(&file.name, first).await? else { return Ok(None) };
        let head_bytes = Loading::head_len(&first)? as u64;
        let bytes_max = Paging::bytes_of(&first)?;
        match head_bytes > file.bytes {
            true => Err(KeyIndexError::CorruptHead { reason: "its head is truncated" }.into()),
            false => Ok(Some(PagedReader { file: file.clone(), head_bytes, bytes_max })),
        }
    }

    /// Reads and checks a page of a run. `None` if the file does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn page(&self, run: &PagedRun, page: u32) -> Result<Option<Page>, RunFileError> {
        let Some(bytes) = self.bytes(run.name(), run.bytes_of(page)).await? else {
            return Ok(None);
        };
        Ok(Some(run.check(page, &bytes)?))
    }

    /// Returns the path by which I/O nodes cache a file. `None` if they don't cache it.
    pub fn file_path(&self, name: &str) -> Option<FilePath> {
        self.files.file_path(name)
    }

    async fn bytes(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>, LakeError> {
        self.files.read_range(name, range).await
    }
}

impl PagedReader {
    /// Returns the memory that reading the head takes at most.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Reads the head. `None` if the file does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn head(self, files: &RunFiles) -> Result<Option<PagedHead>, RunFileError> {
        let Self { file, head_bytes, .. } = self;
        let Some(head) = files.bytes(&file.name, 0..head_bytes).await? else { return Ok(None) };
        let paging = Paging::new(&file.name, &head, file.bytes)?;
        Ok(Some(PagedHead { file, paging }))
    }
}

impl PagedHead {
    /// Returns the head's facts about the run: its files, seed and key type.
    pub fn facts(&self) -> HeadFacts<'_> {
        self.paging.facts()
    }

    /// Returns the memory that opening the run takes at most, if up to `piece_bytes` of spilled entries are read at
    /// once.
    pub fn bytes_max(&self, piece_bytes: u64) -> u64 {
        let Range { start, end } = self.paging.spill_bytes();
        self.paging.bytes_to_finish() + (end - start).min(piece_bytes)
    }

    /// Reads the spilled entries in pieces of up to `piece_bytes`, which is one of [`SPILL_PIECES_BYTES`], and returns
    /// the run. `None` if the file does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn open(
        self,
        files: &RunFiles,
        piece_bytes: u64,
    ) -> Result<Option<PagedRun>, RunFileError> {
        let Self { file, mut paging } = self;
        let Range { mut start, end } = paging.spill_bytes();
        while start < end {
            let piece = start..end.min(start + piece_bytes);
            let Some(bytes) = files.bytes(&file.name, piece.clone()).await? else {
                return Ok(None);
            };
            paging.push(&bytes)?;
            start = piece.end;
        }
        Ok(Some(paging.finish()?))
    }
}
