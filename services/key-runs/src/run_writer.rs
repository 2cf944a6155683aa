//! Writes the runs that the latest version of a table needs, and deletes those that no version of its main branch needs
//! any more.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use key_index::{DataFile, HeadFacts, KeyIndexError, Run, RunFacts, covers_some, next_merge};
use lake::{IndexProgress, Lake, LakeError, Result, Table};

use crate::hashes::key_type;
use crate::key_column::{KeyColumn, data_files};
use crate::run_build::{BuildError, build_run, first_together};
use crate::run_file::{RunFile, RunFileError, RunFiles};

/// The result of [`write_runs`].
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
    /// The number of runs that this call writes. The others were there before.
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
/// `ColumnNotFound`, `UnsupportedType`, those of the store, and `Internal` for a defect.
pub async fn write_runs(
    lake: &Lake,
    uri: &str,
    column: &str,
    progress: impl Fn(IndexProgress),
) -> Result<RunsSummary> {
    let started = Instant::now();
    let table = lake.open(uri).await?;
    let column = key_column(&table, column)?;
    let wanted = data_files(&table, &column.name)?.into_iter().collect();
    let files = RunFiles::of(&table).await?;
    let (held, unused, warnings) = Default::default();
    let mut writer =
        RunWriter { lake, table, column, files, wanted, progress, held, unused, warnings };
    writer.load().await?;
    writer.choose();
    writer.build().await?;
    writer.merge().await?;
    let written = writer.write().await?;
    let deleted = writer.delete_unused().await?;
    let RunWriter { table, column, wanted, held, warnings, .. } = writer;
    Ok(RunsSummary {
        column: column.name,
        version: table.version(),
        rows: wanted.iter().map(|file| u64::from(file.rows)).sum(),
        runs: held.len(),
        bytes: held.iter().filter_map(|it| it.file.as_ref()).map(|file| file.bytes).sum(),
        written,
        deleted,
        took: started.elapsed(),
        warnings,
    })
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

struct RunWriter<'a, P> {
    lake: &'a Lake,
    table: Table,
    column: KeyColumn,
    files: RunFiles,
    /// The data files that the runs must cover.
    wanted: HashSet<DataFile>,
    progress: P,
    /// The runs that cover data files of `wanted`.
    held: Vec<HeldRun>,
    /// The files that are not used: the name of each, and the data files that it covers, none if it is damaged.
    unused: Vec<(String, Vec<DataFile>)>,
    warnings: Vec<String>,
}

/// A run in memory, and its file if it has one.
struct HeldRun {
    run: Arc<Run>,
    file: Option<RunFile>,
}

impl<P: Fn(IndexProgress)> RunWriter<'_, P> {
    fn report(&self, stage: &str, unit: &str, done: u64, total: u64) {
        let (stage, unit, total) = (stage.to_owned(), unit.to_owned(), Some(total));
        (self.progress)(IndexProgress { stage, done, total, unit, ended: false });
    }

    /// Loads all runs that cover a wanted file. They are read whole to find damage: a damaged run that is not noticed
    /// here would never be replaced.
    async fn load(&mut self) -> Result<()> {
        let files = self.files.list().await?;
        let total = files.iter().map(|file| file.bytes).sum();
        let mut done = 0;
        for file in files {
            self.report("load_runs", "bytes", done, total);
            done += file.bytes;
            match self.load_one(&file).await {
                Ok(()) => {}
                Err(RunFileError::Table(error)) => return Err(error),
                Err(RunFileError::Refused(error)) => {
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

    async fn load_one(&mut self, file: &RunFile) -> std::result::Result<(), RunFileError> {
        let Some(reader) = self.files.open(&file.name).await? else { return Ok(()) };
        let head = reader.head().await?;
        let HeadFacts { files, key_type, .. } = head.facts();
        let is_wanted =
            key_type == self.column.key_type && files.iter().any(|file| self.wanted.contains(file));
        match is_wanted {
            true => {
                let run = Arc::new(head.load().await?);
                self.held.push(HeldRun { run, file: Some(file.clone()) });
            }
            false => self.unused.push((file.name.clone(), files.to_vec())),
        }
        Ok(())
    }

    /// Chooses the seed whose runs have the most wanted rows. Keeps the loaded runs of this seed, except those whose
    /// wanted files are all covered by runs with more wanted rows.
    fn choose(&mut self) {
        let mut rows_by_seed: HashMap<u64, u64> = HashMap::new();
        for HeldRun { run, .. } in &self.held {
            *rows_by_seed.entry(run.seed()).or_default() +=
                RunFacts::of(run, &self.wanted).live_rows;
        }
        let seed = rows_by_seed.into_iter().max_by_key(|&(seed, rows)| (rows, seed));
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_cached_key(|it| {
            (Reverse(RunFacts::of(&it.run, &self.wanted).live_rows), it.run.rows())
        });
        let mut missing: HashSet<&DataFile> = self.wanted.iter().collect();
        for it in held {
            let is_of_seed = Some(it.run.seed()) == seed.map(|(seed, _)| seed);
            match is_of_seed && covers_some(it.run.files(), &mut missing) {
                true => self.held.push(it),
                false => self.unused.extend(it.into_unused()),
            }
        }
    }

    /// Builds the runs of the wanted files that have none.
    async fn build(&mut self) -> Result<()> {
        let covered: HashSet<&DataFile> = self.held.iter().flat_map(|it| it.run.files()).collect();
        let is_missing = |file: &&DataFile| !covered.contains(*file);
        let mut missing: Vec<DataFile> = self.wanted.iter().filter(is_missing).cloned().collect();
        let total = missing.iter().map(|file| u64::from(file.rows)).sum();
        let mut done = 0;
        while !missing.is_empty() {
            let run = self.built(first_together(&mut missing), done, total).await?;
            done += u64::from(run.rows());
            self.held.push(HeldRun { run, file: None });
        }
        Ok(())
    }

    async fn built(&self, files: Vec<DataFile>, done: u64, total: u64) -> Result<Arc<Run>> {
        // The seed is secret: whoever knows it can make keys whose look-ups have many candidates.
        let seed = self.held.first().map_or_else(rand::random, |it| it.run.seed());
        let files = files.into_iter().map(|file| (self.table.clone(), file)).collect();
        let progress = |rows| self.report("read_keys", "rows", done + rows, total);
        let run = build_run(&self.column, seed, files, progress).await;
        run.map(Arc::new).map_err(|error| match error {
            BuildError::Table(error) => error,
            defect => self.defect(&defect),
        })
    }

    fn defect(&self, error: &impl ToString) -> LakeError {
        LakeError::Internal { uri: self.table.uri().to_owned(), why: error.to_string() }
    }

    /// Merges runs until they are few enough, and have few rows that the version lacks.
    async fn merge(&mut self) -> Result<()> {
        loop {
            let facts: Vec<RunFacts> =
                self.held.iter().map(|it| RunFacts::of(&it.run, &self.wanted)).collect();
            let Some(merge) = next_merge(&facts) else { return Ok(()) };
            let parts: Vec<Arc<Run>> =
                merge.runs.iter().map(|&at| Arc::clone(&self.held[at].run)).collect();
            let rows = merge.runs.iter().map(|&at| facts[at].live_rows).sum();
            self.report("merge_runs", "rows", 0, rows);
            let wanted = self.wanted.clone();
            let run = match merge.needs_keys {
                true => {
                    let files = parts.iter().flat_map(|run| run.files());
                    let files = files.filter(|file| wanted.contains(file)).cloned().collect();
                    self.built(files, 0, rows).await?
                }
                false => {
                    let merge = move || {
                        let parts: Vec<&Run> = parts.iter().map(Arc::as_ref).collect();
                        Run::merge(&parts, |file| wanted.contains(file))
                    };
                    let merged = tokio::task::spawn_blocking(merge).await;
                    let merged = merged.map_err(|error| self.defect(&error))?;
                    Arc::new(merged.map_err(|error| self.defect(&error))?)
                }
            };
            let mut at = 0;
            let is_replaced = |_: &mut HeldRun| {
                at += 1;
                merge.runs.contains(&(at - 1))
            };
            let replaced: Vec<HeldRun> = self.held.extract_if(.., is_replaced).collect();
            self.unused.extend(replaced.into_iter().filter_map(HeldRun::into_unused));
            self.held.push(HeldRun { run, file: None });
        }
    }

    /// Writes the runs that have no file. Returns their number.
    async fn write(&mut self) -> Result<usize> {
        let total = self.held.iter().filter(|it| it.file.is_none()).count();
        let mut done = 0;
        for at in 0..self.held.len() {
            if self.held[at].file.is_none() {
                self.report("write_runs", "runs", done as u64, total as u64);
                let file = self.files.write(&self.held[at].run).await?;
                self.held[at].file = Some(file);
                done += 1;
            }
        }
        Ok(total)
    }

    /// Deletes unused files, unless some version of the main branch has, or may have, a data file that only they cover.
    /// Returns their number.
    async fn delete_unused(&mut self) -> Result<usize> {
        let unused = std::mem::take(&mut self.unused);
        let covered: HashSet<&DataFile> = self.held.iter().flat_map(|it| it.run.files()).collect();
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
        for (name, _) in &obsolete {
            self.files.delete(name).await?;
        }
        Ok(obsolete.len())
    }

    /// Removes from `doubtful` the files with a data file that some version of the main branch has. Returns false if a
    /// version that still exists could not be opened: then all of `doubtful` must be kept.
    async fn retain_unneeded(
        &mut self,
        doubtful: &mut Vec<(String, Vec<DataFile>)>,
    ) -> Result<bool> {
        let retain = |doubtful: &mut Vec<(String, Vec<DataFile>)>, version: &Table| {
            let has = |file: &DataFile| version.has_files(file.fragment, &file.path);
            doubtful.retain(|(_, files)| !files.iter().any(has));
        };
        retain(doubtful, &self.table);
        let versions = self.table.versions().await?;
        // A run that is needed is most likely needed by a recent version.
        for (at, &version) in versions.iter().rev().enumerate() {
            if doubtful.is_empty() {
                break;
            }
            self.report("check_versions", "versions", at as u64, versions.len() as u64);
            match self.lake.open_version(self.table.uri(), version).await {
                Ok(version) => retain(doubtful, &version),
                Err(LakeError::VersionNotFound { .. }) => {}
                Err(error) => {
                    let note = "runs that only this version may need are kept";
                    self.warnings.push(format!("version {version}: {error}; {note}"));
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl HeldRun {
    fn into_unused(self) -> Option<(String, Vec<DataFile>)> {
        Some((self.file?.name, self.run.files().to_vec()))
    }
}
