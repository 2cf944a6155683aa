//! Writes the runs of a table beside it, as `bireme index --key-runs` does.

use std::sync::Arc;

use key_runs::{KnownRuns, RunWriteError, RunsSummary, WriteBudget, write_runs_beside};
use lake::{Lake, Table};
use tracing::{info, warn};

use super::TableRuns;
use crate::key_index::memory::Reserved;

impl WriteBudget for TableRuns {
    type Held = Reserved;

    fn reserve(&self, bytes: u64) -> Option<Reserved> {
        self.memory.reserve(bytes)
    }

    fn turn(&self) -> impl Future<Output = impl Send> + Send {
        self.memory.turn()
    }
}

impl TableRuns {
    /// Writes those runs of the latest version, which is `table`, that are not in files yet, and deletes obsolete files.
    /// Runs in memory are written in place of being built again. Returns whether this succeeded. A failure is logged
    /// if its reason is another one than that of the last failure. If the result is dropped, files that are written
    /// stay, and no reader sees a part of another one.
    pub async fn write(&self, lake: &Lake, table: &Table) -> bool {
        // The writer keeps the runs until it ends, so their memory stays reserved even if they are replaced meanwhile.
        let (known, _held, mut search) = {
            let mut state = self.state();
            let in_memory = state.runs.iter().map(|it| it.run.clone()).collect();
            let held: Vec<_> = state.runs.iter().map(|it| Arc::clone(&it.held)).collect();
            let search = std::mem::take(&mut state.search);
            (KnownRuns { in_memory, damaged: state.damaged.clone() }, held, search)
        };
        let column = &self.column.name;
        let written = write_runs_beside(lake, table, column, known, &mut search, self).await;
        self.state().search = search;
        let is_written = written.is_ok();
        match written {
            Ok(summary) => self.note_written(summary),
            Err(error) => self.note_unwritten(&error, table.uri()),
        }
        is_written
    }

    fn note_written(&self, summary: RunsSummary) {
        let RunsSummary { version, runs, bytes, written, deleted, took, warnings, .. } = summary;
        self.counts.written(written);
        self.state().write_fault = None;
        if written + deleted > 0 {
            let (table, column) = (&self.table, &self.column.name);
            info!(table, column, version, runs, bytes, written, deleted, ?took, "wrote its runs");
            for warning in warnings {
                warn!(table, column, "{warning}");
            }
        }
    }

    fn note_unwritten(&self, error: &RunWriteError, uri: &str) {
        self.counts.write_failed();
        let (table, column) = (&self.table, &self.column.name);
        let remedy = match error {
            RunWriteError::Full { .. } => {
                format!("raise `key_index`, or run `bireme index --table {uri} --key-runs`")
            }
            RunWriteError::Table(_) => {
                let names = format!("{uri}/_bireme/keys");
                format!(
                    "the node must be able to list, read, write and delete {names}; or remove \
                     `tables.{table}.write_key_runs`"
                )
            }
        };
        let fault = format!("its runs can't be written: {error}; {remedy}");
        let mut state = self.state();
        if state.write_fault.as_ref() != Some(&fault) {
            let note = "look-ups do not need the files, and the node tries again in an hour";
            warn!(table, column, "{fault}; {note}");
            state.write_fault = Some(fault);
        }
    }
}
