//! Writes rows into a Lance table, all or nothing.
//!
//! The formats of all files, and the columns of all but JSON files, are checked before the first byte is written. Rows
//! go into data files that no version refers to until the commit at the end. If reading or writing fails before that,
//! or is interrupted, Lance deletes the files, and this module removes empty folders that were made for the table.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use lance::dataset::{InsertBuilder, WriteDestination, WriteMode, WriteParams};
use lance_file::version::LanceFileVersion;

use super::options::{IngestMode, IngestOptions, IngestProgress, IngestSummary};
use super::pump::pump;
use super::source::Source;
use super::target::Target;
use crate::diagnose::diagnose;
use crate::error::{LakeError, Result};
use crate::index::key_record::record_key_column;
use crate::lake::Lake;
use crate::table::Table;
use crate::table::index_info::IndexInfo;

/// Writes the rows of `files`, one file after another, into the table at `uri`, as one new version. If that version has
/// another key column or none, the requested one is recorded in a further version. `progress` is called from the
/// reading thread after each batch.
///
/// Errors: `BadFile`, `SchemaMismatch`, `UnsupportedType`, `ColumnNotFound` (key, vectors), `CompositeKey` and
/// `AnotherKey` (append), `ReservedColumn`, `TableExists`, `TableNotFound` (append), `BadQuery` (options), `Conflict`,
/// `StoreFull`, `StoreRefuses` (read-only), `Interrupted`, `KeyNotRecorded`, and those of [`Lake::open`]. An ingest
/// that fails commits nothing, with two exceptions: the rows are committed if the key column can't be recorded after
/// them (`KeyNotRecorded`), or if the new version can't be opened.
pub async fn ingest(
    lake: &Lake,
    files: &[PathBuf],
    uri: &str,
    options: &IngestOptions,
    progress: impl Fn(IngestProgress) + Send + Sync + 'static,
) -> Result<IngestSummary> {
    let started = Instant::now();
    let canonical = lake.canonical(uri).await?;
    let uri = canonical.to_string();
    let stop = lake.stop();
    let existing = stop.unless(&uri, existing(lake, &uri, options.mode)).await?;
    let (sources, target) = stop.unless(&uri, prepared(files, existing.as_ref(), options)).await?;
    let mut params = write_params(lake, existing.as_ref(), options)?;
    params.store_params = Some(lake.opener().store_params(&canonical).await?);
    let dropped_indexes = match (&existing, options.mode) {
        (Some(table), IngestMode::Overwrite) => indexes_of(table).await,
        _ => Vec::new(),
    };
    let bytes = sources.iter().map(|source| source.bytes).sum();
    let leftovers = Leftovers::before(&uri);
    let (stream, outcome) = pump(sources, target, (&uri, stop.clone()), progress);
    let destination = match &existing {
        Some(table) => WriteDestination::Dataset(table.dataset().clone()),
        None => WriteDestination::Uri(&uri),
    };
    let written = InsertBuilder::new(destination).with_params(&params).execute_stream(stream).await;
    // A reader's error is the last item of the stream. If the stream merely ended, Lance would commit a part of the
    // rows.
    let mut dataset = match (written, outcome.take_fault()) {
        (Ok(dataset), None) => dataset,
        (Err(error), fault) => {
            leftovers.remove();
            return Err(fault.unwrap_or_else(|| write_fault(&uri, error)));
        }
        (Ok(_), Some(fault)) => return Err(fault),
    };
    let opener = Arc::clone(lake.opener());
    let table = Table::new(opener, canonical, None, dataset.clone(), None).await?;
    let key = options.key.as_deref().or(table.key_column());
    // A new table has the key in its schema already. The configuration of an existing table may name another key, which
    // would take precedence.
    if let Some(key) = key.filter(|key| table.key_column() != Some(*key)) {
        record_key_column(&mut dataset, table.uri(), key, "the rows are").await?;
    }
    Ok(IngestSummary {
        rows: outcome.rows(),
        bytes,
        version: dataset.version_id(),
        columns: table.schema().fields().iter().map(|field| field.name().clone()).collect(),
        key: key.map(str::to_owned),
        dropped_indexes,
        took: started.elapsed(),
    })
}

/// Opens the table if it exists. Errors: the table exists and the mode is `Create`, or it does not and the mode is
/// `Append`.
async fn existing(lake: &Lake, uri: &str, mode: IngestMode) -> Result<Option<Table>> {
    match (lake.open(uri).await, mode) {
        (Ok(_), IngestMode::Create) => Err(LakeError::TableExists { uri: uri.to_owned() }),
        (Ok(table), _) => Ok(Some(table)),
        (Err(LakeError::TableNotFound { .. }), IngestMode::Create | IngestMode::Overwrite) => {
            Ok(None)
        }
        (Err(error), _) => Err(error),
    }
}

/// Lists the indexes that an overwrite drops. If they can't be read, the overwrite goes on without the list.
async fn indexes_of(table: &Table) -> Vec<IndexInfo> {
    match table.indexes().await {
        Ok(indexes) => indexes.to_vec(),
        Err(error) => {
            tracing::warn!(%error, "the indexes that the overwrite drops can't be listed");
            Vec::new()
        }
    }
}

/// Checks the files and determines the columns to write. The work blocks, so it runs on a thread that may block.
async fn prepared(
    files: &[PathBuf],
    existing: Option<&Table>,
    options: &IngestOptions,
) -> Result<(Vec<Source>, Target)> {
    let (files, options) = (files.to_vec(), options.clone());
    let table = existing.filter(|_| options.mode == IngestMode::Append).cloned();
    let key = existing.and_then(Table::key_column).map(str::to_owned);
    let work = move || {
        let sources = files.iter().map(|path| Source::new(path)).collect::<Result<Vec<_>>>()?;
        let Some(first) = sources.first() else {
            return Err(LakeError::BadQuery { why: "no files to ingest".to_owned() });
        };
        let target = match &table {
            Some(table) => Target::of_table(table, &options)?,
            None => Target::of_file(first, &options, key.as_deref())?,
        };
        for source in &sources {
            target.check(source)?;
        }
        Ok((sources, target))
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| LakeError::Internal {
        uri: "the files".to_owned(),
        why: error.to_string(),
    })?
}

fn write_params(
    lake: &Lake,
    existing: Option<&Table>,
    options: &IngestOptions,
) -> Result<WriteParams> {
    let bad = |why: String| LakeError::BadQuery { why };
    if options.max_rows_per_file == 0 || options.max_bytes_per_file == 0 {
        return Err(bad("the largest fragment must be at least 1 row and 1 byte".to_owned()));
    }
    let storage_version =
        match &options.storage_version {
            None => None,
            Some(text) => {
                let parsed: std::result::Result<LanceFileVersion, _> = text.parse();
                Some(parsed.map_err(|_| {
                    bad(format!("{text:?} is no Lance file version; 2.0 and 2.1 are"))
                })?)
            }
        };
    Ok(WriteParams {
        mode: match (options.mode, existing) {
            (IngestMode::Append, _) => WriteMode::Append,
            (IngestMode::Overwrite, Some(_)) => WriteMode::Overwrite,
            _ => WriteMode::Create,
        },
        max_rows_per_file: options.max_rows_per_file,
        max_bytes_per_file: usize::try_from(options.max_bytes_per_file).unwrap_or(usize::MAX),
        data_storage_version: storage_version,
        enable_stable_row_ids: options.stable_row_ids,
        session: Some(lake.opener().session()),
        ..Default::default()
    })
}

/// Converts an error of writing. If the table's folder doesn't exist, making it has failed.
fn write_fault(uri: &str, error: lance::Error) -> LakeError {
    match diagnose(uri, error) {
        LakeError::Internal { uri, why } if !uri.contains("://") && !Path::new(&uri).exists() => {
            LakeError::StoreRefuses { uri, why: format!("the folder can't be made here: {why}") }
        }
        other => other,
    }
}

/// The folders that a failed ingest into a local table removes again.
struct Leftovers {
    /// The table's folder; `None` for object stores, which have no folders, and for tables that existed before.
    folder: Option<PathBuf>,
    /// The folder and its parents, as far as they did not exist before the ingest, innermost first.
    made: Vec<PathBuf>,
}

impl Leftovers {
    fn before(uri: &str) -> Self {
        let folder = Path::new(uri);
        let is_table = folder.join("_versions").exists();
        if uri.contains("://") || is_table {
            return Self { folder: None, made: Vec::new() };
        }
        let made = folder.ancestors().take_while(|it| !it.exists()).map(Path::to_owned);
        Self { folder: Some(folder.to_owned()), made: made.collect() }
    }

    /// Removes only empty folders, so that a table that someone else has made meanwhile stays.
    fn remove(&self) {
        let Some(folder) = &self.folder else { return };
        for sub in ["data", "_transactions", "_versions", "_deletions", "_indices"] {
            let _ = std::fs::remove_dir(folder.join(sub));
        }
        for made in &self.made {
            let _ = std::fs::remove_dir(made);
        }
    }
}
