//! Reads index and deletion files of tables by ranges of bytes, for I/O nodes that cache them.
//!
//! Neither the manifest nor the dataset is opened. The contents of files are not checked here; `store/checked.rs`
//! checks them where Lance reads them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use lance_core::Error as LanceError;
use lance_io::object_store::ObjectStore as LanceStore;
use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectStore};
use tables::{BLOCK_BYTES, BlockReads, FilePath, FileSource, FileTable, TableUri};
use wire::Fault;

use crate::diagnose::diagnose;
use crate::error::fault::fault_of;
use crate::error::{LakeError, Result};
use crate::opener::Opener;
use crate::store::CheckedByReader;

/// A file of a table in its store.
struct StoredFile {
    table: TableUri,
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// The file's size, as the caller or the store's first answer gave it.
    size: OnceLock<u64>,
    /// The entity tag in the store's first answer. Later reads require the same tag, so that no two reads see different
    /// files.
    e_tag: OnceLock<String>,
}

/// Opens a file of a table as a [`FileTable`]. If `bytes`, the file's size, is `None`, reads the first block and takes
/// the size from the store's answer. Otherwise reads nothing, and only the first read of rows finds out whether there
/// is a file of this size.
///
/// Errors: `TABLE_DAMAGED` if a block is read and there is no such file, `TOO_LARGE`, and errors of the store.
pub(crate) async fn open_file(
    opener: &Opener,
    blocks: &BlockReads,
    table: &TableUri,
    path: &FilePath,
    bytes: Option<u64>,
) -> std::result::Result<FileTable, Fault> {
    let params = opener.store_params(table).await.map_err(|error| fault_of(&error))?;
    let registry = opener.session().store_registry();
    let store = LanceStore::from_uri_and_params(registry, table.as_str(), &params);
    let opened = opener.with_open_timeout(table.as_str(), store).await;
    let (store, folder) = opened.map_err(|error| fault_of(&error))?;
    // `Path::join` would encode letters of a branch's name that are outside ASCII.
    let path_in_store = Path::parse(format!("{folder}/{}", path.as_str())).map_err(|error| {
        fault_of(&diagnose(table.as_str(), LanceError::from(StoreError::from(error))))
    })?;
    let (size, store) = (OnceLock::new(), Arc::clone(&store.inner));
    let file = StoredFile {
        table: table.clone(),
        store,
        path: path_in_store,
        size,
        e_tag: OnceLock::new(),
    };
    if let Some(bytes) = bytes {
        let _ = file.size.set(bytes);
        return FileTable::new(table, path, bytes, Arc::new(file), blocks.clone());
    }
    let first = file.read(0..BLOCK_BYTES as u64).await.map_err(|error| fault_of(&error))?;
    let bytes = file.size.get().copied().unwrap_or_default();
    let opened = FileTable::new(table, path, bytes, Arc::new(file), blocks.clone())?;
    opened.keep_first(first);
    Ok(opened)
}

impl StoredFile {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.e_tag.get().cloned(),
            ..GetOptions::default()
        };
        options.extensions.insert(CheckedByReader);
        let answer = self.store.get_opts(&self.path, options).await;
        let answer = answer.map_err(|error| self.blame(error))?;
        let (now, before) = (answer.meta.size, *self.size.get_or_init(|| answer.meta.size));
        if now != before {
            return Err(self.corrupt(format!("has {now} bytes, and should have {before}")));
        }
        let range = range.start..range.end.min(before);
        if answer.range != range {
            let (sent, asked) = (&answer.range, &range);
            return Err(self.corrupt(format!("was asked for bytes {asked:?}, and sent {sent:?}")));
        }
        if let Some(e_tag) = &answer.meta.e_tag
            && self.e_tag.get_or_init(|| e_tag.clone()) != e_tag
        {
            // Reads that began before the first answer arrived did not require a tag.
            return Err(self.overwritten());
        }
        let bytes = answer.bytes().await.map_err(|error| self.blame(error))?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => {
                let why = format!("it sent {} bytes of {} for {range:?}", bytes.len(), self.path);
                Err(LakeError::StoreUnreachable { uri: self.table.to_string(), why })
            }
        }
    }

    fn blame(&self, error: StoreError) -> LakeError {
        match error {
            StoreError::NotFound { .. } => {
                self.corrupt("is gone: no version that is left may name it".into())
            }
            StoreError::Precondition { .. } => self.overwritten(),
            error => diagnose(self.table.as_str(), LanceError::from(error)),
        }
    }

    fn overwritten(&self) -> LakeError {
        self.corrupt("was overwritten while it was read".into())
    }

    fn corrupt(&self, why: String) -> LakeError {
        let why = format!("its file {} {why}", self.path);
        LakeError::Corrupt { uri: self.table.to_string(), why }
    }
}

impl FileSource for StoredFile {
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<Bytes, Fault>> {
        self.read(range).map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Act, BYTES, Scripted};

    /// A file of a store that follows a script.
    async fn file(script: fn(usize) -> Act, size: Option<u64>) -> (StoredFile, Arc<Scripted>) {
        let (store, path) = (Arc::new(Scripted::new(script)), Path::from("t/_indices/u/a"));
        store.put_opts(&path, BYTES.into(), Default::default()).await.unwrap();
        let table = TableUri::parse("s3://b/t").unwrap();
        let size = size.map_or_else(OnceLock::new, OnceLock::from);
        let store_of_file = Arc::clone(&store) as _;
        (StoredFile { table, store: store_of_file, path, size, e_tag: OnceLock::new() }, store)
    }

    async fn refused(file: &StoredFile, range: Range<u64>) -> String {
        file.read(range).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn ranges_are_read_and_the_first_answer_says_the_size() {
        let (file, _) = file(|_| Act::Answer, None).await;
        assert_eq!(file.read(0..512).await.unwrap(), BYTES);
        assert_eq!(file.size.get(), Some(&10));
        assert_eq!(file.read(3..7).await.unwrap(), BYTES[3..7]);
    }

    #[tokio::test]
    async fn whatever_a_store_lies_about_is_an_error() {
        let (shorter, _) = file(|_| Act::Shorten, Some(10)).await;
        assert!(refused(&shorter, 0..8).await.contains("4 bytes"));
        let (shifted, _) = file(|_| Act::Shift, Some(10)).await;
        assert!(refused(&shifted, 0..8).await.contains("asked for bytes 0..8"));
        let (longer, _) = file(|n| if n == 0 { Act::Answer } else { Act::Grow }, None).await;
        longer.read(0..8).await.unwrap();
        assert!(refused(&longer, 0..8).await.contains("has 11 bytes, and should have 10"));
        let (other, _) = file(|_| Act::Answer, Some(11)).await;
        assert!(refused(&other, 0..8).await.contains("should have 11"));
    }

    #[tokio::test]
    async fn a_file_that_is_overwritten_or_gone_is_an_error() {
        let (file, store) = file(|_| Act::Answer, Some(10)).await;
        assert_eq!(file.read(0..2).await.unwrap(), BYTES[..2]);
        store.put_opts(&file.path, (&b"9876543210"[..]).into(), Default::default()).await.unwrap();
        assert!(refused(&file, 2..4).await.contains("was overwritten"));
        let gone = StoredFile { path: Path::from("t/_indices/u/b"), ..file };
        assert!(refused(&gone, 0..2).await.contains("is gone"));
    }

    #[tokio::test]
    async fn no_byte_from_a_store_that_lies_and_is_overwritten_is_wrong() {
        const ACTS: [Act; 7] =
            [Act::Answer, Act::Shorten, Act::Answer, Act::Shift, Act::Grow, Act::Break, Act::Fail];
        let contents: [&[u8]; 3] = [BYTES, b"9876543210", b"abcdefghijk"];
        // The script has no state, so it scatters the acts by the number of the request.
        let script = |n: usize| ACTS[(n.wrapping_mul(0x9e37_79b9) >> 7) % ACTS.len()];
        let (file, store) = file(script, None).await;
        let (mut answers, mut refusals) = (0, 0);
        for round in 0..2000 {
            let size =
                [None, Some(10), Some(11)][round % 3].map_or_else(OnceLock::new, OnceLock::from);
            let (table, path, inner) =
                (file.table.clone(), file.path.clone(), Arc::clone(&file.store));
            let opened = StoredFile { table, store: inner, path, size, e_tag: OnceLock::new() };
            let mut may_be = contents.to_vec();
            for step in 0..6 {
                let start = (round + 3 * step) % 8;
                match opened.read(start as u64..start as u64 + 2).await {
                    Err(_) => refusals += 1,
                    Ok(bytes) => {
                        answers += 1;
                        may_be.retain(|it| it[start..start + 2] == bytes);
                        assert!(!may_be.is_empty(), "round {round}, step {step}: {bytes:?}");
                    }
                }
                if step == round % 5 {
                    let now = contents[round / 7 % 3].to_vec();
                    store.put_opts(&file.path, now.into(), Default::default()).await.unwrap();
                }
            }
        }
        assert!(answers > 1000 && refusals > 1000, "{answers}, {refusals}");
    }
}
