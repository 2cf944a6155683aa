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
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, MultipartUpload,
    ObjectStore, ObjectStoreExt, PutPayload,
};
use tables::FilePath;

use crate::error::{LakeError, Result};
use crate::store::CheckedByReader;
use crate::table::Table;

/// The name of the folder, in the table's folder, that has a folder for each kind of files.
const SIDE_FOLDER: &str = "_bireme";

/// The bytes of a part of a large file, which is uploaded in several requests. A smaller file takes one. S3 accepts
/// 10,000 parts, so a file may have 168 GB.
const PART_BYTES: usize = 16 << 20;

/// The number of parts of a file that are uploaded at the same time. Together they hold 128 MiB.
const PARTS_AT_ONCE: usize = 8;

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
        let mut parts = parts_of(pieces);
        let first = parts.next().unwrap_or_default();
        let written = match parts.next() {
            None => self.store.put(&path, first).await.map(drop),
            Some(second) => match self.store.put_multipart(&path).await {
                Ok(file) => upload(file, [first, second].into_iter().chain(parts)).await,
                Err(error) => Err(error),
            },
        };
        written.map_err(|error| self.blame(error))?;
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

/// Divides the bytes of `pieces` into parts of [`PART_BYTES`]; the last one may be smaller.
fn parts_of(mut pieces: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = PutPayload> {
    let mut rest = Bytes::new();
    std::iter::from_fn(move || {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES {
            if rest.is_empty() {
                let Some(piece) = pieces.next() else { break };
                rest = piece.into();
            }
            let taken = rest.split_to(rest.len().min(PART_BYTES - bytes));
            bytes += taken.len();
            part.push(taken);
        }
        (bytes > 0).then(|| PutPayload::from_iter(part))
    })
}

/// Uploads a file in parts. If that fails, has the store drop the parts that it has: it would keep and bill them.
async fn upload(
    mut file: Box<dyn MultipartUpload>,
    parts: impl Iterator<Item = PutPayload>,
) -> object_store::Result<()> {
    let uploads = parts.map(|part| file.put_part(part));
    let uploaded = stream::iter(uploads).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await;
    let written = match uploaded {
        Ok(()) => file.complete().await.map(drop),
        Err(error) => Err(error),
    };
    if written.is_err() {
        // An error of `abort` would say less than the first one.
        let _ = file.abort().await;
    }
    written
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::ready;
    use object_store::{PutResult, UploadPart};

    use super::*;

    /// An upload whose part `fails` fails, or, if it has fewer parts, its completion.
    #[derive(Debug)]
    struct Failing {
        fails: usize,
        parts: usize,
        aborted: Arc<AtomicUsize>,
    }

    fn lost<T>() -> object_store::Result<T> {
        Err(StoreError::Generic { store: "test", source: "the connection was lost".into() })
    }

    #[async_trait::async_trait]
    impl MultipartUpload for Failing {
        fn put_part(&mut self, _part: PutPayload) -> UploadPart {
            self.parts += 1;
            ready(if self.parts == self.fails { lost() } else { Ok(()) }).boxed()
        }

        async fn complete(&mut self) -> object_store::Result<PutResult> {
            lost()
        }

        async fn abort(&mut self) -> object_store::Result<()> {
            self.aborted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_upload_that_fails_leaves_no_parts() {
        for fails in 1..=4 {
            let aborted = Arc::new(AtomicUsize::new(0));
            let file = Failing { fails, parts: 0, aborted: Arc::clone(&aborted) };
            let parts = (0..3).map(|_| PutPayload::from_static(b"part"));
            let error = upload(Box::new(file), parts).await.unwrap_err();
            assert!(error.to_string().contains("the connection was lost"), "{error}");
            assert_eq!(aborted.load(Ordering::Relaxed), 1, "part {fails}");
        }
    }

    #[test]
    fn parts_have_the_size_that_stores_want_and_all_bytes() {
        let pieces = [PART_BYTES / 2, 0, PART_BYTES + 3, 7, PART_BYTES];
        let bytes_of = |at: usize| vec![at as u8; pieces[at]];
        let parts: Vec<_> = parts_of((0..pieces.len()).map(bytes_of)).collect();
        let sizes: Vec<_> = parts.iter().map(PutPayload::content_length).collect();
        assert_eq!(sizes, [PART_BYTES, PART_BYTES, PART_BYTES / 2 + 10]);
        let joined: Vec<u8> = parts.into_iter().flatten().flatten().collect();
        assert!(joined == (0..pieces.len()).flat_map(bytes_of).collect::<Vec<_>>());
        assert_eq!(parts_of(std::iter::once(Vec::new())).count(), 0);
    }
}
