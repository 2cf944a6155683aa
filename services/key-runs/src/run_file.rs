//! The files of persisted runs: `TABLE/_bireme/keys/<32 random hexadecimal digits>.keys`.
//!
//! A file is one run (`key-index/src/head.rs` draws it), written once under a name that is used once. The names say
//! nothing about the contents. So reading a run begins with its head, in the same request as its pages.

use bytes::Bytes;
use key_index::{HeadFacts, KeyIndexError, Loading, Run};
use lake::{LakeError, SideFileReader, SideFiles, Table};
use thiserror::Error;

/// The folder of runs in the folder of Bireme's own files.
const KIND: &str = "keys";

/// The end of the name of a run's file.
const EXTENSION: &str = ".keys";

/// The maximum number of files that are listed. A table has at most four runs for each key column, and those that older
/// versions still need. The bound protects against a folder that somebody has filled with files.
pub(crate) const FILES_MAX: usize = 1_000;

/// The files of the persisted runs of a table.
pub struct RunFiles {
    pub(crate) files: SideFiles,
}

/// The name and size of a run's file.
pub type RunFile = lake::SideFile;

/// The reason why a file is not used.
#[derive(Debug, Error)]
pub enum RunFileError {
    /// The store does not answer, or refuses.
    #[error(transparent)]
    Table(#[from] LakeError),
    /// The file is damaged, or is not a run of a known format.
    #[error(transparent)]
    Refused(#[from] KeyIndexError),
}

impl RunFiles {
    /// Returns the files of a table.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn of(table: &Table) -> Result<Self, LakeError> {
        Ok(Self { files: table.side_files(KIND, EXTENSION).await? })
    }

    /// Returns the path of a file, as messages name it.
    pub fn path_of(&self, name: &str) -> String {
        self.files.path_of(name)
    }

    /// Lists the files, largest first.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(&self) -> Result<Vec<RunFile>, LakeError> {
        let mut files = self.files.list(FILES_MAX).await?;
        files.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        Ok(files)
    }

    /// Begins to read a file, with one request for all of it. `None` if it does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn open(&self, name: &str) -> Result<Option<RunReader>, RunFileError> {
        let Some(reader) = self.files.read(name).await? else { return Ok(None) };
        let mut body = Body { reader, rest: Vec::new() };
        body.fill(Loading::BEGIN_BYTES).await?;
        let head_bytes = Loading::head_len(&body.rest)?;
        match head_bytes as u64 > body.reader.bytes {
            true => Err(KeyIndexError::CorruptHead { reason: "its head is truncated" }.into()),
            false => Ok(Some(RunReader { body, head_bytes })),
        }
    }

    /// Writes a run, and returns its file.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn write(&self, run: &Run) -> Result<RunFile, LakeError> {
        let mut bytes = 0;
        let pieces = run.to_pieces().inspect(|piece| bytes += piece.len() as u64);
        let name = self.files.create(pieces).await?;
        Ok(RunFile { name, bytes })
    }

    /// Deletes a file, if it exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete(&self, name: &str) -> Result<(), LakeError> {
        self.files.delete(name).await
    }
}

/// A run of which the first bytes have been read.
pub struct RunReader {
    body: Body,
    head_bytes: usize,
}

/// A run whose head has been read.
pub struct RunHead {
    body: Body,
    loading: Loading,
}

impl RunReader {
    /// Returns the memory that loading the run takes at most.
    pub fn bytes_max(&self) -> u64 {
        Loading::bytes_of(self.body.reader.bytes, self.head_bytes as u64)
    }

    /// Reads the head.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn head(mut self) -> Result<RunHead, RunFileError> {
        // If the file ends before its head does, `Loading::new` refuses the bytes that there are.
        self.body.fill(self.head_bytes).await?;
        let have = self.head_bytes.min(self.body.rest.len());
        let loading = Loading::new(&self.body.rest[..have], self.body.reader.bytes)?;
        self.body.rest.drain(..have);
        Ok(RunHead { body: self.body, loading })
    }
}

impl RunHead {
    /// Returns the head's facts about the run: its files, seed and key type.
    pub fn facts(&self) -> HeadFacts<'_> {
        self.loading.facts()
    }

    /// Reads and checks the pages.
    ///
    /// # Errors
    /// Errors of the store, and [`RunFileError::Refused`].
    pub async fn load(self) -> Result<Run, RunFileError> {
        let Self { mut body, mut loading } = self;
        loop {
            let whole = body.rest.len() / Loading::PAGE_BYTES * Loading::PAGE_BYTES;
            loading.push(&body.rest[..whole])?;
            body.rest.drain(..whole);
            match body.next().await? {
                Some(piece) => body.rest.extend_from_slice(&piece),
                None => break,
            }
        }
        // If the file ends within a page, `push` refuses the rest.
        loading.push(&body.rest)?;
        Ok(loading.finish()?)
    }
}

/// The bytes of a file that have not been used yet.
struct Body {
    reader: SideFileReader,
    rest: Vec<u8>,
}

impl Body {
    async fn next(&mut self) -> Result<Option<Bytes>, LakeError> {
        self.reader.next().await
    }

    /// Reads until `rest` has at least `bytes` bytes, or the file ends.
    async fn fill(&mut self, bytes: usize) -> Result<(), LakeError> {
        while self.rest.len() < bytes {
            match self.next().await? {
                Some(piece) => self.rest.extend_from_slice(&piece),
                None => break,
            }
        }
        Ok(())
    }
}
