//! A table of the catalog, or a branch of one: its state, and how it is opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use futures::FutureExt;
use futures::future::join;
use lake::{BranchName, Lake, Table, TableUri};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::{info, warn};
use wire::Fault;

use super::named::named;
use super::open::OpenTable;
use crate::config::TableConfig;
use crate::recall_curves::{CurveCounts, TableCurves};

/// A table, or a branch of one.
pub struct Entry {
    pub name: String,
    /// The branch; `None` for the table itself, which is its main branch.
    pub branch: Option<BranchName>,
    pub config: TableConfig,
    pub curves: Arc<TableCurves>,
    /// The table's URI if a folder has it; `None` if it is configured by name.
    in_folder: Option<TableUri>,
    /// A number that no other entry of the catalog has, not even an earlier or later one of the same name.
    pub id: u64,
    /// The table's state. All cores read it with each request, and it rarely changes.
    state: ArcSwap<TableState>,
    /// A lock that is held while the table is being opened, so that concurrent requests wait for one attempt. It has the
    /// last attempt's failure, which requests that waited for the attempt share.
    pub opening: tokio::sync::Mutex<Option<FailedAttempt>>,
    /// A lock that is held while a newer version is looked for, and opened. It has the last attempt's failure, which
    /// callers that waited for the attempt share.
    pub following: tokio::sync::Mutex<Option<FailedAttempt>>,
    /// The time at which the latest version was last looked for with success, in microseconds since 1970. It is taken
    /// before the store is asked.
    pub looked_at: AtomicU64,
    /// The number of callers that wait for the latest version. While there are any, a new version becomes the current one
    /// without waiting for the runs of its key index.
    awaiting: watch::Sender<usize>,
    /// The fill of a new version's files, and the version before: its files are those that need no fill.
    filling: Mutex<Option<(AbortHandle, Table)>>,
    /// The round of the catalog in which a request last asked for the table.
    used: AtomicU64,
}

/// A failed attempt to open a table, or to find its latest version.
pub struct FailedAttempt {
    pub ended: tokio::time::Instant,
    pub fault: Fault,
}

impl FailedAttempt {
    /// Returns the failure of an attempt that ends now.
    pub fn ended_now(fault: &Fault) -> Self {
        Self { ended: tokio::time::Instant::now(), fault: fault.clone() }
    }
}

/// The state of a table.
#[derive(Clone, Default)]
pub struct TableState {
    /// The version for requests that name none: the latest, or the pinned one.
    pub current: Option<Arc<OpenTable>>,
    /// The reason why there is no current version, or why the table cannot be followed.
    pub fault: Option<Fault>,
    /// Whether a request has begun to open the table since it was closed.
    pub is_wanted: bool,
    /// Counts how often the table was closed, or the table or branch was dropped and recreated. Cached versions of an
    /// earlier generation are not used.
    pub generation: u64,
}

impl TableState {
    fn set_current(&mut self, open: &Arc<OpenTable>) {
        let is_anew = self.current.as_ref().is_some_and(|before| {
            open.version() <= before.version()
                || open.table.replaces_dropped()
                || open.table.is_of_other_branch(&before.table)
        });
        self.generation += u64::from(is_anew);
        self.current = Some(Arc::clone(open));
        self.fault = None;
    }
}

/// A caller that waits for the latest version of a table.
pub struct Awaiting<'a>(&'a Entry);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.awaiting.send_modify(|callers| *callers -= 1);
    }
}

impl Entry {
    /// Creates the entry of a table that is configured by name.
    pub fn named(id: u64, name: &str, config: &TableConfig, counts: &Arc<CurveCounts>) -> Self {
        let curves = Arc::new(TableCurves::new(name, &config.recall_curves, Arc::clone(counts)));
        Self::new(id, name, None, config.clone(), None, curves)
    }

    /// Creates the entry of a folder's table.
    pub fn in_folder(id: u64, name: &str, uri: TableUri, counts: &Arc<CurveCounts>) -> Self {
        let config = TableConfig { uri: uri.to_string(), ..Default::default() };
        let curves = Arc::new(TableCurves::new(name, &config.recall_curves, Arc::clone(counts)));
        Self::new(id, name, None, config, Some(uri), curves)
    }

    /// Creates the entry of a branch of the table `of`. It always follows the branch's latest version: a version that
    /// the configuration pins is one of the main branch.
    pub fn branch(id: u64, of: &Self, branch: BranchName) -> Self {
        let config = TableConfig { version: None, ..of.config.clone() };
        let curves = Arc::clone(&of.curves);
        Self::new(id, &of.name, Some(branch), config, of.in_folder.clone(), curves)
    }

    fn new(
        id: u64,
        name: &str,
        branch: Option<BranchName>,
        config: TableConfig,
        in_folder: Option<TableUri>,
        curves: Arc<TableCurves>,
    ) -> Self {
        let (state, opening, following, looked_at, awaiting, filling, used) = Default::default();
        Self {
            name: name.to_owned(),
            branch,
            config,
            curves,
            in_folder,
            id,
            state,
            opening,
            following,
            looked_at,
            awaiting,
            filling,
            used,
        }
    }

    /// Returns whether the table is opened by the first request for it, and closed when nobody asks for it any more: a
    /// folder may have thousands of tables.
    pub fn opens_on_request(&self) -> bool {
        self.in_folder.is_some()
    }

    /// Returns whether this is the entry of the folder's table at `uri`.
    pub fn is_at(&self, uri: &TableUri) -> bool {
        self.in_folder.as_ref() == Some(uri)
    }

    /// Returns whether the table is open or being opened, or could not be opened.
    pub fn is_in_use(&self) -> bool {
        let state = self.state();
        state.current.is_some() || state.fault.is_some() || state.is_wanted
    }

    /// Records that the table is being opened. If the caller leaves before that ends, a refresh opens the table.
    pub fn want(&self) {
        if !self.is_in_use() {
            self.change(|state| state.is_wanted = true);
        }
    }

    /// Records that a request asks for the table.
    pub fn use_in(&self, round: u64) {
        // All cores read this, so it is written only once in a round.
        if self.used.load(Ordering::Relaxed) != round {
            self.used.store(round, Ordering::Relaxed);
        }
    }

    /// Returns the round in which a request last asked for the table.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Opens the branch's latest version, or the given one. A folder's table is opened without following links, since
    /// whoever can write to the folder may have put a link in the table's place.
    pub async fn load(&self, lake: &Lake, version: Option<u64>) -> lake::Result<Table> {
        let uri = match &self.in_folder {
            Some(uri) => uri.clone(),
            None => lake.canonical(&self.config.uri).await?,
        };
        match version {
            Some(version) => lake.open_branch_version(&uri, self.branch.as_ref(), version).await,
            None => lake.open_branch(&uri, self.branch.as_ref()).await,
        }
    }

    /// Closes the table: the next request for it opens it again. Requests in progress keep the version that they use.
    pub fn close(&self) {
        self.end_fill();
        self.change(|state| {
            *state = TableState { generation: state.generation + 1, ..Default::default() }
        });
    }

    /// Returns the state.
    pub fn state(&self) -> Guard<Arc<TableState>> {
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

    /// If the table's configuration asks for it, loads its Lance indexes and waits until its key index is loaded or
    /// built, for at most `patience`.
    pub async fn load_indexes(&self, open: &OpenTable, patience: Duration) {
        if !self.config.warm_indexes {
            return;
        }
        let began = Instant::now();
        let load = async {
            open.table.prewarm().boxed().await?;
            if let Some(keys) = &open.keys {
                keys.covered().await;
            }
            lake::Result::Ok(())
        };
        let loaded = tokio::time::timeout(patience, load).await;
        let (table, version, took) = (&self.name, open.version(), began.elapsed());
        match loaded {
            Ok(Ok(())) => info!(table, version, ?took, "the indexes are loaded"),
            Ok(Err(error)) => warn!(table, version, "the indexes can't be loaded: {error}"),
            Err(_) => {
                warn!(table, version, "loading the indexes takes more than {took:?}; it ends here")
            }
        }
    }

    /// Like [`load_indexes`](Self::load_indexes), for a version that is about to become the current one: ends when a
    /// caller waits for the latest version. Then the first requests load what they need.
    pub async fn load_new_indexes(&self, open: &OpenTable, patience: Duration) {
        self.unless_awaited(self.load_indexes(open, patience)).await;
    }

    /// Runs `work`, but only until a caller waits for the latest version.
    async fn unless_awaited(&self, work: impl Future) {
        let mut awaiting = self.awaiting.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = awaiting.wait_for(|callers| *callers > 0) => {}
            _ = work => {}
        }
    }

    /// Notes that a caller waits for the latest version, until the result is dropped.
    pub fn await_latest(&self) -> Awaiting<'_> {
        self.awaiting.send_modify(|callers| *callers += 1);
        Awaiting(self)
    }

    /// Prepares `open`, which is about to replace `before`: has the I/O nodes fill the new files of its indexes, and waits
    /// until they have them and the key index covers the version. With `warm_indexes`, it waits until the indexes are
    /// loaded and the key index covers the version, and not for the fill. Waits for at most `patience`, and only until a
    /// caller waits for the latest version.
    pub async fn prepare(&self, before: &OpenTable, open: &OpenTable, patience: Duration) {
        let filled = self.fill_new_files(before, open);
        if self.config.warm_indexes {
            // The load ends with the wait, and the I/O nodes still fill what it has not read.
            return self.load_new_indexes(open, patience).await;
        }
        let prepared = self.unless_awaited(join(filled, runs_of(before, open)));
        if tokio::time::timeout(patience, prepared).await.is_err() {
            let (table, version) = (&self.name, open.version());
            let note = "until its key index and its files are there, some requests take longer";
            info!(table, version, "preparing it takes more than {patience:?}; {note}");
        }
    }

    /// Has the I/O nodes read the new files of the indexes in use, or of all indexes if the configuration asks to load
    /// them. They go on if the result is dropped, until the next version is prepared or the table is closed.
    fn fill_new_files(&self, before: &OpenTable, open: &OpenTable) -> JoinHandle<()> {
        // Includes what the last fill has not finished.
        let unfilled = self.end_fill().unwrap_or_else(|| before.table.clone());
        let (new, before, name) = (open.table.clone(), unfilled.clone(), self.name.clone());
        let of_all = self.config.warm_indexes;
        let fill = tokio::spawn(async move {
            if let Err(error) = new.fill_new_index_files(&before, of_all).await {
                warn!(table = name, "the files of new indexes can't be read ahead of use: {error}");
            }
        });
        *self.filling() = Some((fill.abort_handle(), unfilled));
        fill
    }

    /// Ends the fill of new files that runs. Returns the version before it, if it had not finished.
    fn end_fill(&self) -> Option<Table> {
        let (fill, before) = self.filling().take()?;
        let is_unfinished = !fill.is_finished();
        fill.abort();
        is_unfinished.then_some(before)
    }

    fn filling(&self) -> MutexGuard<'_, Option<(AbortHandle, Table)>> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a version the current one.
    pub fn replace(&self, open: OpenTable) -> Arc<OpenTable> {
        let open = Arc::new(open);
        self.change(|state| state.set_current(&open));
        self.log_opened(&open);
        open
    }

    /// Makes a version the current one, if `before` still is. If not, the table was closed meanwhile, and it stays
    /// closed, or a request has opened it again.
    pub fn replace_version(&self, before: &Arc<OpenTable>, open: OpenTable) {
        let open = Arc::new(open);
        self.change(|state| {
            if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, before)) {
                state.set_current(&open);
            }
        });
        if self.state().current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &open)) {
            self.log_opened(&open);
        }
    }

    fn log_opened(&self, open: &OpenTable) {
        let (table, uri, version) = (&self.name, open.table.uri(), open.version());
        match &self.branch {
            Some(branch) => info!(table, %branch, uri, version, "opened"),
            None => info!(table, uri, version, "opened"),
        }
    }

    /// Returns a fault for callers, with the table's name in angle brackets in place of its URI. The log has the URI.
    pub fn name_in(&self, fault: Fault) -> Fault {
        // The fault may spell the URI differently than the configuration.
        let uri = fault.metadata.get("table").unwrap_or(&self.config.uri).clone();
        named(fault, &uri, &self.name)
    }

    /// Records that the table can be opened and followed.
    pub fn clear_fault(&self) {
        if self.state().fault.is_some() {
            info!(table = self.name, "the table can be followed again");
            self.change(|state| state.fault = None);
        }
    }

    /// Records why the table cannot be opened or followed, and returns it.
    pub fn set_fault(&self, fault: Fault) -> Fault {
        if self.state().fault.as_ref() != Some(&fault) {
            warn!(table = self.name, uri = self.config.uri, "{fault}");
            self.change(|state| state.fault = Some(fault.clone()));
        }
        fault
    }
}

/// Waits until the key index covers `open`. If look-ups do not use the index, or it does not cover `before` either,
/// nothing is lost by replacing that version at once.
async fn runs_of(before: &OpenTable, open: &OpenTable) {
    let covers_before = before.keys.as_ref().is_some_and(|keys| keys.covers_all());
    if let Some(keys) = open.keys.as_ref().filter(|keys| covers_before && keys.is_looked_up()) {
        keys.covered().await;
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
    use lake::LakeOptions;
    use lance::Dataset;
    use lance::dataset::{WriteMode, WriteParams};
    use tokio::runtime::Handle;

    use super::*;
    use crate::key_index::KeyIndexes;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn append(uri: &str, ids: Range<i64>) {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let mode = match std::fs::exists(uri).unwrap() {
            true => WriteMode::Append,
            false => WriteMode::Create,
        };
        let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
        let params = WriteParams { mode, ..Default::default() };
        Dataset::write(reader, uri, Some(params)).await.unwrap();
    }

    /// A table in a folder, and its entry.
    struct Followed {
        _folder: tempfile::TempDir,
        uri: String,
        indexes: KeyIndexes,
        entry: Entry,
    }

    impl Followed {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let uri = folder.path().join("table").to_str().unwrap().to_owned();
            append(&uri, 0..100).await;
            let indexes = KeyIndexes::new(1 << 20, Handle::current());
            let entry = Entry::named(0, "t", &Self::config(&uri), &Arc::default());
            Self { _folder: folder, uri, indexes, entry }
        }

        fn config(uri: &str) -> TableConfig {
            TableConfig { uri: uri.to_owned(), ..Default::default() }
        }

        /// Opens the latest version.
        async fn opened(&self) -> OpenTable {
            let lake = Lake::new(LakeOptions::default());
            let table = self.entry.load(&lake, None).await.unwrap();
            OpenTable::new("t", table, Some("id"), &self.indexes, &self.entry.curves).unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_new_version_waits_for_its_runs_until_a_caller_waits_for_it() {
        let followed = Followed::new().await;
        let Followed { entry, indexes, .. } = &followed;
        let warm = TableConfig { warm_indexes: true, ..Followed::config(&followed.uri) };
        let warm = Entry::named(1, "warm", &warm, &Arc::default());
        let is_covered = |open: &OpenTable| open.keys.as_ref().unwrap().covers_all();
        let before = followed.opened().await;
        append(&followed.uri, 100..200).await;
        let held = indexes.hold_builder().await;
        // Nobody has looked up a key, and then the runs do not cover the version before.
        entry.prepare(&before, &followed.opened().await, HOUR).await;
        before.keys.as_ref().unwrap().want();
        entry.prepare(&before, &followed.opened().await, HOUR).await;
        drop(held);
        before.keys.as_ref().unwrap().covered().await;
        assert!(is_covered(&before));

        append(&followed.uri, 200..300).await;
        let held = indexes.hold_builder().await;
        let open = followed.opened().await;
        entry.prepare(&before, &open, Duration::ZERO).await;
        let call = async { entry.await_latest() };
        let ((), call) = tokio::join!(entry.prepare(&before, &open, HOUR), call);
        entry.prepare(&before, &open, HOUR).await;
        warm.load_new_indexes(&open, Duration::ZERO).await;
        let warm_call = async { warm.await_latest() };
        let ((), warm_call) = tokio::join!(warm.load_new_indexes(&open, HOUR), warm_call);
        warm.load_new_indexes(&open, HOUR).await;
        assert!(!is_covered(&open), "no run can be built");
        drop((call, warm_call));
        tokio::join!(entry.prepare(&before, &open, HOUR), async { drop(held) });
        assert!(is_covered(&open));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_new_version_does_not_open_a_closed_table() {
        let followed = Followed::new().await;
        let entry = &followed.entry;
        let version = || entry.state().current.as_ref().map(|open| open.version());
        let first = entry.replace(followed.opened().await);
        append(&followed.uri, 100..200).await;
        entry.replace_version(&first, followed.opened().await);
        assert_eq!(version(), Some(2));
        append(&followed.uri, 200..300).await;
        let third = followed.opened().await;
        let second = entry.state().current.clone().unwrap();
        entry.close();
        entry.replace_version(&second, third);
        assert_eq!(version(), None, "the table is closed");
        // A request opens the table while an earlier version is being prepared.
        let third = followed.opened().await;
        append(&followed.uri, 300..400).await;
        entry.replace(followed.opened().await);
        entry.replace_version(&second, third);
        assert_eq!(version(), Some(4));
    }
}
