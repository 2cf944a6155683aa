//! The simulated object store: returns the true rows after a delay, or a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
use crate::files::{Content, File};
use crate::truth::Version;

/// The key in the metadata of the fault for a file that was overwritten since it was opened.
pub const OVERWRITTEN: &str = "overwritten";

/// The store that all nodes share.
#[derive(Clone)]
pub struct Store(Arc<Mutex<StoreState>>);

struct StoreState {
    dice: Dice,
    /// Whether blocks of files that were read are kept. If not, each miss of a drive is a read of the store.
    keeps_blocks: bool,
    troubles: StoreTroubles,
    /// For each file that was ever overwritten, by its path, how often. Each second time, its own bytes are written.
    overwritten: BTreeMap<&'static str, u64>,
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
    /// The number of reads of a file in 1,000 whose answers are cut short, or longer than what was asked for.
    pub truncated_per_mille: u64,
    /// The paths of the files that are overwritten in place, by more bytes.
    pub overwritten: BTreeSet<&'static str>,
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
            overwritten: BTreeSet::new(),
            vanished: BTreeSet::new(),
        }
    }
}

impl Store {
    /// Creates a store without faults. Three of four seeds keep blocks that were read, which takes less time.
    pub fn new(seed: u64) -> Self {
        let (dice, troubles) = (Dice::new(seed, "store"), StoreTroubles::default());
        let (keeps_blocks, overwritten) = (!seed.is_multiple_of(4), BTreeMap::new());
        Self(Arc::new(Mutex::new(StoreState { dice, keeps_blocks, troubles, overwritten })))
    }

    /// Returns whether blocks of files that were read are kept.
    pub fn keeps_blocks(&self) -> bool {
        self.lock().keeps_blocks
    }

    /// Sets the faults.
    pub fn set_troubles(&self, troubles: StoreTroubles) {
        let mut state = self.lock();
        let changed = state.troubles.overwritten.symmetric_difference(&troubles.overwritten);
        for path in changed.copied().collect::<Vec<_>>() {
            *state.overwritten.entry(path).or_default() += 1;
        }
        state.troubles = troubles;
    }

    /// Returns what a file contains, and its entity tag.
    fn content(&self, file: &'static File) -> (Content, u64) {
        let tag = self.lock().overwritten.get(file.path).copied().unwrap_or_default();
        (file.content(tag % 2 == 1), tag)
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates one request. With `fragment`, it reads the file of that fragment.
    async fn request(&self, fragment: Option<u32>) -> Result<(), Fault> {
        let (wait, fails) = {
            let StoreState { dice, troubles, .. } = &mut *self.lock();
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
            let (content, tag) = self.content(file);
            let tag = if bytes.is_none() { OnceLock::from(tag) } else { OnceLock::new() };
            let bytes = bytes.unwrap_or(content.bytes());
            let source = Arc::new(StoredFile { file, bytes, tag, store: self.clone() });
            // All blocks of a file have room, or none: when this cache evicts one depends on real time.
            let kept = if self.keeps_blocks() { 8 << 20 } else { 0 };
            FileTable::new(table, path, bytes, source, BlockReads::new(kept))
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
    /// The size of the file that was opened.
    bytes: u64,
    /// The tag in the first answer.
    tag: OnceLock<u64>,
    store: Store,
}

impl FileSource for StoredFile {
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Fault>> {
        async move {
            self.store.request(None).await?;
            let (content, tag) = self.store.content(self.file);
            if content.bytes() != self.bytes || *self.tag.get_or_init(|| tag) != tag {
                let what = format!("{} was overwritten while it was read", self.file.path);
                return Err(
                    Fault::new(Reason::TableDamaged, what).with(OVERWRITTEN, self.file.path)
                );
            }
            let mut bytes = content.read(range);
            let StoreState { dice, troubles, .. } = &mut *self.store.lock();
            if dice.per_mille(troubles.truncated_per_mille) {
                bytes.resize(dice.below(2 * bytes.len()), 0);
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
        _bytes_max: u64,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>> {
        async move {
            self.store.request(Some(fragment)).await?;
            Ok(vec![self.fragment(fragment)?.read(rows, columns)])
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
