//! Opens persisted runs: into memory, or, if they do not fit, with their pages left in their files.

use std::collections::HashSet;

use bytesize::ByteSize;
use key_index::{DataFile, HeadFacts, KeyIndexError, PagedRun, RUNS_MAX, Run};
use key_runs::{RunFile, RunFileError, RunFiles, SPILL_PIECES_BYTES};
use lake::{LakeError, Table};
use tracing::{info, warn};

use super::TableRuns;
use crate::key_index::memory::Reserved;

/// A persisted run that was opened, and its memory.
pub enum Persisted {
    /// It is in memory.
    Loaded(Run, Reserved),
    /// Its pages stay in its file.
    Paged(PagedRun, Reserved),
}

impl TableRuns {
    /// Lists the files of persisted runs that were not opened yet, smallest first.
    ///
    /// # Errors
    /// If the store does not list them, which is logged.
    pub(super) async fn listed(&self, table: &Table) -> Result<Vec<RunFile>, LakeError> {
        let files = async { RunFiles::of(table).await?.list().await };
        let (name, column) = (&self.table, &self.column.name);
        let mut files = files.await.inspect_err(|error| {
            let note = "what is looked up is built from the key column, and they are listed again";
            warn!(table = name, column, "its persisted runs can't be listed: {error}; {note}");
        })?;
        files.reverse();
        let mut state = self.state();
        state.opened.retain(|name| files.iter().any(|file| file.name == *name));
        state.damaged.retain(|name| files.iter().any(|file| file.name == *name));
        files.retain(|file| !state.opened.contains(&file.name));
        Ok(files)
    }

    /// Opens a persisted run and reserves its memory. `None` if the run is not needed, if not even its head fits, or if
    /// the run can't be used.
    pub(super) async fn opened(&self, table: &Table, file: &RunFile) -> Option<Persisted> {
        let files = RunFiles::of(table).await.ok()?;
        let error = match self.open_file(&files, file).await {
            Ok(opened) => return opened,
            Err(error) => error,
        };
        let (name, column, file_path) = (&self.table, &self.column.name, files.path_of(&file.name));
        match &error {
            RunFileError::Table(_) => {
                warn!(
                    table = name,
                    column, "{file_path} can't be read: {error}; it is tried again"
                );
                self.state().must_retry = true;
                self.later(file)
            }
            RunFileError::Refused(refused) => {
                self.counts.refused();
                // Nodes of another release may need a file of an unknown format.
                if !matches!(refused, KeyIndexError::UnknownVersion { .. }) {
                    self.state().damaged.insert(file.name.clone());
                }
                let uri = table.uri();
                warn!(
                    table = name,
                    column,
                    "{file_path} is not used: {error}; its rows are indexed from the key column; \
                     write it again: `bireme index --table {uri} --key-runs`"
                );
                None
            }
        }
    }

    /// Opens a run in memory if it fits, otherwise in pages. A run that fits and has a damaged page is refused as a whole:
    /// there is memory to build another one in its place, which answers all keys, whereas a run in pages would send the
    /// keys of that page to the table for as long as it is in use.
    async fn open_file(
        &self,
        files: &RunFiles,
        file: &RunFile,
    ) -> Result<Option<Persisted>, RunFileError> {
        self.state().opened.insert(file.name.clone());
        // A file consists mostly of pages, which take as much memory as they have bytes in the file.
        let may_fit = self.memory.used().saturating_add(file.bytes) <= self.memory.max;
        if may_fit {
            let Some(reader) = files.open(&file.name).await? else { return Ok(None) };
            if let Some(held) = self.memory.reserve(reader.bytes_max()) {
                let head = reader.head().await?;
                return match self.needs(head.facts()) {
                    true => Ok(Some(Persisted::Loaded(head.load().await?, held))),
                    false => Ok(None),
                };
            }
        }
        self.open_paged(files, file).await
    }

    /// Opens a persisted run whose pages stay in its file.
    async fn open_paged(
        &self,
        files: &RunFiles,
        file: &RunFile,
    ) -> Result<Option<Persisted>, RunFileError> {
        let Some(reader) = files.open_paged(file).await? else { return Ok(None) };
        let Some(mut held) = self.memory.reserve(reader.bytes_max()) else {
            return Ok(self.later(file));
        };
        let Some(head) = reader.head(files).await? else { return Ok(None) };
        if !self.needs(head.facts()) {
            return Ok(None);
        }
        let needed = self.state().needed_beside(head.facts().files);
        if needed.into_iter().filter(|it| *it).count() == RUNS_MAX {
            return Ok(self.later(file));
        }
        // Larger pieces mean fewer reads, so the largest size that fits is used.
        let fits = |bytes: &u64| held.resize(head.bytes_max(*bytes));
        let Some(piece_bytes) = SPILL_PIECES_BYTES.into_iter().find(fits) else {
            return Ok(self.later(file));
        };
        let Some(run) = head.open(files, piece_bytes).await? else { return Ok(None) };
        if !held.resize(run.ram_bytes() as u64) {
            return Ok(self.later(file));
        }
        let (table, column) = (&self.table, &self.column.name);
        let (path, paged) = (files.path_of(&file.name), ByteSize::b(run.paged_bytes()));
        let more = self.full(run.paged_bytes());
        info!(
            table,
            column, "{path} is not in memory, so look-ups read its pages ({paged}): {more}"
        );
        Ok(Some(Persisted::Paged(run, held)))
    }

    /// Lets the task open a file again later, when there may be room for it or the store may answer.
    fn later(&self, file: &RunFile) -> Option<Persisted> {
        self.state().opened.remove(&file.name);
        None
    }

    /// Returns whether a persisted run can be used together with the existing runs, and covers a file without a run.
    fn needs(&self, head: HeadFacts<'_>) -> bool {
        let files: HashSet<&DataFile> = head.files.iter().collect();
        let state = self.state();
        let is_like_others = state.seed().is_none_or(|seed| seed == head.seed);
        let versions = state.versions_in_use();
        let mut missing = versions.iter().flat_map(|version| state.without_run(version));
        head.key_type == self.column.key_type
            && is_like_others
            && missing.any(|file| files.contains(&file))
    }
}
