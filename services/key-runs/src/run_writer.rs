//! Writes the runs that a version of a table needs, and deletes those that no version of its main branch needs any more.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use key_index::{DataFile, HeadFacts, KeyIndexError, Run, RunFacts, covers_some, next_merge};
use lake::{IndexProgress, Lake, LakeError, Result, Table};

use crate::hashes::key_type;
use crate::key_column::{KeyColumn, data_files};
use crate::run_build::{BuildError, build_run, first_together};
use crate::run_file::{FILES_MAX, RunFile, RunFileError, RunFiles};
use crate::version_search::VersionSearch;
use crate::write_budget::{RunWriteError, Unlimited, WriteBudget};

/// The number of times that a writer begins, in all, if the files of runs change while it reads them. A writer takes
/// longer than the one that disturbs it only if it builds or merges more, and it need not do that twice.
const ATTEMPTS_MAX: usize = 3;

/// The maximum number of versions that a call of [`write_runs_beside`] searches for the data files of runs. Each takes one
/// or two requests, and nodes write often. The next call goes on with the others. [`write_runs`] searches all versions.
const VERSIONS_MAX: usize = 20;

/// The result of [`write_runs`] and of [`write_runs_beside`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsSummary {
    /// The key column.
    pub column: String,
    /// The version whose data files the runs cover.
    pub version: u64,
    /// The number of rows of this version, deleted ones included.
    pub rows: u64,
    /// The number of runs.
    pub runs: usize,
    /// The total size of the runs' files, in bytes.
    pub bytes: u64,
    /// The number of runs that this call has written. The others were there before.
    pub written: usize,
    /// The number of files that were deleted, because they are damaged, other runs replace them, or no version of the
    /// main branch has their data files.
    pub deleted: usize,
    /// The duration.
    pub took: Duration,
    /// Problems with files and with versions of the table, one sentence each. Damaged files are deleted, those of an
    /// unknown format are kept.
    pub warnings: Vec<String>,
}

/// The runs that the caller of [`write_runs_beside`] has in memory, and the files that it knows to be damaged.
#[derive(Debug, Default)]
pub struct KnownRuns {
    /// Runs in memory. They are written where the files lack them, in place of building them again.
    pub in_memory: Vec<Arc<Run>>,
    /// The names of files that are damaged.
    pub damaged: HashSet<String>,
}

/// Writes the runs of `column` that the latest version of the table at `uri` needs, except those that are there and
/// undamaged. Small runs are merged. `progress` must not block.
///
/// The call takes the memory of all runs: about 8 bytes for each row, or 12 in runs of fewer than 2.4 million rows.
/// While a run is built from the key column, each of its rows takes up to 28 bytes more. A run is built of each large
/// data file without a run, of several small ones together, and of runs that can't be merged without their keys. While
/// runs are merged, the new run is in memory too. While a run is written, a few parts of the upload are in memory too.
/// The call may be interrupted at any time: files are deleted last.
///
/// # Errors
/// `ColumnNotFound`, `UnsupportedType`, those of the store, `Conflict` if others write runs all the time, and `Internal`
/// for a defect.
pub async fn write_runs(
    lake: &Lake,
    uri: &str,
    column: &str,
    progress: impl Fn(IndexProgress),
) -> Result<RunsSummary> {
    let table = lake.open(uri).await?;
    let mut search = VersionSearch::default();
    let (budget, search) = (&Unlimited, &mut search);
    let task = WriteTask { lake, table, progress, budget, search, is_thorough: true };
    task.run(column, KnownRuns::default()).await.map_err(|error| match error {
        RunWriteError::Table(error) => error,
        // `Unlimited` never refuses.
        error => LakeError::Internal { uri: uri.to_owned(), why: error.to_string() },
    })
}

/// Writes the runs that `table` needs, like [`write_runs`], but beside other work, and often: it uses the runs that the
/// caller has in memory, stays within a budget, and reads a file's pages only if the run has to be merged. It searches at
/// most [`VERSIONS_MAX`] versions for the data files of runs, and goes on with `search`, that of the call before. A file
/// of a run is kept until a search for it has ended.
///
/// # Errors
/// The errors of [`write_runs`], and `Full` if the budget is too small. Runs that were written before stay.
pub async fn write_runs_beside<B: WriteBudget>(
    lake: &Lake,
    table: &Table,
    column: &str,
    known: KnownRuns,
    search: &mut VersionSearch,
    budget: &B,
) -> std::result::Result<RunsSummary, RunWriteError> {
    let (table, progress) = (table.clone(), |_| ());
    let task = WriteTask { lake, table, progress, budget, search, is_thorough: false };
    task.run(column, known).await
}

fn key_column(table: &Table, name: &str) -> Result<KeyColumn> {
    let data_type = table.column_type(name)?;
    match key_type(data_type) {
        Some(key_type) => Ok(KeyColumn { name: name.to_owned(), key_type }),
        None => Err(LakeError::UnsupportedType {
            column: name.to_owned(),
            data_type: data_type.to_string(),
            why: "values of this type can't be keys".to_owned(),
        }),
    }
}

struct WriteTask<'a, P, B> {
    lake: &'a Lake,
    table: Table,
    progress: P,
    budget: &'a B,
    search: &'a mut VersionSearch,
    /// Whether to read all pages of the runs, to find damage, and to search all versions for data files.
    is_thorough: bool,
}

impl<P: Fn(IndexProgress), B: WriteBudget> WriteTask<'_, P, B> {
    async fn run(
        self,
        column: &str,
        known: KnownRuns,
    ) -> std::result::Result<RunsSummary, RunWriteError> {
        let started = Instant::now();
        let column = key_column(&self.table, column)?;
        let wanted = data_files(&self.table, &column.name)?.into_iter().collect();
        let files = RunFiles::of(&self.table).await?;
        let (listed, held, unused, warnings) = Default::default();
        let spare = known.in_memory.into_iter().map(HeldRun::in_memory).collect();
        let damaged = known.damaged;
        let mut writer = RunWriter {
            task: self,
            column,
            files,
            wanted,
            listed,
            held,
            spare,
            unused,
            damaged,
            warnings,
        };
        writer.prepare().await?;
        let written = writer.write().await?;
        let deleted = writer.delete_unused().await?;
        let RunWriter { task, column, wanted, held, warnings, .. } = writer;
        Ok(RunsSummary {
            column: column.name,
            version: task.table.version(),
            rows: wanted.iter().map(|file| u64::from(file.rows)).sum(),
            runs: held.len(),
            bytes: held.iter().filter_map(|it| it.file.as_ref()).map(|file| file.bytes).sum(),
            written,
            deleted,
            took: started.elapsed(),
            warnings,
        })
    }
}

struct RunWriter<'a, P, B: WriteBudget> {
    task: WriteTask<'a, P, B>,
    column: KeyColumn,
    files: RunFiles,
    /// The data files that the runs must cover.
    wanted: HashSet<DataFile>,
    /// The names of the files of runs that there were at the beginning, and of those that were written.
    listed: BTreeSet<String>,
    /// The runs that cover data files of `wanted`.
    held: Vec<HeldRun<B::Held>>,
    /// Runs in memory that have no file, and may be used.
    spare: Vec<HeldRun<B::Held>>,
    /// The files that are not used: the name of each, and the data files that it covers, none if it is damaged.
    unused: Vec<(String, Vec<DataFile>)>,
    /// The names of files that turned out to be damaged, or gone, after their heads were read.
    damaged: HashSet<String>,
    warnings: Vec<String>,
}

/// A run, in memory or in a file or both.
struct HeldRun<H> {
    files: Vec<DataFile>,
    seed: u64,
    hash_bits: u32,
    run: Option<Arc<Run>>,
    file: Option<RunFile>,
    /// The memory that is reserved for the run, if this writer has put it there.
    _memory: Option<H>,
}

impl<P: Fn(IndexProgress), B: WriteBudget> RunWriter<'_, P, B> {
    fn report(&self, stage: &str, unit: &str, done: u64, total: u64) {
        let (stage, unit, total) = (stage.to_owned(), unit.to_owned(), Some(total));
        (self.task.progress)(IndexProgress { stage, done, total, unit, ended: false });
    }

    fn reserve(&self, bytes: u64) -> std::result::Result<B::Held, RunWriteError> {
        self.task.budget.reserve(bytes).ok_or(RunWriteError::Full { bytes })
    }

    /// Finds, builds and merges the runs that are needed. Begins again, with the runs that it has built, if another
    /// writer has changed the files meanwhile and something is to be written: the other one may have written the same.
    async fn prepare(&mut self) -> std::result::Result<(), RunWriteError> {
        for _ in 0..ATTEMPTS_MAX {
            self.load().await?;
            self.choose();
            self.build().await?;
            let is_merged = self.merge().await?;
            if is_merged
                && (self.held.iter().all(|it| it.file.is_some()) || self.is_as_listed().await?)
            {
                return Ok(());
            }
        }
        let why = "the files of its key index change all the time".to_owned();
        Err(LakeError::Conflict { uri: self.task.table.uri().to_owned(), why }.into())
    }

    /// Returns whether there are the same files as at the beginning, besides those that were written. If there are more
    /// files than are listed, this is not known, and true is returned.
    async fn is_as_listed(&self) -> Result<bool> {
        let files = self.files.list().await?;
        if files.len() >= FILES_MAX {
            return Ok(true);
        }
        Ok(files.len() == self.listed.len()
            && files.iter().all(|file| self.listed.contains(&file.name)))
    }

    /// Finds all runs that cover a wanted file. A thorough writer reads them whole to find damage: a damaged run that is
    /// not noticed would never be replaced.
    async fn load(&mut self) -> std::result::Result<(), RunWriteError> {
        self.spare.extend(self.held.drain(..).filter(|it| it.file.is_none()));
        self.unused.clear();
        self.warnings.clear();
        let files = self.files.list().await?;
        self.listed = files.iter().map(|file| file.name.clone()).collect();
        let total = files.iter().map(|file| file.bytes).sum();
        let mut done = 0;
        for file in files {
            self.report("load_runs", "bytes", done, total);
            done += file.bytes;
            if self.damaged.contains(&file.name) {
                self.unused.push((file.name, Vec::new()));
                continue;
            }
            let loaded = match self.task.is_thorough {
                true => self.load_one(&file).await,
                false => self.load_head(&file).await,
            };
            match loaded {
                Ok(()) => {}
                Err(LoadError::Write(error)) => return Err(error),
                Err(LoadError::File(RunFileError::Table(error))) => return Err(error.into()),
                Err(LoadError::File(RunFileError::Refused(error))) => {
                    let path = self.files.path_of(&file.name);
                    // Nodes of another release may need a file of an unknown format.
                    let is_kept = matches!(error, KeyIndexError::UnknownVersion { .. });
                    if !is_kept {
                        self.unused.push((file.name, Vec::new()));
                    }
                    let written =
                        "it is deleted, and what the latest version needs of it is written again";
                    let outcome = if is_kept { "it is kept" } else { written };
                    self.warnings.push(format!("{path}: {error}; {outcome}"));
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, head: HeadFacts<'_>) -> bool {
        head.key_type == self.column.key_type
            && head.files.iter().any(|file| self.wanted.contains(file))
    }

    async fn load_one(&mut self, file: &RunFile) -> std::result::Result<(), LoadError> {
        let Some(reader) = self.files.open(&file.name).await? else { return Ok(()) };
        let memory = self.reserve(reader.bytes_max())?;
        let head = reader.head().await?;
        match self.is_wanted(head.facts()) {
            true => {
                let run = Arc::new(head.load().await?);
                self.held.push(HeldRun::new(run, Some(file.clone()), Some(memory)));
            }
            false => self.unused.push((file.name.clone(), head.facts().files.to_vec())),
        }
        Ok(())
    }

    async fn load_head(&mut self, file: &RunFile) -> std::result::Result<(), LoadError> {
        let Some(reader) = self.files.open_paged(file).await? else { return Ok(()) };
        let _memory = self.reserve(reader.bytes_max())?;
        let Some(head) = reader.head(&self.files).await? else { return Ok(()) };
        let facts = head.facts();
        let files = facts.files.to_vec();
        match self.is_wanted(facts) {
            true => {
                let (seed, hash_bits, file) = (facts.seed, facts.hash_bits, Some(file.clone()));
                let run = self.spare.iter().find(|it| it.seed == seed && it.files == files);
                let run = run.and_then(|it| it.run.clone());
                self.held.push(HeldRun { files, seed, hash_bits, run, file, _memory: None });
            }
            false => self.unused.push((file.name.clone(), files)),
        }
        Ok(())
    }

    /// Chooses the seed whose runs have the most wanted rows. Keeps the runs of this seed, except those whose wanted
    /// files are all covered by runs with more wanted rows. Runs in memory count, and are used, only for files that no
    /// file of a run covers.
    fn choose(&mut self) {
        let mut missing: HashSet<&DataFile> = self.wanted.iter().collect();
        let mut rows_by_seed: HashMap<u64, u64> = HashMap::new();
        for it in &self.held {
            *rows_by_seed.entry(it.seed).or_default() += it.facts(&self.wanted).live_rows;
            covers_some(&it.files, &mut missing);
        }
        for it in &self.spare {
            let rows = it.files.iter().filter(|file| missing.contains(file));
            let rows: u64 = rows.map(|file| u64::from(file.rows)).sum();
            *rows_by_seed.entry(it.seed).or_default() += rows;
        }
        let seed = rows_by_seed.into_iter().max_by_key(|&(seed, rows)| (rows, seed));
        let is_of_seed = |it: &mut HeldRun<B::Held>| Some(it.seed) == seed.map(|(seed, _)| seed);
        let others = self.held.extract_if(.., |it| !is_of_seed(it));
        self.unused.extend(others.filter_map(HeldRun::into_unused));
        self.drop_superfluous();
        let mut missing: HashSet<&DataFile> = self.wanted.iter().collect();
        for it in &self.held {
            covers_some(&it.files, &mut missing);
        }
        self.spare.sort_by_cached_key(|it| Reverse(it.facts(&self.wanted).live_rows));
        let is_used =
            |it: &mut HeldRun<B::Held>| is_of_seed(it) && covers_some(&it.files, &mut missing);
        let used: Vec<_> = self.spare.extract_if(.., is_used).collect();
        self.held.extend(used);
        self.drop_superfluous();
    }

    /// Drops the runs whose wanted files are all covered by runs with more wanted rows.
    fn drop_superfluous(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_cached_key(|it| {
            let RunFacts { live_rows, dead_rows, .. } = it.facts(&self.wanted);
            (Reverse(live_rows), dead_rows, it.file.is_none())
        });
        let mut missing: HashSet<&DataFile> = self.wanted.iter().collect();
        for it in held {
            match covers_some(&it.files, &mut missing) {
                true => self.held.push(it),
                false => self.unused.extend(it.into_unused()),
            }
        }
    }

    /// Builds the runs of the wanted files that have none.
    async fn build(&mut self) -> std::result::Result<(), RunWriteError> {
        let covered: HashSet<&DataFile> = self.held.iter().flat_map(|it| &it.files).collect();
        let is_missing = |file: &&DataFile| !covered.contains(*file);
        let mut missing: Vec<DataFile> = self.wanted.iter().filter(is_missing).cloned().collect();
        let total = missing.iter().map(|file| u64::from(file.rows)).sum();
        let mut done = 0;
        while !missing.is_empty() {
            let built = self.built(first_together(&mut missing), done, total).await?;
            done += built.files.iter().map(|file| u64::from(file.rows)).sum::<u64>();
            self.held.push(built);
        }
        Ok(())
    }

    async fn built(
        &self,
        files: Vec<DataFile>,
        done: u64,
        total: u64,
    ) -> std::result::Result<HeldRun<B::Held>, RunWriteError> {
        // The seed is secret: whoever knows it can make keys whose look-ups have many candidates.
        let seed = self.held.first().map_or_else(rand::random, |it| it.seed);
        let _turn = self.task.budget.turn().await;
        let rows = files.iter().map(|file| u64::from(file.rows)).sum();
        let scratch = self.reserve(Run::build_bytes_of(rows))?;
        let files = files.into_iter().map(|file| (self.task.table.clone(), file)).collect();
        let progress = |rows| self.report("read_keys", "rows", done + rows, total);
        let run = build_run(&self.column, seed, files, progress).await;
        let run = run.map_err(|error| match error {
            BuildError::Table(error) => error,
            defect => self.defect(&defect),
        })?;
        drop(scratch);
        let memory = self.reserve(run.ram_bytes() as u64)?;
        Ok(HeldRun::new(Arc::new(run), None, Some(memory)))
    }

    fn defect(&self, error: &impl ToString) -> LakeError {
        LakeError::Internal { uri: self.task.table.uri().to_owned(), why: error.to_string() }
    }

    /// Merges runs until they are few enough, and have few rows that the version lacks. Returns false if the file of a
    /// run turns out to be damaged or gone.
    async fn merge(&mut self) -> std::result::Result<bool, RunWriteError> {
        loop {
            let facts: Vec<RunFacts> = self.held.iter().map(|it| it.facts(&self.wanted)).collect();
            let Some(merge) = next_merge(&facts, u64::MAX) else { return Ok(true) };
            let rows = merge.runs.iter().map(|&at| facts[at].live_rows).sum();
            self.report("merge_runs", "rows", 0, rows);
            let wanted = self.wanted.clone();
            let new = match merge.needs_keys {
                true => {
                    let files = merge.runs.iter().flat_map(|&at| &self.held[at].files);
                    let files = files.filter(|file| wanted.contains(file)).cloned().collect();
                    self.built(files, 0, rows).await?
                }
                false => {
                    let _turn = self.task.budget.turn().await;
                    let mut parts = Vec::with_capacity(merge.runs.len());
                    for &at in &merge.runs {
                        let Some(part) = self.part(at).await? else { return Ok(false) };
                        parts.push(part);
                    }
                    let entries = parts.iter().map(|(run, _)| run.entries()).sum();
                    let memory = self.reserve(Run::ram_bytes_of(entries))?;
                    let merge = move || {
                        let runs: Vec<&Run> = parts.iter().map(|(run, _)| run.as_ref()).collect();
                        Run::merge(&runs, |file| wanted.contains(file))
                    };
                    let merged = tokio::task::spawn_blocking(merge).await;
                    let merged = merged.map_err(|error| self.defect(&error))?;
                    let run = merged.map_err(|error| self.defect(&error))?;
                    HeldRun::new(Arc::new(run), None, Some(memory))
                }
            };
            let mut at = 0;
            let is_replaced = |_: &mut HeldRun<B::Held>| {
                at += 1;
                merge.runs.contains(&(at - 1))
            };
            let replaced: Vec<_> = self.held.extract_if(.., is_replaced).collect();
            self.unused.extend(replaced.into_iter().filter_map(HeldRun::into_unused));
            self.held.push(new);
        }
    }

    /// Returns a run to be merged, and the memory that is reserved for it if it had to be loaded. `None` if its file is
    /// damaged or gone.
    async fn part(
        &mut self,
        at: usize,
    ) -> std::result::Result<Option<(Arc<Run>, Option<B::Held>)>, RunWriteError> {
        let held = &self.held[at];
        if let Some(run) = &held.run {
            return Ok(Some((Arc::clone(run), None)));
        }
        let name = held.file.as_ref().map(|file| file.name.clone()).unwrap_or_default();
        let loaded = async {
            let Some(reader) = self.files.open(&name).await? else { return Ok(None) };
            let memory = self.reserve(reader.bytes_max())?;
            let run = reader.head().await?.load().await?;
            Ok(Some((Arc::new(run), Some(memory))))
        };
        match loaded.await {
            Ok(Some(part)) => return Ok(Some(part)),
            // The next listing does not have it.
            Ok(None) => {}
            Err(LoadError::File(RunFileError::Refused(_))) => drop(self.damaged.insert(name)),
            Err(LoadError::File(RunFileError::Table(error))) => return Err(error.into()),
            Err(LoadError::Write(error)) => return Err(error),
        }
        Ok(None)
    }

    /// Writes the runs that have no file. Returns their number.
    async fn write(&mut self) -> Result<usize> {
        let total = self.held.iter().filter(|it| it.file.is_none()).count();
        let mut done = 0;
        for at in 0..self.held.len() {
            let HeldRun { run: Some(run), file: None, .. } = &self.held[at] else { continue };
            self.report("write_runs", "runs", done as u64, total as u64);
            let file = self.files.write(run).await?;
            self.listed.insert(file.name.clone());
            self.held[at].file = Some(file);
            done += 1;
        }
        Ok(total)
    }

    /// Deletes unused files, unless some version of the main branch has, or may have, a data file that only they cover.
    /// Returns their number. If another writer has changed the files meanwhile, this deletes nothing: the other one may
    /// have chosen to keep these files, and to delete those that make them superfluous.
    async fn delete_unused(&mut self) -> Result<usize> {
        let unused = std::mem::take(&mut self.unused);
        let covered: HashSet<&DataFile> = self.held.iter().flat_map(|it| &it.files).collect();
        let alone = |(name, mut files): (String, Vec<DataFile>)| {
            files.retain(|file| !covered.contains(file));
            (name, files)
        };
        let unused: Vec<(String, Vec<DataFile>)> = unused.into_iter().map(alone).collect();
        let (mut doubtful, mut obsolete): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|(_, files)| !files.is_empty());
        if !doubtful.is_empty() && self.retain_unneeded(&mut doubtful).await? {
            obsolete.extend(doubtful);
        }
        if obsolete.is_empty() || !self.is_as_listed().await? {
            return Ok(0);
        }
        for (name, _) in &obsolete {
            self.files.delete(name).await?;
        }
        Ok(obsolete.len())
    }

    /// Removes from `doubtful` the files with a data file that some version of the main branch has. Returns false if a
    /// version that still exists could not be opened, or was not searched: then all of `doubtful` must be kept.
    async fn retain_unneeded(
        &mut self,
        doubtful: &mut Vec<(String, Vec<DataFile>)>,
    ) -> Result<bool> {
        let retain = |doubtful: &mut Vec<(String, Vec<DataFile>)>, version: &Table| {
            let has = |file: &DataFile| version.has_files(file.fragment, &file.path);
            doubtful.retain(|(_, files)| !files.iter().any(has));
        };
        retain(doubtful, &self.task.table);
        let versions = self.task.table.versions().await?;
        // A run that is needed is most likely needed by a recent version.
        let versions = self.task.search.go_on(doubtful, &versions);
        let mut is_searched = true;
        for (at, &version) in versions.iter().enumerate() {
            if doubtful.is_empty() {
                break;
            }
            if at == VERSIONS_MAX && !self.task.is_thorough {
                is_searched = false;
                break;
            }
            self.report("check_versions", "versions", at as u64, versions.len() as u64);
            match self.task.lake.open_version(self.task.table.uri(), version).await {
                Ok(table) => {
                    retain(doubtful, &table);
                    self.task.search.has_searched(version);
                }
                Err(LakeError::VersionNotFound { .. }) => {}
                Err(error) => {
                    let note = "runs that only this version may need are kept";
                    self.warnings.push(format!("version {version}: {error}; {note}"));
                    is_searched = false;
                    break;
                }
            }
        }
        self.task.search.pause(doubtful);
        Ok(is_searched)
    }
}

impl<H> HeldRun<H> {
    fn new(run: Arc<Run>, file: Option<RunFile>, memory: Option<H>) -> Self {
        let (files, seed, hash_bits) = (run.files().to_vec(), run.seed(), run.hash_bits());
        Self { files, seed, hash_bits, run: Some(run), file, _memory: memory }
    }

    fn in_memory(run: Arc<Run>) -> Self {
        Self::new(run, None, None)
    }

    fn facts(&self, wanted: &HashSet<DataFile>) -> RunFacts {
        RunFacts::of_files(&self.files, self.hash_bits, wanted)
    }

    fn into_unused(self) -> Option<(String, Vec<DataFile>)> {
        Some((self.file?.name, self.files))
    }
}

/// The reason why a file can't be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    File(#[from] RunFileError),
    #[error(transparent)]
    Write(#[from] RunWriteError),
}

impl From<LakeError> for LoadError {
    fn from(error: LakeError) -> Self {
        Self::Write(error.into())
    }
}
