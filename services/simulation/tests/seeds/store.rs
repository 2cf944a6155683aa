//! The simulated object store: returns the true rows after a delay, or a fault.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tables::{
    BlockReads, BranchName, DeletedRows, FilePath, FileSource, FileTable, FragmentInfo, StoreUse,
    Table, TableUri, Tables,
};
use wire::{Fault, Reason};

use crate::dice::Dice;
use crate::files::File;
use crate::truth::Version;

/// The store that all nodes share.
#[derive(Clone)]
pub struct Store(Arc<Mutex<StoreState>>);

struct StoreState {
    dice: Dice,
    troubles: StoreTroubles,
}

/// The faults of the store.
#[derive(Clone, Debug)]
pub struct StoreTroubles {
    /// The latency of a request, in ms.
    pub latency_ms: RangeInclusive<u64>,
    /// The number of requests in 1,000 that fail.
    pub failing_per_mille: u64,
    /// The number of requests in 1,000 that take ten seconds longer.
    pub hanging_per_mille: u64,
    /// The number of reads of a file in 1,000 whose answers are cut short.
    pub truncated_per_mille: u64,
    /// The ids of the fragments, in any table, whose files are missing.
    pub vanished: BTreeSet<u32>,
}

impl Default for StoreTroubles {
    fn default() -> Self {
        Self {
            latency_ms: 1..=12,
            failing_per_mille: 0,
            hanging_per_mille: 0,
            truncated_per_mille: 0,
            vanished: BTreeSet::new(),
        }
    }
}

impl Store {
    /// Creates a store without faults.
    pub fn new(seed: u64) -> Self {
        let (dice, troubles) = (Dice::new(seed, "store"), StoreTroubles::default());
        Self(Arc::new(Mutex::new(StoreState { dice, troubles })))
    }

    /// Sets the faults.
    pub fn set_troubles(&self, troubles: StoreTroubles) {
        self.lock().troubles = troubles;
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates one request. With `fragment`, it reads the file of that fragment.
    async fn request(&self, fragment: Option<u32>) -> Result<(), Fault> {
        let (wait, fails) = {
            let StoreState { dice, troubles } = &mut *self.lock();
            let mut wait = dice.ms(troubles.latency_ms.clone());
            if dice.per_mille(troubles.hanging_per_mille) {
                wait += std::time::Duration::from_secs(10);
            }
            (wait, dice.per_mille(troubles.failing_per_mille))
        };
        tokio::time::sleep(wait).await;
        // A request that would have failed succeeds if the store has recovered in the meantime.
        if fails && self.lock().troubles.failing_per_mille > 0 {
            return Err(Fault::new(Reason::StoreUnreachable, "the store is not well"));
        }
        match fragment.filter(|it| self.lock().troubles.vanished.contains(it)) {
            Some(fragment) => {
                let what = format!("the file of fragment {fragment} is gone");
                Err(Fault::new(Reason::TableDamaged, what))
            }
            None => Ok(()),
        }
    }
}

impl Tables for Store {
    fn open<'a>(
        &'a self,
        uri: &'a TableUri,
        _: Option<&'a BranchName>,
        version: u64,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>> {
        async move {
            self.request(None).await?;
            match Version::find(uri.as_str(), version) {
                Some(version) => {
                    let (uri, store) = (uri.clone(), self.clone());
                    Ok(Arc::new(Opened { uri, version, store }) as _)
                }
                None => Err(Fault::new(Reason::VersionNotFound, format!("no {version} of {uri}"))),
            }
        }
        .boxed()
    }

    fn open_file<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: Option<u64>,
    ) -> BoxFuture<'a, Result<FileTable, Fault>> {
        async move {
            let missing = || Fault::new(Reason::TableDamaged, format!("no {path:?} in {table}"));
            if bytes.is_none() {
                self.request(None).await?;
            }
            let file = File::find(table.as_str(), path.as_str()).ok_or_else(missing)?;
            let source = Arc::new(StoredFile { file, store: self.clone() });
            let bytes = bytes.unwrap_or(file.bytes);
            FileTable::new(table, path, bytes, source, BlockReads::new(1 << 20))
        }
        .boxed()
    }

    fn latest_version<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            self.request(None).await?;
            let none = || Fault::new(Reason::TableNotFound, format!("no {uri}"));
            Version::latest(uri.as_str()).ok_or_else(none)
        }
        .boxed()
    }

    fn store_use(&self) -> StoreUse {
        StoreUse::default()
    }
}

/// A file that was opened through the store.
struct StoredFile {
    file: &'static File,
    store: Store,
}

impl FileSource for StoredFile {
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Fault>> {
        async move {
            self.store.request(None).await?;
            let mut bytes = self.file.read(range);
            let StoreState { dice, troubles } = &mut *self.store.lock();
            if dice.per_mille(troubles.truncated_per_mille) {
                bytes.truncate(dice.below(bytes.len()));
            }
            Ok(bytes.into())
        }
        .boxed()
    }
}

/// A version of a table that was opened through the store.
struct Opened {
    uri: TableUri,
    version: &'static Version,
    store: Store,
}

impl Table for Opened {
    fn uri(&self) -> &TableUri {
        &self.uri
    }

    fn identity(&self) -> String {
        format!("{} {}", self.version.uri, self.version.version)
    }

    fn schema(&self) -> &SchemaRef {
        &self.version.schema
    }

    fn column(&self, name: &str) -> Result<usize, Fault> {
        let no_column = |_| Fault::new(Reason::ColumnNotFound, format!("no column {name:?}"));
        self.version.schema.index_of(name).map_err(no_column)
    }

    fn is_blob(&self, column: &str) -> Result<bool, Fault> {
        self.column(column).map(|_| column == "blob")
    }

    fn fragments(&self) -> &[FragmentInfo] {
        &self.version.infos
    }

    fn file_identity(&self, fragment: u32, column: &str) -> Result<String, Fault> {
        let at = self.column(column)?;
        Ok(self.fragment(fragment)?.identity(fragment, at))
    }

    fn deleted(&self, fragment: u32) -> BoxFuture<'_, Result<Arc<DeletedRows>, Fault>> {
        async move {
            self.store.request(None).await?;
            Ok(Arc::clone(self.fragment(fragment)?.deleted()))
        }
        .boxed()
    }

    fn read_chunk<'a>(
        &'a self,
        fragment: u32,
        rows: Range<u32>,
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>> {
        async move {
            self.store.request(Some(fragment)).await?;
            Ok(self.fragment(fragment)?.read(rows, columns))
        }
        .boxed()
    }

    fn take<'a>(
        &'a self,
        addresses: &'a [RowAddr],
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>> {
        async move {
            let fragments: BTreeSet<_> = addresses.iter().map(|addr| addr.fragment()).collect();
            for fragment in fragments {
                self.store.request(Some(fragment)).await?;
            }
            match addresses.iter().find(|&&addr| !self.version.has(addr)) {
                Some(addr) => Err(Fault::new(Reason::RowNotFound, format!("no row {addr:?}"))),
                None => Ok(self.version.rows(addresses, columns)),
            }
        }
        .boxed()
    }
}

impl Opened {
    fn fragment(&self, id: u32) -> Result<&'static crate::truth::Fragment, Fault> {
        let none = || Fault::new(Reason::RowNotFound, format!("no fragment {id}"));
        self.version.fragment(id).ok_or_else(none)
    }
}
