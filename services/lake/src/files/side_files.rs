//! Files that Bireme keeps beside a table's own, in the folder `_bireme` of the table.
//!
//! Lance does not know them: its clean-up lists the folders of its own files only. They are read and written through
//! the same guards as the table's files, but `store/checked.rs` does not look into them: whoever reads them checks
//! them.
//!
//! A file is written whole or not at all, and never changed: its name is new each time. It consists of 32 random
//! hexadecimal digits and the extension of its kind. Files with other names are left alone, whatever they are.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lance_core::Error as LanceError;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore,
    ObjectStoreExt,
};
use tables::FilePath;
use tokio::io::AsyncWriteExt;

use crate::error::{LakeError, Result};
use crate::store::CheckedByReader;
use crate::table::Table;

/// The name of the folder, in the table's folder, that has a folder for each kind of files.
const SIDE_FOLDER: &str = "_bireme";

/// The bytes of a part of a large file, which is uploaded in several requests. A smaller file takes one. S3 accepts
/// 10,000 parts, so a file may have 168 GB.
const PART_BYTES: usize = 16 << 20;

/// The number of hexadecimal digits in a file's name.
const NAME_DIGITS: usize = 32;

/// The bytes that are read at once from a file in a folder.
const PIECE_BYTES: u64 = 1 << 20;

/// The files of one kind that Bireme keeps beside a table's own.
pub struct SideFiles {
    table: Table,
    store: Arc<dyn ObjectStore>,
    folder: Path,
    extension: &'static str,
}

/// The name and size of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideFile {
    /// The file's name in its folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A file that is being read.
pub struct SideFileReader {
    /// The file's size.
    pub bytes: u64,
    table: Table,
    pieces: BoxStream<'static, object_store::Result<Bytes>>,
}

impl Table {
    /// Returns the table's files of the kind `kind`, which has a folder of its own. Their names end with `extension`.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn side_files(&self, kind: &str, extension: &'static str) -> Result<SideFiles> {
        let dataset = self.dataset();
        let store = dataset.object_store(None).await.map_err(|error| self.blame(error))?;
        // All branches share the files. Each file names the data files or the index that it is for.
        let table = self.table_path().map_err(|error| self.blame(error))?;
        let folder = table.join(SIDE_FOLDER).join(kind);
        let store = Arc::clone(&store.inner);
        Ok(SideFiles { table: self.clone(), store, folder, extension })
    }
}

impl SideFiles {
    /// Returns the path of a file, as messages name it.
    pub fn path_of(&self, name: &str) -> String {
        let parts: Vec<_> = self.folder.parts().collect();
        let kind = parts.last().map_or("", AsRef::as_ref);
        format!("{}/{SIDE_FOLDER}/{kind}/{name}", self.table.uri())
    }

    /// Lists the files of this kind among the first `max` files of the folder, with one request for each 1,000.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(&self, max: usize) -> Result<Vec<SideFile>> {
        let file = |meta: object_store::ObjectMeta| {
            let name = meta.location.filename().unwrap_or_default().to_owned();
            SideFile { name, bytes: meta.size }
        };
        let listed = self.store.list(Some(&self.folder)).map_ok(file).take(max);
        let mut files: Vec<_> = listed.try_collect().await.map_err(|error| self.blame(error))?;
        files.retain(|file| is_name(&file.name, self.extension));
        Ok(files)
    }

    /// Begins to read a file, with one request. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn read(&self, name: &str) -> Result<Option<SideFileReader>> {
        let Some(answer) = self.get(name, None).await? else { return Ok(None) };
        let bytes = answer.meta.size;
        let pieces = match answer.payload {
            GetResultPayload::File(file, _) => pieces_of(file, bytes),
            GetResultPayload::Stream(pieces) => pieces,
        };
        Ok(Some(SideFileReader { bytes, table: self.table.clone(), pieces }))
    }

    /// Reads a range of a file, with one request. `None` if the file does not exist. The result is shorter if the file
    /// ends within the range.
    ///
    /// # Errors
    /// Errors of the store, also if the file ends before the range.
    pub async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let Some(answer) = self.get(name, Some(range)).await? else { return Ok(None) };
        answer.bytes().await.map(Some).map_err(|error| self.blame(error))
    }

    /// Requests a file, or a range of it. `None` if the file does not exist.
    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<GetResult>> {
        let mut options =
            GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        options.extensions.insert(CheckedByReader);
        match self.store.get_opts(&self.folder.clone().join(name), options).await {
            Err(StoreError::NotFound { .. }) => Ok(None),
            answer => answer.map(Some).map_err(|error| self.blame(error)),
        }
    }

    /// Returns the path in the table's folder by which I/O nodes cache a file. `None` if they don't cache it.
    pub fn file_path(&self, name: &str) -> Option<FilePath> {
        let parts: Vec<_> = self.folder.parts().collect();
        let kind = parts.last()?;
        FilePath::parse(&format!("{SIDE_FOLDER}/{}/{name}", kind.as_ref()))
    }

    /// Writes a file with a new name, and returns the name.
    ///
    /// # Errors
    /// Errors of the store. The file may exist nevertheless, if only the store's answer was lost.
    pub async fn create(&self, pieces: impl Iterator<Item = Vec<u8>>) -> Result<String> {
        let name = format!("{:0NAME_DIGITS$x}{}", rand::random::<u128>(), self.extension);
        let path = self.folder.clone().join(name.as_str());
        let mut writer = BufWriter::with_capacity(Arc::clone(&self.store), path, PART_BYTES);
        for piece in pieces {
            if let Err(error) = writer.put(piece.into()).await {
                // An error of `abort` would say less than this one.
                let _ = writer.abort().await;
                return Err(self.blame(error));
            }
        }
        writer.shutdown().await.map_err(|error| self.blame(error))?;
        Ok(name)
    }

    /// Deletes a file, if it exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete(&self, name: &str) -> Result<()> {
        match self.store.delete(&self.folder.clone().join(name)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.blame(error)),
        }
    }

    fn blame(&self, error: impl Into<LanceError>) -> LakeError {
        self.table.blame(error.into())
    }
}

impl SideFileReader {
    /// Returns the next bytes; `None` after the last ones.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = self.pieces.try_next().await;
        piece.map_err(|error| self.table.blame(LanceError::from(error)))
    }
}

/// Returns whether a file has a name that [`SideFiles::create`] gives.
fn is_name(name: &str, extension: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = name.strip_suffix(extension);
    digits.is_some_and(|it| it.len() == NAME_DIGITS && it.bytes().all(is_digit))
}

/// Reads a file in a folder in pieces, on threads that may block. `object_store` would read 8 KiB at a time.
fn pieces_of(file: File, bytes: u64) -> BoxStream<'static, object_store::Result<Bytes>> {
    let file = Arc::new(file);
    let read = move |at: u64| {
        let file = Arc::clone(&file);
        let read = move || {
            let mut piece = vec![0; PIECE_BYTES.min(bytes - at) as usize];
            file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        };
        async move {
            let piece = tokio::task::spawn_blocking(read).await;
            let piece = piece.map_err(|source| StoreError::JoinError { source })?;
            let failed = |source| StoreError::Generic { store: "folder", source };
            piece.map_err(|error| failed(error.into()))
        }
    };
    let starts = (0..bytes).step_by(PIECE_BYTES as usize);
    stream::iter(starts).then(read).boxed()
}
