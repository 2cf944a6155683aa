//! The runs of one key column of a table, and the task that builds and merges them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytesize::ByteSize;
use key_index::{DataFile, KeyType, Run, RunFacts, next_merge};
use lake::Table;
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::coverage::VersionFiles;
use super::error::BuildError;
use super::memory::{KeyIndexMemory, Reserved};
use super::run_build::{KeyColumn, build_run};

/// The number of rows up to which data files get a run together. More files than this are several runs, so that
/// look-ups need not wait for the last of them.
const ROWS_TOGETHER: u64 = 1 << 20;

/// The runs of one key column of a table, for all its versions in use.
#[derive(Debug)]
pub struct TableRuns {
    /// The table's name, for the log.
    table: String,
    column: KeyColumn,
    memory: Arc<KeyIndexMemory>,
    background: Handle,
    state: Mutex<RunsState>,
}

#[derive(Debug, Default)]
struct RunsState {
    /// Whether somebody has looked up a key.
    is_wanted: bool,
    is_building: bool,
    runs: Vec<HeldRun>,
    /// The versions that the runs cover.
    versions: Vec<Weak<VersionFiles>>,
    fault: Option<Arc<str>>,
}

/// A run and its memory.
#[derive(Debug)]
struct HeldRun {
    run: Arc<Run>,
    held: Reserved,
}

/// The next step of the task. The new run takes the place of `replaced`.
enum Work {
    /// Read the key column of some files, each of a version that has it.
    Build { files: Vec<(Table, DataFile)>, replaced: Vec<Arc<Run>> },
    /// Merge `replaced`, and keep the files that some version has.
    Merge { replaced: Vec<Arc<Run>>, live: HashSet<DataFile> },
}

impl TableRuns {
    pub fn new(
        table: &str,
        column: &str,
        key_type: KeyType,
        seed: u64,
        memory: Arc<KeyIndexMemory>,
        background: Handle,
    ) -> Arc<Self> {
        let column = KeyColumn { name: column.to_owned(), key_type, seed };
        let (table, state) = (table.to_owned(), Mutex::default());
        Arc::new(Self { table, column, memory, background, state })
    }

    pub fn column(&self) -> &KeyColumn {
        &self.column
    }

    /// Covers `version` with the runs that there are, and begins to build what is missing, if somebody has looked up a
    /// key: the caller (`is_wanted`), or one before.
    pub fn join(self: &Arc<Self>, version: &Arc<VersionFiles>, is_wanted: bool) {
        let mut state = self.state();
        state.is_wanted |= is_wanted;
        if state.is_wanted && !version.set_followed() {
            state.versions.push(Arc::downgrade(version));
            version.cover(state.all_runs());
            self.begin(&mut state);
        }
    }

    /// Begins to build and merge what is missing, if somebody has looked up a key.
    pub fn follow(self: &Arc<Self>) {
        let mut state = self.state();
        if state.is_wanted {
            self.begin(&mut state);
        }
    }

    /// Returns whether somebody has looked up a key, the memory of all runs, and why the last attempt to build or merge
    /// a run failed.
    pub fn report(&self) -> (bool, u64, Option<Arc<str>>) {
        let state = self.state();
        let bytes = state.runs.iter().map(|it| it.held.bytes()).sum();
        (state.is_wanted, bytes, state.fault.clone())
    }

    fn state(&self) -> MutexGuard<'_, RunsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, state: &mut RunsState) {
        if !std::mem::replace(&mut state.is_building, true) {
            let runs = Arc::clone(self);
            self.background.spawn(async move {
                loop {
                    let _turn = runs.memory.turn().await;
                    match runs.step().await {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return runs.give_up(error.to_string()),
                    }
                }
            });
        }
    }

    /// Ends the task after a failure. The next version, or the next check for one, begins it again.
    fn give_up(&self, fault: String) {
        let mut state = self.state();
        state.is_building = false;
        if state.fault.as_deref() != Some(&fault) {
            let (table, column) = (&self.table, &self.column.name);
            let note =
                "keys are looked up through the BTREE or a scan where the key index has no run";
            warn!(table, column, "{fault}; {note}");
            state.fault = Some(fault.into());
        }
    }

    /// Builds or merges one run. Returns false if nothing is left to do; the task has then ended.
    async fn step(&self) -> Result<bool, BuildError> {
        let Some(work) = self.next_work()? else { return Ok(false) };
        let (run, mut held, replaced) = match work {
            Work::Build { files, replaced } => {
                let rows = files.iter().map(|(_, file)| u64::from(file.rows)).sum();
                let held = self.reserve(Run::build_bytes_of(rows))?;
                (build_run(&self.column, files).await?, held, replaced)
            }
            Work::Merge { replaced, live } => {
                let entries = replaced.iter().map(|run| run.entries()).sum();
                let held = self.reserve(Run::ram_bytes_of(entries))?;
                let parts = replaced.clone();
                let merge = move || {
                    let parts: Vec<&Run> = parts.iter().map(Arc::as_ref).collect();
                    Run::merge(&parts, |file| live.contains(file))
                };
                (tokio::task::spawn_blocking(merge).await??, held, replaced)
            }
        };
        let bytes = run.ram_bytes() as u64;
        if !held.resize(bytes) {
            return Err(self.full(bytes - held.bytes()));
        }
        self.replace(&replaced, HeldRun { run: Arc::new(run), held });
        Ok(true)
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved, BuildError> {
        self.memory.reserve(bytes).ok_or_else(|| self.full(bytes))
    }

    /// Returns the error for `bytes` that are not free.
    fn full(&self, bytes: u64) -> BuildError {
        let free = self.memory.max.saturating_sub(self.memory.used());
        let needed = ByteSize::b(bytes.saturating_sub(free));
        BuildError::Full { needed, max: ByteSize::b(self.memory.max) }
    }

    /// Puts `new` in the place of `replaced`, for all versions.
    fn replace(&self, replaced: &[Arc<Run>], new: HeldRun) {
        let mut state = self.state();
        state.runs.retain(|it| !replaced.iter().any(|run| Arc::ptr_eq(run, &it.run)));
        state.runs.push(new);
        for version in state.versions_in_use() {
            version.cover(state.all_runs());
        }
    }

    /// Drops runs that no version needs, and chooses what to do next. `None` if nothing is left to do: the task must
    /// end.
    ///
    /// # Errors
    /// If the missing runs of the newest version do not fit.
    fn next_work(&self) -> Result<Option<Work>, BuildError> {
        let mut state = self.state();
        let versions = state.versions_in_use();
        let live: HashSet<DataFile> =
            versions.iter().flat_map(|version| version.files()).cloned().collect();
        state.versions.retain(|version| version.strong_count() > 0);
        state.runs.retain(|it| it.run.files().iter().any(|file| live.contains(file)));
        let facts: Vec<RunFacts> = state.runs.iter().map(|it| facts(&it.run, &live)).collect();
        if let Some(merge) = next_merge(&facts) {
            let replaced = merge.runs.iter().map(|&at| Arc::clone(&state.runs[at].run));
            let replaced: Vec<_> = replaced.collect();
            if !merge.needs_keys {
                return Ok(Some(Work::Merge { replaced, live }));
            }
            let files = replaced.iter().flat_map(|run| run.files());
            let files = files.filter(|file| live.contains(file));
            let files = files.filter_map(|file| of_a_version(&versions, file)).collect();
            return Ok(Some(Work::Build { files, replaced }));
        }
        let mut full = None;
        for version in &versions {
            let missing = state.without_run(version);
            if missing.is_empty() {
                continue;
            }
            match self.first_to_build(missing) {
                Ok(files) => {
                    let with_table = |file| (version.table().clone(), file);
                    let files = files.into_iter().map(with_table).collect();
                    return Ok(Some(Work::Build { files, replaced: Vec::new() }));
                }
                Err(error) => full = full.or(Some(error)),
            }
        }
        if let Some(error) = full {
            return Err(error);
        }
        state.is_building = false;
        if state.fault.take().is_some() {
            let (table, column) = (&self.table, &self.column.name);
            info!(table, column, "the key index covers the table again");
        }
        Ok(None)
    }

    /// Returns the files to build a run of next, newer ones first.
    ///
    /// # Errors
    /// If the runs of all `missing` files do not fit.
    fn first_to_build(&self, mut missing: Vec<DataFile>) -> Result<Vec<DataFile>, BuildError> {
        missing.sort_unstable_by_key(|file| std::cmp::Reverse(file.fragment));
        let rows = |file: &DataFile| u64::from(file.rows);
        let all: u64 = missing.iter().map(rows).sum();
        let largest = missing.iter().map(rows).max().unwrap_or(0);
        let at_once = largest.max(all.min(ROWS_TOGETHER));
        let scratch = Run::build_bytes_of(at_once) - Run::ram_bytes_of(at_once);
        let runs: u64 = missing.iter().map(|file| Run::ram_bytes_of(rows(file))).sum();
        let needed = runs + scratch;
        if self.memory.used().saturating_add(needed) > self.memory.max {
            return Err(self.full(needed));
        }
        let mut sum = 0;
        let mut fits_together = |file: &DataFile| {
            sum += rows(file);
            sum <= ROWS_TOGETHER
        };
        let together = missing.iter().take_while(|file| fits_together(file)).count();
        missing.truncate(together.max(1));
        Ok(missing)
    }
}

impl RunsState {
    fn all_runs(&self) -> Vec<Arc<Run>> {
        self.runs.iter().map(|it| Arc::clone(&it.run)).collect()
    }

    /// Returns the versions in use, newest first.
    fn versions_in_use(&self) -> Vec<Arc<VersionFiles>> {
        let mut versions: Vec<_> = self.versions.iter().filter_map(Weak::upgrade).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.table().version()));
        versions
    }

    /// Returns the version's files that are in no run.
    fn without_run(&self, version: &VersionFiles) -> Vec<DataFile> {
        let covered: HashSet<&DataFile> = self.runs.iter().flat_map(|it| it.run.files()).collect();
        version.files().iter().filter(|file| !covered.contains(file)).cloned().collect()
    }
}

fn facts(run: &Run, live: &HashSet<DataFile>) -> RunFacts {
    let all: u64 = run.files().iter().map(|file| u64::from(file.rows)).sum();
    let of_versions = run.files().iter().filter(|file| live.contains(file));
    let live_rows = of_versions.map(|file| u64::from(file.rows)).sum();
    RunFacts { live_rows, dead_rows: all - live_rows, hash_bits: run.hash_bits() }
}

/// Returns the file with a table that has it.
fn of_a_version(versions: &[Arc<VersionFiles>], file: &DataFile) -> Option<(Table, DataFile)> {
    let version = versions.iter().find(|version| version.files().contains(file))?;
    Some((version.table().clone(), file.clone()))
}
