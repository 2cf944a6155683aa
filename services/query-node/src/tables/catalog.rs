//! The catalog: maps names to open tables.
//!
//! The latest version of each table is kept open. New versions are opened in the background, and requests never wait
//! for them. Other versions are opened on request, and a bounded number of them is cached. A table that cannot be
//! opened is listed with its error and tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, Guard};
use futures::{FutureExt, StreamExt, stream};
use lake::{Lake, LakeError, fault_of, on_runtime};
use moka::future::Cache;
use tables::{CacheUse, StoreUse};
use tokio::runtime::Handle;
use tracing::{info, warn};
use wire::Fault;

use super::named::named;
use super::open::OpenTable;
use crate::config::{QueryConfig, TableConfig};
use crate::error::{QueryError, Result};
use crate::key_index::{KeyIndexes, RunSource};
use crate::recall_curves::{CurveCounts, LOOK_EVERY, TableCurves};

/// Maximum number of tables that are checked for new versions concurrently.
const REFRESHES_MAX: usize = 8;

/// The longest time that a node that starts waits for the indexes of a table to be loaded.
const INDEXES_PATIENCE: Duration = Duration::from_secs(600);

/// The longest time that a new version waits for its indexes to be loaded. It is short, because callers may wait for the
/// version.
const NEW_VERSION_PATIENCE: Duration = Duration::from_secs(5);

/// All configured tables of a node.
pub struct Catalog {
    lake: Lake,
    key_indexes: KeyIndexes,
    curve_counts: Arc<CurveCounts>,
    entries: BTreeMap<String, Entry>,
    /// Versions other than the current ones, by the table's name, its generation and the version.
    versions: Cache<(String, u64, u64), Arc<OpenTable>>,
    /// The runtime that opens tables. Tasks that a table spawns must outlive the core whose request opened it.
    background: Handle,
}

/// One configured table.
struct Entry {
    name: String,
    config: TableConfig,
    curves: Arc<TableCurves>,
    /// The table's state. All cores read it with each request, and it rarely changes.
    state: ArcSwap<TableState>,
    /// A lock that is held while the table is being opened, so that concurrent requests wait for one attempt.
    opening: tokio::sync::Mutex<()>,
    /// A lock that is held while a newer version is looked for, and opened.
    following: tokio::sync::Mutex<()>,
    /// When the latest version was last looked for, in microseconds since 1970: the time before it was asked for.
    followed: AtomicU64,
}

/// The state of a table.
#[derive(Clone, Default)]
struct TableState {
    /// The version for requests that name none: the latest, or the pinned one.
    current: Option<Arc<OpenTable>>,
    /// The reason why there is no current version, or why the table cannot be followed.
    fault: Option<Fault>,
    /// Counts how often the table was dropped and recreated. Cached versions of an earlier generation are not used.
    generation: u64,
}

/// An entry of [`Catalog::list`].
pub struct Listed<'a> {
    /// The table's name.
    pub name: &'a str,
    /// The current version, if it is open.
    pub current: Option<Arc<OpenTable>>,
    /// The reason why the table cannot be opened or followed.
    pub fault: Option<Fault>,
}

impl Catalog {
    /// Creates the catalog. Opens no table yet.
    pub fn new(lake: Lake, config: &QueryConfig, background: Handle) -> Self {
        let curve_counts = Arc::new(CurveCounts::default());
        let entry = |(name, config): (&String, &TableConfig)| {
            let (state, opening, following, followed) = Default::default();
            let files = &config.recall_curves;
            let curves = Arc::new(TableCurves::new(name, files, Arc::clone(&curve_counts)));
            let (own_name, config) = (name.clone(), config.clone());
            let entry =
                Entry { name: own_name, config, curves, state, opening, following, followed };
            (name.clone(), entry)
        };
        let entries = config.tables.iter().map(entry).collect();
        let key_indexes = KeyIndexes::new(config.key_index.as_u64(), background.clone());
        let versions = Cache::new(config.versions_max);
        Self { lake, key_indexes, curve_counts, entries, versions, background }
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

    /// Returns the number of files of recall curves that were refused since the start.
    pub fn recall_curves_refused(&self) -> u64 {
        self.curve_counts.refused()
    }

    /// Returns counters of the requests to object stores since the start.
    pub fn store_use(&self) -> StoreUse {
        self.lake.store_use()
    }

    /// Returns the use of the caches of indexes and metadata.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        self.lake.cache_use().await
    }

    /// Returns one version of a table; `version` 0 is the current one. Opens it if necessary.
    ///
    /// # Errors
    /// [`QueryError::TableUnknown`], or the reason why the table cannot be opened.
    pub async fn open(&self, name: &str, version: u64) -> Result<Arc<OpenTable>> {
        let entry = self.entries.get(name).ok_or_else(|| QueryError::TableUnknown {
            table: name.to_owned(),
            available: Vec::new(),
        })?;
        let current = entry.state().current.clone();
        let current = match current {
            Some(current) => Ok(current),
            // Opening is rare and its future is large, so it is boxed to keep it out of every request's future.
            None => {
                let open = self.open_current(entry, OpenedFor::Request).boxed();
                on_runtime(&self.background, open).await
            }
        };
        match (version, current) {
            (0, current) => current,
            (version, Ok(current)) if current.version() == version => Ok(current),
            (version, Ok(_)) => {
                on_runtime(&self.background, self.open_version(entry, version).boxed()).await
            }
            (_, Err(error)) => Err(error),
        }
    }

    /// Returns the runtime on which tables are opened and read.
    pub fn background(&self) -> &Handle {
        &self.background
    }

    /// Returns whether a table of that name is configured.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns the names of all tables, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Lists all tables, sorted by name.
    pub fn list(&self) -> impl Iterator<Item = Listed<'_>> {
        self.entries.values().map(|entry| {
            let TableState { current, fault, .. } = TableState::clone(&entry.state());
            Listed { name: &entry.name, current, fault }
        })
    }

    /// Returns why a table cannot be opened or followed.
    pub fn fault(&self, name: &str) -> Option<Fault> {
        self.entries.get(name)?.state().fault.clone()
    }

    /// Opens tables that are not open, and updates open tables to their latest version, unless their version is pinned.
    /// Starts to build the missing runs of their key indexes, without waiting for them. Never fails: an error is kept
    /// in the table's state, and logged when it changes.
    pub async fn refresh(&self) {
        let refreshes = self.entries.values().map(|entry| self.refresh_one(entry).boxed());
        let refreshes: Vec<_> = refreshes.collect();
        stream::iter(refreshes).buffer_unordered(REFRESHES_MAX).collect::<()>().await;
    }

    /// Loads the indexes of the open tables whose configuration asks for it. Never fails: an error is logged.
    pub async fn warm_indexes(&self) {
        let open = self.entries.values().filter_map(|entry| {
            let current = entry.state().current.clone()?;
            Some(async move { entry.load_indexes(&current, INDEXES_PATIENCE).await })
        });
        let open: Vec<_> = open.map(FutureExt::boxed).collect();
        stream::iter(open).buffer_unordered(REFRESHES_MAX).collect::<()>().await;
    }

    /// Returns when the latest version of a table was last looked for; 1970 if it never was, or the table is unknown.
    pub fn followed(&self, name: &str) -> SystemTime {
        let micros = self.entries.get(name).map_or(0, |it| it.followed.load(Ordering::Acquire));
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
    }

    /// Looks for a newer version of a table. Callers that wait while the table is looked at share the next look.
    ///
    /// # Errors
    /// The reason why the latest version is not known.
    pub async fn catch_up(&self, name: &str) -> std::result::Result<(), Fault> {
        let Some(entry) = self.entries.get(name) else { return Ok(()) };
        let asked = SystemTime::now();
        let _following = entry.following.lock().await;
        if self.followed(name) >= asked {
            return Ok(());
        }
        on_runtime(&self.background, self.follow(entry).boxed()).await
    }

    async fn refresh_one(&self, entry: &Entry) {
        {
            let _following = entry.following.lock().await;
            // The error is in the table's state.
            let _ = self.follow(entry).await;
        }
        let current = entry.state().current.clone();
        let Some(current) = current else { return };
        if let Some(keys) = &current.keys {
            keys.follow();
        }
        entry.curves.look(&current.table, LOOK_EVERY).await;
    }

    /// Looks for a newer version. `entry.following` must be held.
    async fn follow(&self, entry: &Entry) -> std::result::Result<(), Fault> {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.follow_latest(entry).await?;
        entry.followed.store(began.as_micros() as u64, Ordering::Release);
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
        let newer = match current.table.newer().await {
            // The manifests are gone. Opening the table anew shows whether it was dropped or recreated.
            Err(LakeError::Corrupt { .. }) => self.lake.open(&entry.config.uri).await.map(Some),
            newer => newer,
        };
        match newer {
            Ok(None) => {
                entry.clear_fault();
                Ok(())
            }
            Err(error) => Err(entry.set_fault(entry.named(fault_of(&error)))),
            Ok(Some(table)) => {
                let key = entry.config.key.as_deref();
                match OpenTable::new(&entry.name, table, key, &self.key_indexes, &entry.curves) {
                    Ok(open) => {
                        entry.load_indexes(&open, NEW_VERSION_PATIENCE).await;
                        entry.replace(open);
                        Ok(())
                    }
                    Err(error) => Err(entry.set_fault(entry.named(error.into()))),
                }
            }
        }
    }

    async fn open_current(&self, entry: &Entry, opened_for: OpenedFor) -> Result<Arc<OpenTable>> {
        let attempt = match entry.opening.try_lock() {
            Ok(attempt) => attempt,
            Err(_) => {
                let attempt = entry.opening.lock().await;
                // Another attempt has just ended.
                let state = TableState::clone(&entry.state());
                match (state, opened_for) {
                    (TableState { current: Some(current), .. }, _) => return Ok(current),
                    (TableState { fault: Some(fault), .. }, OpenedFor::Request) => {
                        return Err(fault.into());
                    }
                    _ => attempt,
                }
            }
        };
        let uri = &entry.config.uri;
        let table = match entry.config.version {
            Some(version) => self.lake.open_version(uri, version).await,
            None => self.lake.open(uri).await,
        };
        let key = entry.config.key.as_deref();
        let opened = table.map_err(QueryError::from).and_then(|table| {
            OpenTable::new(&entry.name, table, key, &self.key_indexes, &entry.curves)
        });
        let outcome = match opened {
            Ok(open) => Ok(entry.replace(open)),
            Err(error) => {
                let fault = entry.named(Fault::from(error));
                Err(entry.set_fault(fault).into())
            }
        };
        // Attempts that wait look at the state, so it has to be there before they go on.
        drop(attempt);
        outcome
    }

    async fn open_version(&self, entry: &Entry, version: u64) -> Result<Arc<OpenTable>> {
        let name = (entry.name.clone(), entry.state().generation, version);
        let open = async {
            let table = self.lake.open_version(&entry.config.uri, version).await?;
            let key = entry.config.key.as_deref();
            OpenTable::new(&entry.name, table, key, &self.key_indexes, &entry.curves).map(Arc::new)
        };
        let open = async { open.await.map_err(|error| entry.named(Fault::from(error))) };
        let opened = self.versions.try_get_with(name, open.boxed()).await;
        opened.map_err(|fault| QueryError::Fault(Fault::clone(&fault)))
    }
}

/// The purpose of opening a table. If another attempt has just failed, a request fails with the same fault, and a
/// refresh tries again.
#[derive(Clone, Copy)]
enum OpenedFor {
    Request,
    Refresh,
}

impl Entry {
    fn state(&self) -> Guard<Arc<TableState>> {
        self.state.load()
    }

    /// Changes the state. `change` may be called again if the state was changed concurrently.
    fn change(&self, change: impl Fn(&mut TableState)) {
        self.state.rcu(|state| {
            let mut state = TableState::clone(state);
            change(&mut state);
            state
        });
    }

    /// Loads the table's indexes, if its configuration asks for it.
    async fn load_indexes(&self, open: &OpenTable, patience: Duration) {
        if !self.config.warm_indexes {
            return;
        }
        let began = Instant::now();
        let loaded = tokio::time::timeout(patience, open.table.prewarm().boxed()).await;
        let (table, version, took) = (&self.name, open.version(), began.elapsed());
        match loaded {
            Ok(Ok(())) => info!(table, version, ?took, "the indexes are loaded"),
            Ok(Err(error)) => warn!(table, version, "the indexes can't be loaded: {error}"),
            Err(_) => {
                warn!(table, version, "loading the indexes takes more than {took:?}; it ends here")
            }
        }
    }

    fn replace(&self, open: OpenTable) -> Arc<OpenTable> {
        let open = Arc::new(open);
        info!(table = self.name, uri = open.table.uri(), version = open.version(), "opened");
        self.change(|state| {
            let before = state.current.as_ref().map_or(0, |before| before.version());
            state.generation += u64::from(open.version() <= before);
            state.current = Some(Arc::clone(&open));
            state.fault = None;
        });
        open
    }

    /// Returns a fault for callers, with the table's name in angle brackets in place of its URI. The log has the URI.
    fn named(&self, fault: Fault) -> Fault {
        // The fault may spell the URI differently than the configuration.
        let uri = fault.metadata.get("table").unwrap_or(&self.config.uri).clone();
        named(fault, &uri, &self.name)
    }

    fn clear_fault(&self) {
        if self.state().fault.is_some() {
            info!(table = self.name, "the table can be followed again");
            self.change(|state| state.fault = None);
        }
    }

    /// Records why the table cannot be opened or followed, and returns it.
    fn set_fault(&self, fault: Fault) -> Fault {
        if self.state().fault.as_ref() != Some(&fault) {
            warn!(table = self.name, uri = self.config.uri, "{fault}");
            self.change(|state| state.fault = Some(fault.clone()));
        }
        fault
    }
}
