//! The runs of one key column of a table, and the task that loads, builds and merges them.
//!
//! Each time the task begins and a version has data files without a run, it lists the files of persisted runs, and
//! opens one after the other, largest first, until every data file has a run (`persisted.rs`). What they do not cover
//! is built from the key column once somebody has looked up a key. A persisted run is used only if it has the seed of
//! the runs that the table already has. If there are none, it may have any seed.

mod page_faults;
mod persisted;
mod write;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use key_index::{DataFile, PagedRun, Run, RunFacts, RunSet, covers_some, next_merge};
use key_runs::{
    KeyColumn, ROWS_TOGETHER, RunFile, VersionSearch, build_run, first_together, split_into_runs,
};
use lake::Table;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{info, warn};

use super::counts::{RunCounts, RunSource};
use super::coverage::VersionFiles;
use super::error::RunError;
use super::memory::{KeyIndexMemory, Reserved};
use persisted::Persisted;

/// The time after which the task begins again although memory is still too short: `bireme index` may have written a run
/// meanwhile, whose pages can stay in its file.
const FULL_RETRY: Duration = Duration::from_secs(20);

/// The runs of one key column of a table, for all its versions in use.
#[derive(Debug)]
pub struct TableRuns {
    /// The table's name, for the log.
    table: String,
    column: KeyColumn,
    memory: Arc<KeyIndexMemory>,
    pub(super) counts: Arc<RunCounts>,
    background: Handle,
    /// Whether somebody has looked up a key. Before that, runs are loaded but not built.
    is_looked_up: AtomicBool,
    /// Whether runs are being looked for, loaded, built or merged. Sent again each time that the runs have changed.
    is_busy: watch::Sender<bool>,
    state: Mutex<RunsState>,
}

/// The state of a table's runs, for reports.
pub struct RunsReport {
    /// Whether somebody has looked up a key, or persisted runs were found.
    pub is_wanted: bool,
    /// The memory of all runs, in bytes.
    pub bytes: u64,
    /// The number of runs loaded into memory, among those of the set passed to [`report`](TableRuns::report).
    pub runs_loaded: usize,
    /// The reason why the last attempt to build or merge a run failed.
    pub fault: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct RunsState {
    /// Whether somebody has looked up a key, or persisted runs were found.
    is_wanted: bool,
    /// Whether persisted runs were looked for, when the first version was opened.
    is_looked_for: bool,
    /// Whether persisted runs are being looked for now.
    is_looking: bool,
    is_building: bool,
    runs: Vec<HeldRun>,
    /// The runs whose pages stay in their files, largest first.
    paged: Vec<HeldPagedRun>,
    /// The files of persisted runs that the task has not opened, smallest first; `None` until it has listed them.
    unopened: Option<Vec<RunFile>>,
    /// The names of the runs' files that were opened, whether they could be used or not; those that did not fit or could
    /// not be read are left out. A run's file never changes and does not cover data files of later versions. So it is
    /// not opened again until data files lose their run: an older version that has them may be opened again.
    opened: HashSet<String>,
    /// The names of the files that were refused because they are damaged.
    damaged: HashSet<String>,
    /// Whether the files have to be listed again, because the file of a run is gone.
    must_list: bool,
    /// Whether a file, or the list of files, could not be read. The next check for a new version then tries again.
    must_retry: bool,
    /// Set when memory was too short. The task does not begin again while [`room`](FullMemory::room) is unchanged, for
    /// at most [`FULL_RETRY`].
    full: Option<FullMemory>,
    /// The versions that the runs cover.
    versions: Vec<Weak<VersionFiles>>,
    fault: Option<Arc<str>>,
    /// The reason why the runs could not be written beside the table at the last attempt.
    write_fault: Option<String>,
    /// The search for files beside the table that no version needs, of which each write does a part.
    search: VersionSearch,
    /// The time of the last line of the log about a page that can't be used.
    page_warned: Option<Instant>,
}

/// The state when memory was too short.
#[derive(Debug)]
struct FullMemory {
    /// A hash of the versions in use, and the memory that key indexes used.
    room: (u64, u64),
    since: Instant,
}

/// A run in memory, and the memory that is reserved for it.
#[derive(Debug)]
struct HeldRun {
    run: Arc<Run>,
    source: RunSource,
    /// Shared by those who keep the run for long, so that it stays reserved until the last of them drops the run.
    held: Arc<Reserved>,
}

/// A run whose pages stay in its file, and the memory that is reserved for its head.
#[derive(Debug)]
struct HeldPagedRun {
    run: Arc<PagedRun>,
    held: Reserved,
    /// Whether one of its pages was found damaged. The file is then counted as refused only once.
    is_damaged: bool,
}

/// The next step of the task. The new run takes the place of `replaced`.
enum Work {
    /// List the files of persisted runs.
    List { table: Table },
    /// Open a persisted run, if it covers a file without a run: load it, or leave its pages in its file.
    Load { table: Table, file: RunFile },
    /// Build a run from the key column of some files. Each file comes with a version that has it.
    Build { files: Vec<(Table, DataFile)>, replaced: Vec<Arc<Run>> },
    /// Merge `replaced`, and keep the files that some version has. The new run takes up to `bytes`.
    Merge { replaced: Vec<Arc<Run>>, live: HashSet<DataFile>, bytes: u64 },
}

impl TableRuns {
    pub fn new(
        table: &str,
        column: KeyColumn,
        memory: Arc<KeyIndexMemory>,
        counts: Arc<RunCounts>,
        background: Handle,
    ) -> Arc<Self> {
        let (table, is_looked_up) = (table.to_owned(), AtomicBool::new(false));
        let (is_busy, state) = (watch::Sender::new(false), Mutex::default());
        Arc::new(Self { table, column, memory, counts, background, is_looked_up, is_busy, state })
    }

    pub fn column(&self) -> &KeyColumn {
        &self.column
    }

    /// Takes a version that was opened. If the index is wanted, covers the version with the existing runs, and begins
    /// to load and build the missing ones. If not, the first call looks for persisted runs beside the table, and the
    /// index is wanted if there are any.
    pub fn open(self: &Arc<Self>, version: &Arc<VersionFiles>) {
        let mut state = self.state();
        if state.is_wanted {
            return self.join(&mut state, version, None);
        }
        if !std::mem::replace(&mut state.is_looked_for, true) {
            state.is_looking = true;
            self.note_busy(&state);
            let (runs, version) = (Arc::clone(self), Arc::clone(version));
            self.background.spawn(async move {
                let listed = runs.listed(version.table()).await;
                let mut state = runs.state();
                state.is_looking = false;
                match listed {
                    Ok(listed) if listed.is_empty() => {}
                    Ok(listed) => runs.join(&mut state, &version, Some(listed)),
                    // The next version looks again.
                    Err(_) => state.is_looked_for = false,
                }
                runs.note_busy(&state);
            });
        }
    }

    /// Waits until the runs cover `version`, or until no run is being looked for, loaded, built or merged: files without
    /// a run then have to do without. This includes waiting for the runs of other tables that are loaded or built
    /// first: a node loads or builds one run at a time, so that the scratch memory of only one must fit. Callers bound
    /// the time.
    pub async fn covered(&self, version: &VersionFiles) {
        let is_done = |is_busy: &bool| !is_busy || version.is_covered();
        // The sender lives as long as `self`. It sends each time that the runs have changed.
        let _ = self.is_busy.subscribe().wait_for(is_done).await;
    }

    fn note_busy(&self, state: &RunsState) {
        self.is_busy.send_replace(state.is_looking || state.is_building);
    }

    /// Returns whether somebody has looked up a key.
    pub fn is_looked_up(&self) -> bool {
        self.is_looked_up.load(Ordering::Relaxed)
    }

    /// Takes a version in which somebody looks up a key.
    pub fn want(self: &Arc<Self>, version: &Arc<VersionFiles>) {
        let mut state = self.state();
        let was_looked_up = self.is_looked_up.swap(true, Ordering::Relaxed);
        self.join(&mut state, version, None);
        if !was_looked_up {
            // Runs that were not loaded are built from now on.
            self.begin(&mut state, None);
        }
    }

    /// Covers `version` with the existing runs, and begins to load and build the missing ones, unless that was done
    /// before for this version.
    fn join(
        self: &Arc<Self>,
        state: &mut RunsState,
        version: &Arc<VersionFiles>,
        listed: Option<Vec<RunFile>>,
    ) {
        state.is_wanted = true;
        if !version.set_followed() {
            state.versions.push(Arc::downgrade(version));
            state.cover(version);
            self.begin(state, listed);
        }
    }

    /// If the index is wanted, covers `version`, which is the current one. Begins to load, build and merge runs if that
    /// was not done before, if somebody has looked up a key, or if a file has to be read again.
    pub fn follow(self: &Arc<Self>, version: &Arc<VersionFiles>) {
        let mut state = self.state();
        if state.is_wanted {
            // The version may have been opened while persisted runs were looked for.
            self.join(&mut state, version, None);
            if self.is_looked_up() || state.must_retry {
                self.begin(&mut state, None);
            }
        }
    }

    /// Returns the state of all runs, and how many runs of `set` were loaded from files.
    pub fn report(&self, set: &RunSet) -> RunsReport {
        let state = self.state();
        let is_loaded = |it: &&HeldRun| {
            it.source == RunSource::File && set.runs().any(|run| Arc::ptr_eq(run, &it.run))
        };
        RunsReport {
            is_wanted: state.is_wanted,
            bytes: state.held().map(Reserved::bytes).sum(),
            runs_loaded: state.runs.iter().filter(is_loaded).count(),
            fault: state.fault.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, RunsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the task, unless it is running or memory is as short as it was ([`RunsState::full`]). `listed` are the
    /// files of persisted runs, if they were just listed.
    fn begin(self: &Arc<Self>, state: &mut RunsState, listed: Option<Vec<RunFile>>) {
        let is_as_full = state
            .full
            .as_ref()
            .is_some_and(|full| full.room == self.room(state) && full.since.elapsed() < FULL_RETRY);
        if !is_as_full && !std::mem::replace(&mut state.is_building, true) {
            (state.unopened, state.full, state.must_retry) = (listed, None, false);
            self.note_busy(state);
            let runs = Arc::clone(self);
            self.background.spawn(async move {
                loop {
                    let _turn = runs.memory.turn().await;
                    match runs.step().await {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) if runs.give_up(&error) => return,
                        Err(_) => {}
                    }
                }
            });
        }
    }

    /// Returns a hash of the versions in use, and the memory that key indexes use, in bytes.
    fn room(&self, state: &RunsState) -> (u64, u64) {
        let mut hasher = DefaultHasher::new();
        for version in state.versions_in_use() {
            let table = version.table();
            (table.branch(), table.version()).hash(&mut hasher);
        }
        (hasher.finish(), self.memory.used())
    }

    /// Ends the task after a failure, and returns whether it did: it goes on if a run was dropped meanwhile. The next
    /// version that is opened begins it again; so does the next check for a new version, if somebody has looked up a
    /// key or a file has to be read again. If memory was too short, the memory or the versions in use must change
    /// first, or [`FULL_RETRY`] must pass.
    fn give_up(&self, error: &RunError) -> bool {
        let mut state = self.state();
        if state.must_list {
            return false;
        }
        state.is_building = false;
        self.note_busy(&state);
        let is_full = matches!(error, RunError::Full { .. }) && !state.must_retry;
        let room = self.room(&state);
        state.full = is_full.then(|| FullMemory { room, since: Instant::now() });
        let fault = error.to_string();
        if state.fault.as_deref() != Some(&fault) {
            let (table, column) = (&self.table, &self.column.name);
            let note =
                "keys are looked up through the BTREE or a scan where the key index has no run";
            warn!(table, column, "{fault}; {note}");
            state.fault = Some(fault.into());
        }
        true
    }

    /// Loads, builds or merges one run, or finds out which ones can be loaded. Returns false if nothing is left to do; the
    /// task has then ended.
    async fn step(&self) -> Result<bool, RunError> {
        let Some(work) = self.next_work()? else { return Ok(false) };
        let (run, source, mut held, replaced) = match work {
            Work::List { table } => {
                let listed = self.listed(&table).await;
                let mut state = self.state();
                state.must_retry |= listed.is_err();
                state.unopened = Some(listed.unwrap_or_default());
                return Ok(true);
            }
            Work::Load { table, file } => match self.opened(&table, &file).await {
                Some(Persisted::Loaded(run, held)) => (run, RunSource::File, held, Vec::new()),
                Some(Persisted::Paged(run, held)) => {
                    self.add_paged(run, held);
                    return Ok(true);
                }
                None => return Ok(true),
            },
            Work::Build { files, replaced } => {
                let rows = files.iter().map(|(_, file)| u64::from(file.rows)).sum();
                let held = self.reserve(Run::build_bytes_of(rows))?;
                // The seed is secret: whoever knows it can make keys whose look-ups have many candidates.
                let seed = self.state().seed().unwrap_or_else(rand::random);
                let run = build_run(&self.column, seed, files, |_| ()).await?;
                (run, RunSource::Column, held, replaced)
            }
            Work::Merge { replaced, live, bytes } => {
                let held = self.reserve(bytes)?;
                let parts = replaced.clone();
                let merge = move || {
                    let parts: Vec<&Run> = parts.iter().map(Arc::as_ref).collect();
                    Run::merge(&parts, |file| live.contains(file))
                };
                let run = tokio::task::spawn_blocking(merge).await??;
                (run, RunSource::Merge, held, replaced)
            }
        };
        let bytes = run.ram_bytes() as u64;
        if !held.resize(bytes) {
            return Err(self.full(bytes - held.bytes()));
        }
        self.counts.made(source);
        let (run, held) = (Arc::new(run), Arc::new(held));
        self.replace(&replaced, HeldRun { run, source, held });
        Ok(true)
    }

    /// Adds a run whose pages stay in its file, for all versions, in place of the paged runs that are superfluous
    /// beside it.
    fn add_paged(&self, run: PagedRun, held: Reserved) {
        self.counts.made(RunSource::Pages);
        let mut state = self.state();
        let mut is_needed = state.needed_beside(run.files()).into_iter();
        state.paged.retain(|_| is_needed.next().unwrap_or(true));
        state.paged.push(HeldPagedRun { run: Arc::new(run), held, is_damaged: false });
        state.paged.sort_by_key(|it| std::cmp::Reverse(it.run.paged_bytes()));
        state.cover_all();
        self.note_busy(&state);
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved, RunError> {
        self.memory.reserve(bytes).ok_or_else(|| self.full(bytes))
    }

    /// Returns the error for `bytes` that are not free.
    fn full(&self, bytes: u64) -> RunError {
        let free = self.memory.max.saturating_sub(self.memory.used());
        let needed = ByteSize::b(bytes.saturating_sub(free));
        RunError::Full { needed, max: ByteSize::b(self.memory.max) }
    }

    /// Puts `new` in the place of `replaced`, for all versions.
    fn replace(&self, replaced: &[Arc<Run>], new: HeldRun) {
        let mut state = self.state();
        let kept: HashSet<&DataFile> = new.run.files().iter().collect();
        if replaced.iter().flat_map(|run| run.files()).any(|file| !kept.contains(file)) {
            state.opened.clear();
        }
        state.runs.retain(|it| !replaced.iter().any(|run| Arc::ptr_eq(run, &it.run)));
        state.runs.push(new);
        state.cover_all();
        self.note_busy(&state);
    }

    /// Drops runs that no version needs, and chooses what to do next. `None` if nothing is left to do: the task must
    /// end.
    ///
    /// # Errors
    /// If a merge or missing runs of a version do not fit, and nothing else is left to do.
    fn next_work(&self) -> Result<Option<Work>, RunError> {
        let mut state = self.state();
        let versions = state.versions_in_use();
        let live: HashSet<DataFile> =
            versions.iter().flat_map(|version| version.files()).cloned().collect();
        state.versions.retain(|version| version.strong_count() > 0);
        let runs_before = state.runs.len() + state.paged.len();
        state.runs.retain(|it| it.run.files().iter().any(|file| live.contains(file)));
        state.paged.retain(|it| it.run.files().iter().any(|file| live.contains(file)));
        if state.runs.len() + state.paged.len() < runs_before {
            // An older version that is opened again may need the file of a dropped run, or one that seemed superfluous.
            state.opened.clear();
        }
        if std::mem::take(&mut state.must_list) {
            state.unopened = None;
        }
        let facts: Vec<RunFacts> =
            state.runs.iter().map(|it| RunFacts::of(&it.run, &live)).collect();
        let merge = next_merge(&facts, self.memory.max.saturating_sub(self.memory.used()));
        if let Some(merge) = merge {
            let replaced = merge.runs.iter().map(|&at| Arc::clone(&state.runs[at].run));
            let replaced: Vec<_> = replaced.collect();
            if !merge.needs_keys {
                let bytes = merge.bytes;
                return Ok(Some(Work::Merge { replaced, live, bytes }));
            }
            let files = replaced.iter().flat_map(|run| run.files());
            let files = files.filter(|file| live.contains(file));
            let files = files.filter_map(|file| of_a_version(&versions, file)).collect();
            return Ok(Some(Work::Build { files, replaced }));
        }
        // If a merge does not fit, runs can still be loaded and built.
        let mut full = next_merge(&facts, u64::MAX).map(|merge| self.full(merge.bytes));
        for version in &versions {
            let mut missing = state.without_run(version);
            if missing.is_empty() {
                continue;
            }
            let table = version.table().clone();
            let Some(unopened) = &mut state.unopened else { return Ok(Some(Work::List { table })) };
            if let Some(file) = unopened.pop() {
                return Ok(Some(Work::Load { table, file }));
            }
            if !self.is_looked_up() {
                // The missing runs are built from the first look-up on. If there is no room for them, that is reported
                // now.
                if let Err(error) = self.check_room(&mut missing, 0) {
                    full = full.or(Some(error));
                }
                continue;
            }
            match self.first_to_build(missing) {
                Ok(files) => {
                    let files = files.into_iter().map(|file| (table.clone(), file)).collect();
                    return Ok(Some(Work::Build { files, replaced: Vec::new() }));
                }
                Err(error) => full = full.or(Some(error)),
            }
        }
        if let Some(error) = full {
            return Err(error);
        }
        state.is_building = false;
        self.note_busy(&state);
        if state.fault.take().is_some() {
            let (table, column) = (&self.table, &self.column.name);
            info!(table, column, "the key index covers the table again");
        }
        Ok(None)
    }

    /// Returns the files of the next run to build, newer ones first.
    ///
    /// # Errors
    /// If the runs of all `missing` files do not fit.
    fn first_to_build(&self, mut missing: Vec<DataFile>) -> Result<Vec<DataFile>, RunError> {
        let rows = |file: &DataFile| u64::from(file.rows);
        let all: u64 = missing.iter().map(rows).sum();
        let largest = missing.iter().map(rows).max().unwrap_or(0);
        let at_once = largest.max(all.min(ROWS_TOGETHER));
        let scratch = Run::build_bytes_of(at_once) - Run::ram_bytes_of(at_once);
        self.check_room(&mut missing, scratch)?;
        Ok(first_together(&mut missing))
    }

    /// Checks that the runs of all `missing` files and `scratch` further bytes fit. Sorts the files.
    fn check_room(&self, missing: &mut [DataFile], scratch: u64) -> Result<(), RunError> {
        let bytes = |files: &[DataFile]| {
            let rows = files.iter().map(|file| u64::from(file.rows)).sum();
            let list: usize = files.iter().map(DataFile::ram_bytes).sum();
            Run::ram_bytes_of(rows) + list as u64
        };
        let needed = split_into_runs(missing).map(bytes).sum::<u64>() + scratch;
        match self.memory.used().saturating_add(needed) > self.memory.max {
            true => Err(self.full(needed)),
            false => Ok(()),
        }
    }
}

impl RunsState {
    /// Makes look-ups in a version use the current runs.
    fn cover(&self, version: &VersionFiles) {
        let runs = self.runs.iter().map(|it| Arc::clone(&it.run));
        let paged = self.paged.iter().map(|it| Arc::clone(&it.run));
        version.cover(runs.collect(), paged.collect());
    }

    /// Makes look-ups in all versions use the current runs.
    fn cover_all(&self) {
        self.versions_in_use().iter().for_each(|version| self.cover(version));
    }

    /// Returns the memory that is reserved for each run.
    fn held(&self) -> impl Iterator<Item = &Reserved> {
        let of_runs = self.runs.iter().map(|it| it.held.as_ref());
        of_runs.chain(self.paged.iter().map(|it| &it.held))
    }

    /// Returns the seed of all runs, if there is one.
    fn seed(&self) -> Option<u64> {
        let of_runs = self.runs.first().map(|it| it.run.seed());
        of_runs.or_else(|| self.paged.first().map(|it| it.run.seed()))
    }

    /// Returns the versions in use, newest first.
    fn versions_in_use(&self) -> Vec<Arc<VersionFiles>> {
        let mut versions: Vec<_> = self.versions.iter().filter_map(Weak::upgrade).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.table().version()));
        versions
    }

    /// Returns for each paged run whether it is needed beside a run of `files`: whether it has a file of a version that
    /// is neither among `files`, nor in a run in memory, nor in a larger paged run that is needed.
    fn needed_beside(&self, files: &[DataFile]) -> Vec<bool> {
        let versions = self.versions_in_use();
        let mut missing = versions.iter().flat_map(|version| version.files()).collect();
        for run in self.runs.iter().map(|it| it.run.files()).chain([files]) {
            covers_some(run, &mut missing);
        }
        self.paged.iter().map(|it| covers_some(it.run.files(), &mut missing)).collect()
    }

    /// Returns the version's files that are in no run.
    fn without_run(&self, version: &VersionFiles) -> Vec<DataFile> {
        let of_runs = self.runs.iter().flat_map(|it| it.run.files());
        let of_paged = self.paged.iter().flat_map(|it| it.run.files());
        let covered: HashSet<&DataFile> = of_runs.chain(of_paged).collect();
        version.files().iter().filter(|file| !covered.contains(file)).cloned().collect()
    }
}

/// Returns the file with a version of the table that has it.
fn of_a_version(versions: &[Arc<VersionFiles>], file: &DataFile) -> Option<(Table, DataFile)> {
    let version = versions.iter().find(|version| version.files().contains(file))?;
    Some((version.table().clone(), file.clone()))
}
