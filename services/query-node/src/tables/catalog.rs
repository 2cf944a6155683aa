//! The catalog: maps names to open tables.
//!
//! The latest version, or the pinned one, of each table that is configured by name is kept open. New versions are
//! opened in the background, and a request waits for one only if it requires a newer version than the current one
//! ([`Catalog::catch_up`]). Other versions are opened on request, and a bounded number of them is cached. A table that
//! cannot be opened is listed with its error and tried again.
//!
//! A branch is like a table of its own, which is opened by the first request for it (`branches.rs`).
//!
//! Tables of folders come and go with each listing (`folders.rs` says which names they have). Such a table is opened by the
//! first request for it, and is then like any other until it is closed (`idle.rs`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use lake::{BranchName, Lake, LakeError, Table, TableUri, fault_of, on_runtime};
use moka::future::Cache;
use tables::{CacheUse, StoreUse};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tonic::Code;
use tracing::{info, warn};
use wire::Fault;

use super::asked::AskedVersion;
use super::branches::{self, BranchKey, Branches};
use super::dropped::{DroppedSegments, RELEASE_AFTER};
use super::entry::{Entry, FailedAttempt, TableState};
use super::folders::{Folder, assign};
use super::idle::{OpenedInFolder, to_close};
use super::open::OpenTable;
use crate::config::{QueryConfig, TableConfig};
use crate::error::{QueryError, Result};
use crate::key_index::{KeyIndexes, PageOutcome, RunSource, WAIT_MS, WriteSchedule};
use crate::recall_curves::{CurveCounts, LOOK_EVERY};

/// Maximum number of tables that are checked for new versions concurrently. At 30 ms for a request, a node checks 500
/// tables in the default `refresh_interval` of 2 s.
const REFRESHES_MAX: usize = 8;

/// The longest time that a node that starts waits for the indexes of a table to be loaded.
const INDEXES_PATIENCE: Duration = Duration::from_secs(600);

/// The longest time that a new version waits for its indexes to be loaded, or for its files and the runs of its key
/// index. It is short, because callers may wait for the version, and other tables are not looked at meanwhile.
const NEW_VERSION_PATIENCE: Duration = Duration::from_secs(5);

/// The time between two checks whether runs of key indexes are due to be written. It takes no request.
const WRITES_DUE_EVERY: Duration = Duration::from_millis(500);

/// The time between two checks whether files are due to be released.
const RELEASES_DUE_EVERY: Duration = Duration::from_secs(10);

/// The tables by their names.
type Entries = BTreeMap<String, Arc<Entry>>;

/// All tables of a node.
pub struct Catalog {
    lake: Lake,
    key_indexes: KeyIndexes,
    curve_counts: Arc<CurveCounts>,
    /// The tables that are configured by name.
    named: BTreeMap<String, TableConfig>,
    /// All tables. Replaced as a whole when the tables of folders have changed.
    entries: ArcSwap<Entries>,
    /// The folders, with their last listings.
    folders: ArcSwap<Vec<Folder>>,
    branches: Branches,
    /// Held while the folders are listed.
    listing: tokio::sync::Mutex<()>,
    /// The number of entries that were created.
    created: AtomicU64,
    /// The number of refreshes.
    round: AtomicU64,
    /// Versions other than the current ones, by the number of the entry, its generation and the version.
    versions: Cache<(u64, u64, u64), Arc<OpenTable>>,
    /// Index segments whose files I/O nodes may evict.
    dropped: Arc<DroppedSegments>,
    /// The runtime that opens tables. Tasks that a table spawns must outlive the core whose request opened it.
    background: Handle,
}

/// An entry of [`Catalog::list`].
pub struct Listed {
    /// The table's name.
    pub name: String,
    /// The current version, if it is open.
    pub current: Option<Arc<OpenTable>>,
    /// The reason why the table cannot be opened or followed.
    pub fault: Option<Fault>,
    /// Whether the first request for the table opens it.
    pub opens_on_request: bool,
}

impl Catalog {
    /// Creates the catalog. Opens no table and lists no folder yet.
    pub fn new(lake: Lake, config: &QueryConfig, background: Handle) -> Self {
        let curve_counts = Arc::new(CurveCounts::default());
        let numbered = (0..).zip(&config.tables);
        let entries = numbered.map(|(id, (name, config))| {
            (name.clone(), Arc::new(Entry::named(id, name, config, &curve_counts)))
        });
        let entries: Entries = entries.collect();
        let folders = config.folders.iter().cloned().map(Folder::new).collect();
        Self {
            created: AtomicU64::new(entries.len() as u64),
            entries: ArcSwap::from_pointee(entries),
            named: config.tables.clone(),
            folders: ArcSwap::from_pointee(folders),
            branches: Branches::new(config.refresh_interval),
            listing: tokio::sync::Mutex::default(),
            round: AtomicU64::new(0),
            key_indexes: KeyIndexes::new(config.key_index.as_u64(), background.clone()),
            versions: Cache::new(config.versions_max),
            dropped: Arc::default(),
            lake,
            curve_counts,
            background,
        }
    }

    /// Returns the maximum memory of all key indexes and the part in use, in bytes.
    pub fn key_index_memory(&self) -> (u64, u64) {
        self.key_indexes.memory()
    }

    /// Returns the number of runs of key indexes by source, in the order of [`RunSource::NAMES`], and of files that were
    /// refused, since the start.
    pub fn key_index_runs(&self) -> ([u64; RunSource::NAMES.len()], u64) {
        self.key_indexes.run_counts()
    }

    /// Returns the number of pages of key indexes that look-ups needed, by outcome, in the order of
    /// [`PageOutcome::NAMES`], since the start.
    pub fn key_index_pages(&self) -> [u64; PageOutcome::NAMES.len()] {
        self.key_indexes.page_counts()
    }

    /// Returns the number of runs of key indexes that were written beside their tables, and how often that failed, since
    /// the start.
    pub fn key_index_writes(&self) -> (u64, u64) {
        self.key_indexes.write_counts()
    }

    /// Returns the number of files of recall curves that were refused since the start.
    pub fn recall_curves_refused(&self) -> u64 {
        self.curve_counts.refused()
    }

    /// Returns counters of the requests to object stores since the start.
    pub fn store_use(&self) -> StoreUse {
        self.lake.store_use()
    }

    /// Returns the use of the caches of indexes, metadata and the rows that pass filters.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        self.lake.cache_use().await
    }

    /// Returns one version of a table. Opens it if necessary.
    ///
    /// # Errors
    /// [`QueryError::TableUnknown`], `BadRequest` for a text that is no branch's name, or the reason why the version
    /// cannot be opened.
    pub async fn open(&self, asked: AskedVersion<'_>) -> Result<Arc<OpenTable>> {
        let AskedVersion { table: name, version, .. } = asked;
        let branch = asked.branch()?;
        let is_asked = |open: &OpenTable| version == 0 || version == open.version();
        let entry = {
            let entries = self.entries.load();
            let entry = entries.get(name).ok_or_else(|| QueryError::TableUnknown {
                table: name.to_owned(),
                available: Vec::new(),
            })?;
            entry.use_in(self.round.load(Ordering::Relaxed));
            match &entry.state().current {
                Some(current) if branch.is_none() && is_asked(current) => {
                    return Ok(Arc::clone(current));
                }
                _ => Arc::clone(entry),
            }
        };
        // Opening is rare and its future is large, so it is boxed to keep it out of every request's future.
        let opened = async {
            let entry = match branch {
                None => entry,
                Some(branch) => self.open_branch(&entry, branch).await?,
            };
            let current = entry.state().current.clone();
            let current = match current {
                Some(current) => current,
                None => self.open_current(&entry, OpenedFor::Request).await?,
            };
            match is_asked(&current) {
                true => Ok(current),
                false => self.open_version(&entry, version).await,
            }
        };
        on_runtime(&self.background, opened.boxed()).await
    }

    /// Returns the runtime on which tables are opened and read.
    pub fn background(&self) -> &Handle {
        &self.background
    }

    /// Returns whether there is a table of that name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.load().contains_key(name)
    }

    /// Returns the names for which `is_shown` holds, sorted: those after `after`, and at most `count`.
    pub fn names(&self, is_shown: impl Fn(&str) -> bool, after: &str, count: usize) -> Vec<String> {
        let entries = self.entries.load();
        let after = (Bound::Excluded(after), Bound::Unbounded);
        let names = entries.range::<str, _>(after).map(|(name, _)| name);
        names.filter(|name| is_shown(name)).take(count).cloned().collect()
    }

    /// Lists all tables, sorted by name.
    pub fn list(&self) -> Vec<Listed> {
        let entries = self.entries.load_full();
        let listed = entries.values().map(|entry| {
            let TableState { current, fault, .. } = TableState::clone(&entry.state());
            let (name, opens_on_request) = (entry.name.clone(), entry.opens_on_request());
            Listed { name, current, fault, opens_on_request }
        });
        listed.collect()
    }

    /// Returns the folders whose tables are served, in the order of the configuration.
    pub fn folders(&self) -> Arc<Vec<Folder>> {
        self.folders.load_full()
    }

    /// Returns why an open table, or its branch, cannot be followed.
    pub async fn fault(&self, open: &OpenTable) -> Option<Fault> {
        let (_, entry) = self.entry(&open.name, open.table.branch()).await?;
        entry.state().fault.clone()
    }

    /// Returns the entry of a table; with `branch`, the key and the entry of that branch, if it is open.
    async fn entry(
        &self,
        name: &str,
        branch: Option<&BranchName>,
    ) -> Option<(Option<BranchKey>, Arc<Entry>)> {
        let table = self.entries.load().get(name).cloned()?;
        match branch {
            None => Some((None, table)),
            Some(branch) => {
                let key = (table.id, branch.clone());
                let entry = self.branches.get(&key).await?;
                Some((Some(key), entry))
            }
        }
    }

    /// Lists the folders: tables that have appeared are served from here on, those that have gone are not. Never fails: if
    /// a folder cannot be listed, the tables that were found before stay, and the error is logged when it changes.
    pub async fn list_folders(&self) {
        let _listing = self.listing.lock().await;
        let before = self.folders.load_full();
        if before.is_empty() {
            return;
        }
        let listings =
            before.iter().map(|it| self.lake.list_folder(&it.folder, it.manifest()).boxed());
        let listings = on_runtime(&self.background, join_all(listings).boxed()).await;
        let mut folders = Vec::clone(&before);
        for (folder, listed) in folders.iter_mut().zip(listings) {
            folder.listed(listed);
        }
        let found = assign(&mut folders, &self.named);
        for (folder, before) in folders.iter().zip(before.iter()) {
            let uri = folder.folder.as_str();
            for problem in folder.problems_since(before) {
                warn!(folder = uri, "{problem}");
            }
            if before.error().is_some() && folder.error().is_none() {
                info!(folder = uri, "the folder can be listed again");
            }
        }
        self.replace_tables(found);
        self.folders.store(Arc::new(folders));
    }

    /// Replaces the tables of folders by those that were found. A table that was there before keeps its entry.
    fn replace_tables(&self, found: BTreeMap<String, TableUri>) {
        let before = self.entries.load_full();
        let named = before.iter().filter(|(_, entry)| !entry.opens_on_request());
        let mut entries: Entries =
            named.map(|(name, entry)| (name.clone(), Arc::clone(entry))).collect();
        let mut added = 0;
        for (name, uri) in found {
            let known = before.get(&name).filter(|entry| entry.is_at(&uri)).cloned();
            let entry = known.unwrap_or_else(|| {
                added += 1;
                let id = self.created.fetch_add(1, Ordering::Relaxed);
                Arc::new(Entry::in_folder(id, &name, uri, &self.curve_counts))
            });
            entries.insert(name, entry);
        }
        let removed = before.len() + added - entries.len();
        if added + removed > 0 {
            info!(added, removed, tables = entries.len(), "the tables of folders have changed");
            self.entries.store(Arc::new(entries));
        }
    }

    /// Closes tables of folders that nobody has asked for lately, and those beyond the maximum.
    fn close_tables(&self) {
        let entries = self.entries.load_full();
        let in_use = entries.values().filter(|it| it.opens_on_request() && it.is_in_use());
        let in_use: Vec<_> = in_use.collect();
        let open = in_use.iter().map(|entry| {
            let current = entry.state().current.clone();
            let fragments = current.map_or(0, |open| open.table.fragments().len());
            OpenedInFolder { used: entry.used(), fragments }
        });
        let open: Vec<_> = open.collect();
        for at in to_close(&open, self.round.load(Ordering::Relaxed)) {
            in_use[at].close();
        }
    }

    /// Opens tables that are not open; those of folders only if a request has begun to open them. Updates open tables
    /// and branches to their latest version, unless their version is pinned. Starts to build the missing runs of their
    /// key indexes, and waits for those of a new version if look-ups would be slow without them ([`Entry::prepare`]).
    /// Looks for new recall curves. Never fails: an error is kept in the table's state, and logged when it changes.
    pub async fn refresh(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
        self.close_tables();
        let entries = self.entries.load_full();
        let tables = entries.values().filter(|it| !it.opens_on_request() || it.is_in_use());
        let tables = tables.map(|entry| (None, Arc::clone(entry)));
        let branches = self.branches.all().into_iter().map(|(key, entry)| (Some(key), entry));
        let refreshes = tables.chain(branches).map(|(key, it)| self.refresh_one(key, it).boxed());
        let refreshes: Vec<_> = refreshes.collect();
        stream::iter(refreshes).buffer_unordered(REFRESHES_MAX).collect::<()>().await;
    }

    /// Loads the indexes of the open tables whose configuration asks for it. Never fails: an error is logged.
    pub async fn warm_indexes(&self) {
        let entries = self.entries.load_full();
        let open = entries.values().filter_map(|entry| {
            let current = entry.state().current.clone()?;
            Some(async move { entry.load_indexes(&current, INDEXES_PATIENCE).await })
        });
        let open: Vec<_> = open.map(FutureExt::boxed).collect();
        stream::iter(open).buffer_unordered(REFRESHES_MAX).collect::<()>().await;
    }

    /// Writes the runs of key indexes beside the tables whose configuration asks for it, one table after the other, each
    /// time that the runs in memory cover a new version. Ends only if there are no such tables. It may be dropped at any
    /// time.
    pub async fn write_key_runs(&self) {
        let entries = self.entries.load_full();
        let asked = entries.values().filter(|entry| entry.config.write_key_runs);
        let mut asked: Vec<_> = asked.map(|entry| (entry, WriteSchedule::default())).collect();
        while !asked.is_empty() {
            tokio::time::sleep(WRITES_DUE_EVERY).await;
            for (entry, schedule) in &mut asked {
                let TableState { current, generation, .. } = TableState::clone(&entry.state());
                let Some(current) = current else { continue };
                let Some(keys) = current.keys.as_ref().filter(|keys| keys.covers_all()) else {
                    continue;
                };
                let wait = Duration::from_millis(rand::random_range(WAIT_MS));
                let version = (generation, current.version());
                if schedule.is_due(version, Instant::now(), wait) {
                    let is_written = keys.write(&self.lake).await;
                    schedule.ended(version, Instant::now(), is_written);
                }
            }
        }
    }

    /// Has the I/O nodes evict the files of indexes that were dropped, [`RELEASE_AFTER`] later. Never ends.
    pub async fn release_dropped_files(&self) {
        loop {
            tokio::time::sleep(RELEASES_DUE_EVERY).await;
            self.release_files_dropped(RELEASE_AFTER).await;
        }
    }

    /// As [`release_dropped_files`](Self::release_dropped_files), once, for indexes that were dropped `after` ago.
    pub async fn release_files_dropped(&self, after: Duration) {
        self.dropped.release(&self.lake, after, || self.open_versions()).await;
    }

    /// Returns all versions that are open: those of tables and branches, and those that requests have named.
    fn open_versions(&self) -> Vec<Arc<OpenTable>> {
        let (entries, branches) = (self.entries.load_full(), self.branches.all());
        let entries = entries.values().chain(branches.iter().map(|(_, entry)| entry));
        let current = entries.filter_map(|entry| entry.state().current.clone());
        current.chain(self.versions.iter().map(|(_, version)| version)).collect()
    }

    /// Returns when the latest version of a table or branch was last looked for with success; 1970 if it never was, or
    /// the table is unknown. A version that is opened after this call is not older than the one that was found then.
    pub async fn looked_at(&self, asked: AskedVersion<'_>) -> SystemTime {
        let Ok(branch) = asked.branch() else { return SystemTime::UNIX_EPOCH };
        let entry = self.entry(asked.table, branch.as_ref()).await;
        entry.map_or(SystemTime::UNIX_EPOCH, |(_, entry)| looked_at(&entry))
    }

    /// Looks for a newer version of an open table, or of its branch, and makes it the current one without waiting for the
    /// runs of its key index. Callers that arrive while this is in progress wait. They share its failure, or else the
    /// next attempt.
    ///
    /// # Errors
    /// The reason why the latest version is not known.
    pub async fn catch_up(&self, open: &OpenTable) -> std::result::Result<(), Fault> {
        let entry = self.entry(&open.name, open.table.branch()).await;
        let Some((key, entry)) = entry else { return Ok(()) };
        let (asked, began) = (SystemTime::now(), Instant::now());
        let _awaiting = entry.await_latest();
        let mut failed = entry.following.lock().await;
        if let Some(failed) = failed.as_ref().filter(|failed| failed.ended >= began) {
            return Err(failed.fault.clone());
        }
        if looked_at(&entry) >= asked {
            return Ok(());
        }
        on_runtime(&self.background, self.follow(key, &entry, &mut failed).boxed()).await
    }

    async fn refresh_one(&self, key: Option<BranchKey>, entry: Arc<Entry>) {
        {
            let mut failed = entry.following.lock().await;
            // The error is in the table's state.
            let _ = self.follow(key, &entry, &mut failed).await;
        }
        let current = entry.state().current.clone();
        let Some(current) = current else { return };
        if let Some(keys) = &current.keys {
            keys.follow();
        }
        entry.curves.look(&current.table, LOOK_EVERY).await;
    }

    /// Looks for a newer version of a table; with `key`, of a branch, which is closed if it was deleted.
    /// Records a failure in `failed`, which `entry.following` guards.
    async fn follow(
        &self,
        key: Option<BranchKey>,
        entry: &Arc<Entry>,
        failed: &mut Option<FailedAttempt>,
    ) -> std::result::Result<(), Fault> {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let weight_before = branches::weight(entry);
        let is_open = entry.state().current.is_some();
        let outcome = self.follow_latest(entry).await;
        if let Some(key) = &key {
            match &outcome {
                Ok(()) => self.branches.weigh_again(key, entry, weight_before).await,
                Err(fault) if fault.reason.code() == Code::NotFound => {
                    self.branches.close(key).await;
                }
                Err(_) => {}
            }
        }
        *failed = outcome.as_ref().err().map(FailedAttempt::ended_now);
        outcome?;
        // A table that was not open may have been opened by a request that looked before this began.
        if is_open {
            entry.looked_at.store(began.as_micros() as u64, Ordering::Release);
        }
        Ok(())
    }

    async fn follow_latest(&self, entry: &Entry) -> std::result::Result<(), Fault> {
        let current = entry.state().current.clone();
        let Some(current) = current else {
            // `open_current` has recorded the error.
            return Ok(self.open_current(entry, OpenedFor::Refresh).await.map(drop)?);
        };
        if entry.config.version.is_some() {
            return Ok(());
        }
        let (newer, is_reopened) = match current.table.newer().await {
            // The manifests are gone. Opening the table anew shows whether it was dropped or recreated.
            Err(LakeError::Corrupt { .. }) => (entry.load(&self.lake, None).await.map(Some), true),
            newer => (newer, false),
        };
        match newer {
            Ok(None) => {
                entry.clear_fault();
                Ok(())
            }
            Err(error) => Err(entry.set_fault(entry.name_in(fault_of(&error)))),
            Ok(Some(table)) => {
                let key = entry.config.key.as_deref();
                match OpenTable::new(&entry.name, table, key, &self.key_indexes, &entry.curves) {
                    Ok(open) => {
                        match is_reopened {
                            false => entry.prepare(&current, &open, NEW_VERSION_PATIENCE).await,
                            // The data of the version before is gone: there is nothing to prepare from.
                            true => entry.load_new_indexes(&open, NEW_VERSION_PATIENCE).await,
                        }
                        let new = open.table.clone();
                        entry.replace_version(&current, open);
                        self.note_dropped(entry, current.table.clone(), new);
                        Ok(())
                    }
                    Err(error) => Err(entry.set_fault(entry.name_in(error.into()))),
                }
            }
        }
    }

    /// Notes the index segments that a new version has dropped, in the background: nobody waits for it.
    fn note_dropped(&self, entry: &Entry, before: Table, after: Table) {
        let (dropped, name) = (Arc::clone(&self.dropped), entry.name.clone());
        self.background.spawn(async move { dropped.compare(&name, &before, &after).await });
    }

    /// Opens the current version of a table that is not open. If another attempt is in progress, waits until it ends, or
    /// until its caller has left it unfinished.
    async fn open_current(&self, entry: &Entry, opened_for: OpenedFor) -> Result<Arc<OpenTable>> {
        let began = Instant::now();
        entry.want();
        let mut failed = entry.opening.lock().await;
        if let Some(current) = entry.state().current.clone() {
            return Ok(current);
        }
        let just_failed = failed.as_ref().filter(|failed| failed.ended >= began);
        if let (Some(failed), OpenedFor::Request) = (just_failed, opened_for) {
            return Err(failed.fault.clone().into());
        }
        let outcome = match self.load(entry, entry.config.version).await {
            Ok(open) => Ok(entry.replace(open)),
            Err(fault) => Err(entry.set_fault(fault)),
        };
        *failed = outcome.as_ref().err().map(FailedAttempt::ended_now);
        // Callers that wait look at the state, so it has to be set before they go on.
        drop(failed);
        if entry.opens_on_request() {
            self.close_tables();
        }
        Ok(outcome?)
    }

    async fn open_version(&self, entry: &Entry, version: u64) -> Result<Arc<OpenTable>> {
        let name = (entry.id, entry.state().generation, version);
        let open = async { self.load(entry, Some(version)).await.map(Arc::new) };
        let opened = self.versions.try_get_with(name, open.boxed()).await;
        opened.map_err(|fault| QueryError::Fault(Fault::clone(&fault)))
    }

    /// Returns the entry of a branch of `table`. Opens the branch if necessary.
    async fn open_branch(&self, table: &Entry, branch: BranchName) -> Result<Arc<Entry>> {
        let open = async {
            let id = self.created.fetch_add(1, Ordering::Relaxed);
            let entry = Arc::new(Entry::branch(id, table, branch.clone()));
            entry.replace(self.load(&entry, None).await?);
            Ok(entry)
        };
        Ok(self.branches.get_or_open((table.id, branch.clone()), open.boxed()).await?)
    }

    /// Opens the latest version of a table or branch, or the given one.
    async fn load(
        &self,
        entry: &Entry,
        version: Option<u64>,
    ) -> std::result::Result<OpenTable, Fault> {
        let key = entry.config.key.as_deref();
        let opened = match entry.load(&self.lake, version).await {
            Ok(table) => OpenTable::new(&entry.name, table, key, &self.key_indexes, &entry.curves),
            Err(error) => Err(error.into()),
        };
        opened.map_err(|error| entry.name_in(error.into()))
    }
}

/// The purpose of opening a table. If the attempt that it waited for has failed, a request fails with the same fault, and
/// a refresh tries again.
#[derive(Clone, Copy)]
enum OpenedFor {
    Request,
    Refresh,
}

/// Returns when a table's latest version was last looked for with success.
fn looked_at(entry: &Entry) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(entry.looked_at.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests;
