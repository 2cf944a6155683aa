//! Files that a table's writer made, checked before Lance sees a byte of them.
//!
//! Lance and the decoders below it believe what a file says of itself, and some of what they believe ends the process
//! instead of a request: a count in a footer becomes an allocation, a length in front of compressed bytes another, a
//! schema nested 100,000 deep a stack overflow (for Arrow's reader see arrow-rs#10521). What merely makes them panic
//! (lance#7935, lance#7936, lance#9267, arrow-rs#10437) is left to [`caught`](crate::caught).
//!
//! All bytes that Lance reads come through here, so what is checked is what is read, with one exception: metadata longer
//! than the end that Lance reads first is read here once and by Lance again, and a writer may exchange the file in
//! between. A read that brings an object's last bytes brings its footer, and is checked as
//!
//! - a manifest (`manifest.rs`): its size, what it has entries of, how deep its schema nests;
//! - a file of data or of an index (`lance_file.rs`): where its footer, its columns and their pages say that they are,
//!   and its schema;
//! - a file of deletions (`deletions.rs`), which is read whole: the lengths of what is compressed in it.
//!
//! That asks the store for nothing more, unless the metadata is longer than the piece of the end that Lance reads first
//! (4 KiB of a file, 64 KiB of an object): then for the metadata, once more for each time that the file is opened.
//!
//! Not checked is what pages hold, such as the places of variable-width values: Lance's scheduler splits those into
//! reads before a store sees them, however long they are (lance-io's `FileScheduler::submit_request`). Decoders are
//! bounded by the rows that are read, which for a chunk or a batch is a bound; an index is read whole, and one whose
//! pages inflate takes memory in proportion to the rows that it claims.

mod deletions;
mod lance_file;
mod manifest;
mod message;
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

/// What Lance's files end in.
const MAGIC: &[u8] = b"LANC";

/// What Lance reads of an object's end to find its footer is 64 KiB at most, and no piece that it reads is longer.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// A file of a table that says what can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is damaged: {why}")]
pub struct Damaged {
    path: String,
    why: String,
}

impl Damaged {
    /// Whether this is in a text that Lance made of an error, where it kept nothing else.
    pub fn is_text(text: &str) -> bool {
        text.contains(" is damaged: ")
    }
}

/// What is wrong with a file, or nothing.
type Checked<T = ()> = std::result::Result<T, String>;

/// A store whose objects are checked as they are read.
#[derive(Debug)]
pub struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
}

impl CheckedStore {
    /// Over any store.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner }
    }

    /// `answer` with its body collected and checked, if it has what there is to check.
    async fn checked(&self, kind: Kind, answer: GetResult) -> Result<GetResult> {
        let (size, range) = (answer.meta.size, answer.range.clone());
        let bytes_max = kind.bytes_max();
        if size > bytes_max {
            let why = format!("it has {size} bytes, and at most {bytes_max} are read");
            return Err(damaged(&answer.meta.location, why));
        }
        let has_it = match kind {
            Kind::Deletions => range == (0..size),
            Kind::Manifest => range.end == size,
            // A longer piece of an end is no footer: it goes by as it comes.
            Kind::Other => range.end == size && range.end - range.start <= TAIL_BYTES_MAX,
        };
        if !has_it {
            return Ok(answer);
        }
        let (meta, attributes) = (answer.meta.clone(), answer.attributes.clone());
        let extensions = answer.extensions.clone();
        let damaged = |why: String| damaged(&meta.location, why);
        let bytes = answer.bytes().await?;
        if kind == Kind::Deletions {
            deletions::check(&meta.location, &bytes).map_err(damaged)?;
        } else if bytes.ends_with(MAGIC) {
            let wanted = |tail: &Bytes| match kind {
                Kind::Manifest => manifest::wanted(tail, meta.size),
                _ => lance_file::wanted(tail, meta.size),
            };
            let mut tail = bytes.clone();
            // Twice at most: of a longer tail more may be wanted, once its tables are in it.
            let metadata = loop {
                let have = meta.size - tail.len() as u64;
                match wanted(&tail).map_err(damaged)? {
                    None => break None,
                    Some(from) if from >= have => break Some(tail.slice((from - have) as usize..)),
                    Some(from) => tail = self.read(&meta, from).await?,
                }
            };
            if let Some(metadata) = metadata {
                match kind {
                    Kind::Manifest => manifest::check(&metadata),
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
    /// An object from `from` to its end.
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

fn damaged(location: &Path, why: String) -> StoreError {
    let source = Box::new(Damaged { path: location.to_string(), why });
    StoreError::Generic { store: "checked", source }
}

/// What a file is, by its name: Lance makes the names of manifests and deletions, so nothing else is called so.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Manifest,
    Deletions,
    /// Of data, of an index, or whatever a manifest says.
    Other,
}

impl Kind {
    fn of(location: &Path) -> Self {
        let mut parts: Vec<_> = location.as_ref().rsplitn(3, '/').collect();
        parts.truncate(2);
        match parts.get(1).copied() {
            Some("_versions") => Self::Manifest,
            Some("_deletions") => Self::Deletions,
            _ => Self::Other,
        }
    }

    /// How large an object may be.
    fn bytes_max(self) -> u64 {
        match self {
            Self::Manifest => manifest::BYTES_MAX,
            Self::Deletions => deletions::BYTES_MAX,
            Self::Other => u64::MAX,
        }
    }
}

/// Whether `offset` and `len` are a place before `end`.
fn place(what: &str, offset: u64, len: u64, end: u64) -> Checked<Range<u64>> {
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
        let is_head = options.head;
        let answer = self.inner.get_opts(location, options).await?;
        if is_head {
            return Ok(answer);
        }
        self.checked(Kind::of(location), answer).await
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
