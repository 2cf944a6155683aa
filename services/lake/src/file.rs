//! Reads index and deletion files of tables by ranges of bytes, for I/O nodes that cache them.
//!
//! Neither the manifest nor the dataset is opened. What a file contains is not looked at here: `store/checked.rs` does
//! that where Lance reads it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use lance_core::Error as LanceError;
use lance_io::object_store::ObjectStore as LanceStore;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt,
};
use tables::{FilePath, FileSource, FileTable, RecentBlocks, TableUri};
use wire::Fault;

use crate::diagnose::diagnose;
use crate::error::{LakeError, Result};
use crate::fault::fault_of;
use crate::opener::Opener;
use crate::store::CheckedByReader;

/// A file of a table in its store.
struct StoredFile {
    table: TableUri,
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: u64,
    /// The entity tag of the file's first answer. Later reads ask for the same one, so that no two reads see different
    /// files.
    e_tag: OnceLock<String>,
}

/// Opens a file of a table, as a table. If `bytes`, the file's size, is not known, the store is asked for it.
///
/// Errors: `Corrupt` if there is no such file, and errors of the store.
pub(crate) async fn open_file(
    opener: &Opener,
    recent: &RecentBlocks,
    table: &TableUri,
    path: &FilePath,
    bytes: Option<u64>,
) -> std::result::Result<FileTable, Fault> {
    let opened = async {
        let params = opener.store_params(table).await?;
        let registry = opener.session().store_registry();
        let blame = |error| diagnose(table.as_str(), error);
        let store = LanceStore::from_uri_and_params(registry, table.as_str(), &params);
        let (store, folder) = store.await.map_err(blame)?;
        let path = path.as_str().split('/').fold(folder, |path, part| path.join(part));
        let (table, store) = (table.clone(), Arc::clone(&store.inner));
        let mut file =
            StoredFile { table, store, path, bytes: bytes.unwrap_or(0), e_tag: OnceLock::new() };
        if bytes.is_none() {
            let meta = file.store.head(&file.path).await.map_err(|error| file.blame(error))?;
            file.bytes = meta.size;
            file.pin(&meta);
        }
        Ok(file)
    };
    let timeout = tokio::time::timeout(opener.open_timeout(), opened).await;
    let file = timeout.unwrap_or_else(|_| {
        let why = format!("no answer within {:?}", opener.open_timeout());
        Err(LakeError::StoreUnreachable { uri: table.to_string(), why })
    });
    let file = file.map_err(|error: LakeError| fault_of(&error))?;
    FileTable::new(table, path, file.bytes, Box::new(file), recent.clone())
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
        if answer.meta.size != self.bytes {
            let (now, before) = (answer.meta.size, self.bytes);
            return Err(self.corrupt(format!("has {now} bytes, and should have {before}")));
        }
        if answer.range != range {
            let (sent, asked) = (&answer.range, &range);
            return Err(self.corrupt(format!("was asked for bytes {asked:?}, and sent {sent:?}")));
        }
        self.pin(&answer.meta);
        answer.bytes().await.map_err(|error| self.blame(error))
    }

    fn pin(&self, meta: &ObjectMeta) {
        if let Some(e_tag) = &meta.e_tag {
            // Of concurrent first answers, the first one counts. `FileTable` checks the length of the others.
            let _ = self.e_tag.set(e_tag.clone());
        }
    }

    fn blame(&self, error: StoreError) -> LakeError {
        match error {
            StoreError::NotFound { .. } => {
                self.corrupt("is gone: no version that is left may name it".into())
            }
            StoreError::Precondition { .. } => {
                self.corrupt("was overwritten while it was read".into())
            }
            error => diagnose(self.table.as_str(), LanceError::from(error)),
        }
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
