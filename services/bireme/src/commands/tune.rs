//! `bireme tune`: measures the recall of a vector index by the settings of its searches.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{ArgGroup, Args, ValueHint};
use client::query::{QueryClient, TuneProgress, TuneRequest};
use futures::StreamExt;
use lake::{Lake, LakeOptions, Table};
use recall::{Curve, CurveFileError, CurveFiles, Questions, decode};
use serde_json::{Value, json};
use wire::query::RecallSetting;

use crate::arguments::{Connection, Nulls, StorageArgs, read_vectors};
use crate::error::{CliError, Result};
use crate::escape;
use crate::output::{Output, count, counted, micros, recall_json, recall_text};
use crate::part_file::{part_file, unwritable};
use crate::progress::{Unit, bar};

/// A number of rows and a recall. If the curve has no setting that finds this many rows with this recall, a warning
/// says so. A query node warns about the same values (`WARNED_K`, and `REPAIRED` in `services/recall`).
const WANTED: (u32, f64) = (10, 0.95);

/// Maximum number of questions that a node accepts.
const QUESTIONS_MAX: usize = 2_000;

const EXAMPLES: &str = "\
Examples:
  bireme tune words --uri ./words.lance
  bireme tune docs --uri s3://bucket/docs --questions asked.parquet
  bireme tune docs --output docs.curve
  bireme search words --like n02503517 --recall 0.95

The questions are rows of the table, each of which is left out of its own
answers, or vectors that were really asked. I/O nodes compare them with every
row that the index covers, so a Tune of 256 questions costs about as much as 256
searches without an index. Answers by the index, with all numbers of partitions
and candidates, are then compared with the exact ones.

With --uri the curve is kept beside the table, in the folder _bireme/recall, and
query nodes use it within a minute. Without the right to write there, give the
nodes the file of --output by the setting tables.NAME.recall_curves. Measure
again after the index was built again. A curve makes no claim about searches
with a filter.";

/// Arguments of `bireme tune`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("kept").required(true).multiple(true).args(["uri", "output"]))]
pub struct TuneArgs {
    /// The table's name (see `bireme tables`)
    #[arg(value_name = "TABLE", value_hint = ValueHint::Other)]
    table: String,
    /// The table's version, of its main branch; 0 for the latest
    #[arg(long, value_name = "N", default_value_t = 0)]
    table_version: u64,
    /// The table's URI, as in the query node's `tables`: the curve is kept beside the table
    #[arg(long, value_name = "URI", value_hint = ValueHint::AnyPath)]
    uri: Option<String>,
    /// A file to write the curve to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// The vector column, if the table has several
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    column: Option<String>,
    /// A file of questions in place of rows: Parquet or Arrow, with the vector column, or with one
    /// column of vectors
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["rows", "seed"])]
    questions: Option<PathBuf>,
    /// Rows to draw as questions [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// The seed with which rows are drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Measures, keeps the curve and prints it.
pub async fn run(args: TuneArgs, out: &mut Output) -> Result<()> {
    let questions = match &args.questions {
        Some(file) => read_vectors(file, args.column.as_deref(), QUESTIONS_MAX, Nulls::Skip)?,
        None => Vec::new(),
    };
    // Create a file and open the table before measuring, so that a wrong path or URI is reported at once.
    if let Some(file) = &args.output {
        if file.is_dir() {
            return Err(unwritable(file, &io::ErrorKind::IsADirectory.into()));
        }
        part_file(file).map_err(|error| unwritable(file, &error))?;
    }
    let beside = match &args.uri {
        Some(uri) => {
            let options = LakeOptions { storage: args.storage.to_map()?, ..Default::default() };
            Some(Lake::new(options).open(uri).await?)
        }
        None => None,
    };
    let client = args.connection.open_unlimited().await?;
    let request = TuneRequest {
        table: args.table.clone(),
        version: args.table_version,
        branch: String::new(),
        vector_column: args.column.clone().unwrap_or_default(),
        rows: args.rows.unwrap_or(0),
        questions,
        seed: args.seed,
    };
    let began = Instant::now();
    let bytes = measure(&client, request, out).await?;
    let curve = decode(&bytes).map_err(|error| {
        CliError::usage(format!("the query node's curve can't be read: {error}; use one version"))
    })?;
    // If one of the two fails, the other still has the curve.
    let beside = match &beside {
        Some(table) => Some(Box::pin(keep(table, &curve, &bytes)).await),
        None => None,
    };
    let mut kept = Vec::new();
    if let Some(file) = &args.output {
        write(file, &bytes)?;
        kept.push(file.display().to_string());
    }
    kept.extend(beside.transpose()?);
    let seconds = began.elapsed().as_secs_f64();
    report(&args.table, &curve, &kept, seconds, out)
}

/// Asks the node to measure. Returns the bytes of the curve's file.
async fn measure(client: &QueryClient, request: TuneRequest, out: &Output) -> Result<Vec<u8>> {
    let mut steps = client.tune(request).await?;
    let bar = bar(out.json(), Unit::Count, "tune");
    let mut last = TuneProgress::default();
    while let Some(step) = steps.next().await {
        last = step.inspect_err(|_| bar.finish_and_clear())?;
        bar.set_length(last.total);
        bar.set_position(last.done);
        bar.set_message(match last.step.as_str() {
            "exact" => "rows compared",
            _ => "questions answered",
        });
    }
    bar.finish_and_clear();
    Ok(last.curve.to_vec())
}

/// Writes the curve to a file, whole or not at all, because nodes may be reading it.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut new = part_file(file)?;
        new.write_all(bytes)?;
        new.as_file().sync_all()?;
        // Nodes usually run as other users, who must be able to read the file.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        new.as_file().set_permissions(permissions)?;
        new.persist(file).map(drop).map_err(|error| error.error)
    };
    write().map_err(|error| unwritable(file, &error))
}

/// Writes the curve beside the table. Returns the path of its file.
async fn keep(table: &Table, curve: &Curve, bytes: &[u8]) -> Result<String> {
    let indexes = table.indexes().await?;
    let has = |segment: &String| indexes.iter().any(|index| index.segments.contains(segment));
    if !curve.index.segments.iter().all(has) {
        return Err(CliError::usage(format!(
            "the table at {} does not have the index that was measured; give --uri the URI that the query node serves \
             the table from",
            table.uri()
        )));
    }
    let files = CurveFiles::of(table).await?;
    match files.write(bytes).await {
        Ok(name) => Ok(files.path_of(&name)),
        Err(CurveFileError::Table(error)) => Err(CliError::from(error).hint(
            "the curve was not kept beside the table: measure again with --output FILE, and give the file to the nodes",
        )),
        Err(CurveFileError::Refused(error)) => Err(CliError::usage(error.to_string())),
    }
}

fn report(
    table: &str,
    curve: &Curve,
    kept: &[String],
    seconds: f64,
    out: &mut Output,
) -> Result<()> {
    let settings: Vec<_> = curve.shown().iter().map(RecallSetting::from).collect();
    let unreached = curve.choose(WANTED.0, WANTED.1).err();
    let unreached =
        unreached.map(|why| format!("recall {} for {} rows: {why}", WANTED.1, WANTED.0));
    let warnings: Vec<_> = curve.refine_warning(WANTED.0).into_iter().chain(unreached).collect();
    for warning in &warnings {
        eprintln!("bireme: warning: {}", escape::one_line(warning));
    }
    if out.json() {
        return out.document(&document(table, curve, &settings, &warnings, kept, seconds));
    }
    let source = match curve.questions {
        Questions::Rows => "rows as questions",
        Questions::Given => "given questions",
    };
    out.line(format_args!(
        "recall of {}.{} at version {}, {} with {}, by {} {source}, in {}",
        table,
        curve.column,
        curve.version,
        curve.index.kind,
        counted(curve.index.partitions.into(), "partition", "partitions"),
        count(curve.question_count.into()),
        micros(seconds * 1e6),
    ))?;
    out.bytes(format!("\n{}\n", recall_text(&settings).text(out.width())).as_bytes())?;
    kept.iter().try_for_each(|path| out.line(format_args!("kept in {path}")))
}

fn document(
    table: &str,
    curve: &Curve,
    settings: &[RecallSetting],
    warnings: &[String],
    kept: &[String],
    seconds: f64,
) -> Value {
    json!({
        "table": table,
        "column": curve.column,
        "index": curve.index.name,
        "version": curve.version,
        "rows": curve.rows,
        "questions": curve.question_count,
        "questions_given": curve.questions == Questions::Given,
        "settings": settings.iter().map(recall_json).collect::<Vec<_>>(),
        "warnings": warnings,
        "kept": kept,
        "seconds": seconds,
    })
}
