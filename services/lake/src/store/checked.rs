//! Checks the metadata of a table's files before Lance sees a byte of it.
//!
//! Lance and the decoders below it trust a file's metadata, and wrong metadata can end the whole process rather than
//! one request: a count in a footer becomes an allocation, a length in front of compressed bytes becomes another, a
//! schema nested 100,000 deep overflows the stack (for Arrow's reader see arrow-rs#10521). Metadata that merely makes
//! Lance or a decoder panic (lance#7935, lance#7936, lance#9267, arrow-rs#10437) is left to [`caught`](crate::caught).
//!
//! All bytes that Lance reads come through here, so the bytes that are checked are the bytes that Lance gets. There is
//! one exception: if the metadata is longer than the tail that Lance reads first, it is read once here and again by
//! Lance, and a writer may exchange the file in between. A read that includes an object's last bytes includes its
//! footer, and is checked as
//!
//! - a manifest (`manifest.rs`): its size, the numbers of its entries and its rows, its schema, its base paths, and
//!   stable row ids (`row_ids.rs`);
//! - a data or index file (`lance_file.rs`): the byte ranges in its footer, its columns and their pages, and its
//!   schema;
//! - a deletion file (`deletions.rs`), which is read whole: the lengths of its compressed parts.
//!
//! The checks cause no requests to the store, unless the metadata is longer than the tail that Lance reads first (4 KiB
//! of a file, 64 KiB of an object, and 128 KiB on I/O nodes): then one or two for the metadata each time the file is
//! opened.
//!
//! Reads that do not come from Lance pass unchecked: they have [`CheckedByReader`] in their options.
//!
//! The contents of pages are not checked, such as the offsets of variable-width values: Lance's scheduler splits long
//! reads before a store sees them (lance-io's `FileScheduler::submit_request`). The memory of a decoder is bounded by
//! the number of rows that are read at once, those of a chunk or a batch. An index is read whole, so if its pages
//! inflate, it takes memory in proportion to the rows that it claims.

mod deletions;
mod lance_file;
mod manifest;
mod message;
mod row_ids;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions, Result,
};

use super::mark::Mark;

/// The last bytes of Lance's files.
const MAGIC: &[u8] = b"LANC";

/// The folder of a table's manifests.
pub(super) const VERSIONS: &str = "_versions";

/// The folder of a table's deletion files.
pub(super) const DELETIONS: &str = "_deletions";

/// The longest read at an object's end that is checked as a footer. Lance reads at most 128 KiB to find a footer, and
/// no piece that it reads is longer than this.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// A file of a table has impossible metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{path} is damaged: {why}", Mark::Damaged)]
pub struct Damaged {
    path: String,
    why: String,
}

/// The result of a check: an error says what is wrong with the file.
type Checked<T = ()> = std::result::Result<T, String>;

/// Marks a read, in the extensions of its options, whose bytes Lance does not get: the reader checks them. The path
/// could not decide that, since a manifest may name any path in the table's folder as a data file.
#[derive(Clone, Copy, Debug)]
pub struct CheckedByReader;

/// A store whose objects are checked as they are read.
#[derive(Debug)]
pub struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
}

impl CheckedStore {
    /// Wraps `inner`, and checks the objects that are read from it.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner }
    }

    /// Refuses an answer from a file that is larger than files of its kind may be. Checks an answer that includes the
    /// file's footer, or is a whole deletion file; the answer's body is collected for that. Other answers pass
    /// unchanged.
    async fn checked(&self, kind: FileKind, answer: GetResult) -> Result<GetResult> {
        let (size, range) = (answer.meta.size, answer.range.clone());
        let bytes_max = kind.bytes_max();
        if size > bytes_max {
            let why = format!("it has {size} bytes, and at most {bytes_max} are read");
            return Err(damaged(&answer.meta.location, why));
        }
        let has_it = match kind {
            FileKind::Deletions => range == (0..size),
            FileKind::Manifest => range.end == size,
            // A longer read is not one for the footer and passes unchecked.
            FileKind::Other => range.end == size && range.end - range.start <= TAIL_BYTES_MAX,
        };
        if !has_it {
            return Ok(answer);
        }
        let (meta, attributes) = (answer.meta.clone(), answer.attributes.clone());
        let extensions = answer.extensions.clone();
        let damaged = |why: String| damaged(&meta.location, why);
        let bytes = answer.bytes().await?;
        if kind == FileKind::Deletions {
            deletions::check(&meta.location, &bytes).map_err(damaged)?;
        } else if bytes.ends_with(MAGIC) {
            let metadata_start = |tail: &Bytes| match kind {
                FileKind::Manifest => manifest::metadata_start(tail, meta.size),
                _ => lance_file::metadata_start(tail, meta.size),
            };
            let mut tail = bytes.clone();
            // At most two more reads: the first may bring the tables, or a manifest's message, which say that the
            // metadata begins even earlier.
            let metadata = loop {
                let have = meta.size - tail.len() as u64;
                match metadata_start(&tail).map_err(damaged)? {
                    None => break None,
                    Some(from) if from >= have => break Some(tail.slice((from - have) as usize..)),
                    Some(from) => tail = self.read(&meta, from).await?,
                }
            };
            if let Some(metadata) = metadata {
                match kind {
                    FileKind::Manifest => manifest::check(&metadata, meta.size),
                    _ => lance_file::check(&metadata, meta.size),
                }
                .map_err(damaged)?;
            }
        }
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

impl CheckedStore {
    /// Reads an object from `from` to its end.
    async fn read(&self, meta: &ObjectMeta, from: u64) -> Result<Bytes> {
        let range = Some(GetRange::Bounded(from..meta.size));
        let options = GetOptions { range, ..Default::default() };
        let bytes = self.inner.get_opts(&meta.location, options).await?.bytes().await?;
        match bytes.len() as u64 == meta.size - from {
            true => Ok(bytes),
            false => Err(damaged(&meta.location, "it changed while it was read".into())),
        }
    }
}

pub(crate) fn damaged(location: &Path, why: String) -> StoreError {
    let source = Box::new(Damaged { path: location.to_string(), why });
    StoreError::Generic { store: "checked", source }
}

/// The kind of a file, by the name of its folder: Lance keeps manifests and deletion files in folders of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Manifest,
    Deletions,
    /// A data file, an index file, or any other file that a manifest names.
    Other,
}

impl FileKind {
    fn of(location: &Path) -> Self {
        let mut parts: Vec<_> = location.as_ref().rsplitn(3, '/').collect();
        parts.truncate(2);
        match parts.get(1).copied() {
            Some(VERSIONS) => Self::Manifest,
            Some(DELETIONS) => Self::Deletions,
            _ => Self::Other,
        }
    }

    /// Returns the maximum size of a file of this kind, in bytes.
    fn bytes_max(self) -> u64 {
        match self {
            Self::Manifest => manifest::BYTES_MAX,
            Self::Deletions => deletions::BYTES_MAX,
            Self::Other => u64::MAX,
        }
    }
}

/// The range of `len` bytes at `offset`, which must end at or before `end`.
fn byte_range(what: &str, offset: u64, len: u64, end: u64) -> Checked<Range<u64>> {
    match offset.checked_add(len).filter(|it| *it <= end) {
        Some(to) => Ok(offset..to),
        None => Err(format!("{what} is at {offset}, {len} bytes long, behind the end at {end}")),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checked {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CheckedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_plain = options.head || options.extensions.get::<CheckedByReader>().is_some();
        let answer = self.inner.get_opts(location, options).await?;
        if is_plain {
            return Ok(answer);
        }
        self.checked(FileKind::of(location), answer).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
