//! `bireme ingest`: writes files into a Lance table.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lake::{IndexInfo, IngestMode, IngestOptions, IngestSummary, Lake, LakeOptions, Stop};
use serde_json::json;

use crate::arguments::{StorageArgs, VectorColumn, check_source};
use crate::error::Result;
use crate::output::{self, Output, can_build, index_commands};
use crate::progress::{Unit, bar};
use crate::runtime;

/// The size of each cache of a table that is only written to, in bytes. It is small, because rows in transit need the
/// memory.
const CACHE_BYTES: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  bireme ingest words.parquet --table ./words.lance --key synset
  bireme ingest day-*.jsonl --table s3://bucket/events --mode append
  bireme ingest v.parquet --table ./v.lance --vector embedding:384

The file's name decides the format: .parquet, .csv, .tsv, .jsonl (.ndjson,
.json), .arrow (.ipc, .feather). CSV and JSON lines have no types: they are
inferred from the first rows, or taken from the table that rows are appended to.
CSV can't hold lists. In JSON lines, lists of numbers with decimals become
vectors if all have the same length of at least 8; others need --vector.

The rows of all files become one new version of the table; an ingest that fails
or is interrupted changes nothing. --mode overwrite drops the table's indexes
and prints the commands that build them again, if `bireme index` can.

--key records the column and refuses rows without a key. Duplicate keys are not
detected here, but by `bireme index --key`, which reports them: `bireme get`
returns the first row of each.";

/// Arguments of `bireme ingest`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct IngestArgs {
    /// Files to read, one after another
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The table: a folder, s3://, gs:// or az://
    #[arg(long, value_name = "URI")]
    table: String,
    /// The column whose values identify rows; every row must have a value
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// What to do if the table exists
    #[arg(long, default_value = "create", value_parser = modes())]
    mode: IngestMode,
    /// A column of number lists to store as vectors (repeatable)
    #[arg(long = "vector", value_name = "COLUMN:DIMENSION")]
    vectors: Vec<VectorColumn>,
    /// Rows per fragment at most
    #[arg(long, value_name = "N", default_value_t = IngestOptions::default().max_rows_per_file)]
    fragment_rows: usize,
    /// Give a new table stable row ids
    #[arg(long)]
    stable_row_ids: bool,
    #[command(flatten)]
    storage: StorageArgs,
}

fn modes() -> impl TypedValueParser<Value = IngestMode> {
    PossibleValuesParser::new(["create", "append", "overwrite"])
        .try_map(|mode| mode.parse::<IngestMode>())
}

/// Writes the rows.
pub async fn run(args: IngestArgs, out: &mut Output) -> Result<()> {
    // Checked before anything else is done.
    args.files.iter().try_for_each(|file| check_source(file))?;
    let stop = Stop::default();
    let lake = Lake::new(LakeOptions {
        storage: args.storage.to_map()?,
        index_cache_bytes: CACHE_BYTES,
        metadata_cache_bytes: CACHE_BYTES,
        stop: stop.clone(),
        ..Default::default()
    });
    let vectors = args.vectors.into_iter().map(|vector| (vector.column, vector.dimension));
    let options = IngestOptions {
        mode: args.mode,
        key: args.key,
        vectors: vectors.collect(),
        max_rows_per_file: args.fragment_rows,
        stable_row_ids: args.stable_row_ids,
        ..Default::default()
    };
    let bar = bar(out.json(), Unit::Bytes, "ingest");
    let shown = bar.clone();
    let done = lake::ingest(&lake, &args.files, &args.table, &options, move |progress| {
        shown.set_length(progress.bytes_total);
        shown.set_position(progress.bytes_read);
        shown.set_message(output::counted(progress.rows, "row", "rows"));
    });
    let done = runtime::stoppable(&stop, Box::pin(done)).await;
    bar.finish_and_clear();
    report(&args.table, &done??, out)
}

fn report(table: &str, done: &IngestSummary, out: &mut Output) -> Result<()> {
    let seconds = done.took.as_secs_f64();
    let rows_per_s = done.rows as f64 / seconds.max(1e-6);
    let dropped = &done.dropped_indexes;
    let again = index_commands(table, &done.columns, done.key.as_deref(), dropped);
    if out.json() {
        let index =
            |it: &IndexInfo| json!({"name": it.name, "columns": it.columns, "kind": it.kind});
        return out.document(&json!({
            "table": table,
            "version": done.version,
            "rows": done.rows,
            "bytes": done.bytes,
            "seconds": seconds,
            "rows_per_s": rows_per_s,
            "dropped_indexes": dropped.iter().map(index).collect::<Vec<_>>(),
            "index_commands": again,
        }));
    }
    out.line(format_args!(
        "{} ({}) in {}, {} rows/s: {table} is at version {}",
        output::counted(done.rows, "row", "rows"),
        output::bytes(done.bytes),
        output::micros(seconds * 1e6),
        output::rate(rows_per_s),
        done.version,
    ))?;
    if dropped.is_empty() {
        return Ok(());
    }
    let index = |it: &IndexInfo| format!("{} on {}", it.kind, it.columns.join(", "));
    let gone = dropped.iter().map(index).collect::<Vec<_>>().join("; ");
    out.line(format_args!("dropped indexes: {gone}"))?;
    for command in &again {
        out.line(format_args!("to build them again: {command}"))?;
    }
    let others = dropped.iter().filter(|it| !can_build(it)).map(index).collect::<Vec<_>>();
    if others.is_empty() {
        return Ok(());
    }
    out.line(format_args!("of kinds that `bireme index` can't build: {}", others.join("; ")))
}
