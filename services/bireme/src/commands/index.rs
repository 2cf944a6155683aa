//! `bireme index`: builds indexes of a table.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use key_runs::RunsSummary;
use lake::{
    DuplicateKeys, IndexInfo, IndexProgress, IndexRequest, IndexSummary, Lake, LakeError,
    LakeOptions, Metric, Stop, Table, VectorIndex, VectorIndexKind,
};
use serde_json::json;

use crate::arguments::StorageArgs;
use crate::error::{CliError, Result};
use crate::escape;
use crate::output::{self, Output};
use crate::progress::{Unit, bar};
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  bireme index --table ./words.lance --vector vector --text gloss --key synset
  bireme index --table s3://bucket/docs --vector embedding --kind ivf-pq \\
      --metric cosine
  bireme index --table ./events.lance --scalar day --scalar country
  bireme index --table s3://bucket/docs --key-runs

An index of the same type on the same column is replaced, and its kind, metric
and positions are kept unless flags say otherwise. Each index becomes a version
of its own, so it stays if a later one fails or is interrupted.
`bireme ingest --mode overwrite` drops indexes. Appended rows are found without
an index, but more slowly, until the index is built again.

Keys should be unique. Duplicates are counted and reported (in JSON as
`duplicate_keys`), not refused: `bireme get` returns the first row by address. A
column with a null can't be the key, as with `bireme ingest --key`.

--key also writes the key runs: the index that query nodes look keys up in, as
files in the folder _bireme/keys of the table. Nodes load these in place of
reading the key column. --key-runs writes those of appended or compacted data
files, and deletes obsolete ones; it makes no new version, so it is quick to
repeat. It takes 8 bytes of memory a row, and 28 for each row that is indexed.";

/// The heading in `--help` of the flags for vector indexes.
const VECTORS: &str = "Vectors";

/// Arguments of `bireme index`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
    .args(["vector", "text", "scalar", "key", "key_runs"]))]
pub struct IndexArgs {
    /// The table
    #[arg(long, value_name = "URI")]
    table: String,
    /// A column of vectors, for nearest-neighbour search (repeatable)
    #[arg(long, value_name = "COLUMN")]
    vector: Vec<String>,
    /// A column of text, for search by words (repeatable)
    #[arg(long, value_name = "COLUMN")]
    text: Vec<String>,
    /// Store the positions of words with --text, for searches by phrase; the index is larger
    #[arg(long, requires = "text")]
    positions: bool,
    /// A column to filter by (repeatable)
    #[arg(long, value_name = "COLUMN")]
    scalar: Vec<String>,
    /// The column whose values identify rows, for `bireme get`: strings, integers, decimals, dates,
    /// timestamps or binary; they should be unique, and duplicates are reported
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Write the runs of the table's key column that are missing, so that query nodes need not build
    /// them
    #[arg(long)]
    key_runs: bool,
    /// Let --key replace another key column of the table
    #[arg(long, requires = "key")]
    replace_key: bool,
    /// The kind of vector index, which decides how vectors are compressed and searched [default: that
    /// of the index that is replaced, or ivf-rq]
    #[arg(long, value_parser = kinds(), requires = "vector", help_heading = VECTORS)]
    kind: Option<VectorIndexKind>,
    /// The metric of distances [default: that of the index that is replaced, or l2]
    #[arg(long, value_parser = metrics(), requires = "vector", help_heading = VECTORS)]
    metric: Option<Metric>,
    /// Partitions [default: about half the square root of the number of rows, at most 4096]
    #[arg(long, value_name = "N", requires = "vector", help_heading = VECTORS)]
    partitions: Option<usize>,
    /// ivf-pq: codes per vector; must divide the dimension [default: its smallest divisor from a
    /// sixteenth of it on]
    #[arg(long, value_name = "N", requires = "vector", help_heading = VECTORS)]
    sub_vectors: Option<usize>,
    /// ivf-rq: bits per dimension, 1 to 9 [default: 5]
    #[arg(long, value_name = "N", requires = "vector", help_heading = VECTORS)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=9))]
    bits: Option<u8>,
    #[command(flatten)]
    storage: StorageArgs,
}

fn kinds() -> impl TypedValueParser<Value = VectorIndexKind> {
    PossibleValuesParser::new(["ivf-rq", "ivf-pq", "ivf-hnsw-sq"])
        .try_map(|kind| kind.parse::<VectorIndexKind>())
}

fn metrics() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(["l2", "cosine", "dot"]).try_map(|metric| metric.parse::<Metric>())
}

impl IndexArgs {
    /// Returns one request for each column: vectors, texts and scalars first, the key last. Where no flag is given, the
    /// new index is like that of `existing` which it replaces.
    ///
    /// # Errors
    /// A usage error if this command can't build indexes of the kind that is to be replaced.
    fn requests(&self, existing: &[IndexInfo]) -> Result<Vec<IndexRequest>> {
        let vector = |column: &String| {
            let replaced =
                existing.iter().find(|it| it.is_vector() && it.columns == [column.as_str()]);
            let kind = match (self.kind, replaced) {
                (Some(kind), _) => kind,
                (None, None) => VectorIndexKind::default(),
                (None, Some(index)) => index.kind.parse().map_err(|_| {
                    CliError::usage(format!(
                        "column {column:?} has an index of kind {}, which this command can't build: choose another one \
                         with --kind",
                        index.kind
                    ))
                })?,
            };
            let metric = self.metric.or_else(|| replaced?.metric).unwrap_or_default();
            Ok(IndexRequest::Vector(VectorIndex {
                column: column.clone(),
                kind,
                metric,
                partitions: self.partitions,
                sub_vectors: self.sub_vectors,
                bits: self.bits,
            }))
        };
        let text = |column: &String| {
            let replaced =
                existing.iter().find(|it| it.is_text() && it.columns == [column.as_str()]);
            let had_positions = replaced.and_then(|index| index.positions).unwrap_or_default();
            let positions = self.positions || had_positions;
            IndexRequest::Text { column: column.clone(), positions }
        };
        let scalar = |column: &String| IndexRequest::Scalar { column: column.clone() };
        let key = |column: &String| IndexRequest::Key {
            column: column.clone(),
            replace: self.replace_key,
        };
        let vectors = self.vector.iter().map(vector).collect::<Result<Vec<_>>>()?;
        let texts = self.text.iter().map(text);
        let scalars = self.scalar.iter().map(scalar);
        Ok(vectors
            .into_iter()
            .chain(texts)
            .chain(scalars)
            .chain(self.key.iter().map(key))
            .collect())
    }
}

/// Builds the indexes one after another, then writes the key runs.
pub async fn run(args: IndexArgs, out: &mut Output) -> Result<()> {
    let stop = Stop::default();
    let lake = Lake::new(LakeOptions {
        storage: args.storage.to_map()?,
        stop: stop.clone(),
        ..Default::default()
    });
    runtime::stoppable(&stop, Box::pin(build_all(&lake, &stop, &args, out))).await?
}

async fn build_all(lake: &Lake, stop: &Stop, args: &IndexArgs, out: &mut Output) -> Result<()> {
    let table = lake.open(&args.table).await?;
    let runs_of = runs_column(&table, args)?;
    let requests = args.requests(&table.indexes().await?)?;
    drop(table);
    for (at, request) in requests.iter().enumerate() {
        let bar = bar(out.json(), Unit::Steps, &format!("index {}", column_of(request)));
        let shown = bar.clone();
        let progress = move |step: IndexProgress| shown.set_message(step_text(&step));
        let built = lake::build_index(lake, &args.table, request, progress).await;
        bar.finish_and_clear();
        match built {
            Ok(built) => report(&args.table, request, &built, out)?,
            Err(error) => return Err(with_hint(error, at)),
        }
    }
    let Some(column) = runs_of else { return Ok(()) };
    let bar = bar(out.json(), Unit::Steps, &format!("key runs {column}"));
    let progress = |step: IndexProgress| bar.set_message(step_text(&step));
    let write = key_runs::write_runs(lake, &args.table, &column, progress);
    let written = Box::pin(stop.unless(&args.table, write)).await;
    bar.finish_and_clear();
    match written {
        Ok(written) => report_runs(&args.table, &written, out),
        Err(error) => Err(with_hint(error, requests.len())),
    }
}

/// Returns the column whose key runs are to be written, or `None` if none are. Fails before any index is built, because
/// building may take long: if the column of `--key` can't be the key, or if `--key-runs` is given without `--key` and
/// the table records no key column.
fn runs_column(table: &Table, args: &IndexArgs) -> Result<Option<String>> {
    if args.key.is_none() && !args.key_runs {
        return Ok(None);
    }
    if let Some(key) = &args.key {
        table.check_key(key, args.replace_key)?;
        return Ok(Some(key.clone()));
    }
    match table.key_column() {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(match table.no_key_column() {
            LakeError::KeyColumnUnknown { uri } => CliError::usage(format!(
                "{uri} records no key column: name one with --key COLUMN in place of --key-runs"
            )),
            other => other.into(),
        }),
    }
}

/// Returns the error of a command that failed after it had built `built` indexes. The messages of an interruption and
/// of a conflict are about the last change only.
fn with_hint(error: LakeError, built: usize) -> CliError {
    let needs_hint = matches!(error, LakeError::Interrupted { .. } | LakeError::Conflict { .. });
    let error = CliError::from(error);
    match needs_hint && built > 0 {
        true => error.hint("the indexes reported above were committed before, and are kept"),
        false => error,
    }
}

fn column_of(request: &IndexRequest) -> &str {
    match request {
        IndexRequest::Vector(VectorIndex { column, .. })
        | IndexRequest::Text { column, .. }
        | IndexRequest::Scalar { column }
        | IndexRequest::Key { column, .. } => column,
    }
}

fn step_text(step: &IndexProgress) -> String {
    let stage = step.stage.replace('_', " ");
    match (step.ended, step.total) {
        (true, _) => format!("{stage}: done"),
        (false, Some(total)) => {
            format!(
                "{stage}: {} of {} {}",
                output::count(step.done),
                output::count(total),
                step.unit
            )
        }
        (false, None) if step.done == 0 => stage,
        (false, None) => format!("{stage}: {} {}", output::count(step.done), step.unit),
    }
}

fn report(
    table: &str,
    request: &IndexRequest,
    built: &IndexSummary,
    out: &mut Output,
) -> Result<()> {
    let seconds = built.took.as_secs_f64();
    if out.json() {
        let mut document = json!({
            "table": table,
            "index": built.name,
            "column": built.column,
            "kind": built.kind,
            "rows": built.rows,
            "seconds": seconds,
            "version": built.version,
        });
        if matches!(request, IndexRequest::Key { .. }) {
            let duplicates = built.duplicates.as_ref();
            document["duplicate_keys"] = duplicates.map_or(0, |it| it.keys).into();
            document["duplicate_example"] = duplicates.map(|it| it.example.clone()).into();
        }
        out.document(&document)?;
    } else {
        out.line(format_args!(
            "{} on {}: {} in {}, {table} is at version {}",
            built.kind,
            built.column,
            output::counted(built.rows, "row", "rows"),
            output::micros(seconds * 1e6),
            built.version,
        ))?;
    }
    // Flush now, because the next index may take long to build.
    out.flush()?;
    if let Some(duplicates) = &built.duplicates {
        eprintln!("bireme: warning: {}", duplicates_text(&built.column, duplicates));
    }
    Ok(())
}

fn report_runs(table: &str, written: &RunsSummary, out: &mut Output) -> Result<()> {
    let seconds = written.took.as_secs_f64();
    for warning in &written.warnings {
        eprintln!("bireme: warning: {}", escape::one_line(warning));
    }
    if out.json() {
        return out.document(&json!({
            "table": table,
            "index": "key_runs",
            "column": written.column,
            "kind": "KeyRuns",
            "rows": written.rows,
            "seconds": seconds,
            "version": written.version,
            "runs": written.runs,
            "runs_written": written.written,
            "files_deleted": written.deleted,
            "bytes": written.bytes,
        }));
    }
    out.line(format_args!(
        "key runs on {}: {} in {}, {} of {} ({} written), {} deleted",
        written.column,
        output::counted(written.rows, "row", "rows"),
        output::micros(seconds * 1e6),
        output::counted(written.runs as u64, "run", "runs"),
        output::bytes(written.bytes),
        written.written,
        output::counted(written.deleted as u64, "obsolete file", "obsolete files"),
    ))
}

fn duplicates_text(column: &str, duplicates: &DuplicateKeys) -> String {
    let have = if duplicates.keys == 1 { "is" } else { "are" };
    format!(
        "{} of column {column:?} {have} not unique, such as {:?} ({} in all); `bireme get` returns \
         the first row of each",
        output::counted(duplicates.keys, "key", "keys"),
        duplicates.example,
        output::counted(duplicates.rows, "row", "rows"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn one_command_builds_several_indexes_with_the_key_last() {
        let line = "bireme index --table t --key id --vector a --text w --vector b --kind ivf-pq \
                    --metric cosine --partitions 7";
        let Ok(Cli { command: Command::Index(args), .. }) =
            Cli::try_parse_from(line.split_whitespace())
        else {
            panic!("not an index command");
        };
        let requests = args.requests(&[]).unwrap();
        let columns: Vec<&str> = requests.iter().map(column_of).collect();
        assert_eq!(columns, ["a", "b", "w", "id"]);
        let IndexRequest::Vector(vector) = &requests[1] else { panic!("{requests:?}") };
        assert_eq!(
            (vector.kind, vector.metric, vector.partitions),
            (VectorIndexKind::IvfPq, Metric::Cosine, Some(7))
        );
    }

    #[test]
    fn a_conflict_or_an_interruption_says_that_earlier_indexes_are_kept() {
        let errors: [fn() -> LakeError; 2] = [
            || LakeError::Conflict { uri: "t".into(), why: "why".into() },
            || LakeError::Interrupted { uri: "t".into() },
        ];
        for error in errors {
            let kept = "; the indexes reported above were committed before, and are kept";
            assert!(with_hint(error(), 1).message().ends_with(kept), "{:?}", error());
            assert!(!with_hint(error(), 0).message().contains("kept"), "{:?}", error());
        }
    }

    #[test]
    fn duplicates_are_reported_with_an_example() {
        let duplicates = DuplicateKeys { keys: 1200, rows: 2500, example: "a\"b".into() };
        assert_eq!(
            duplicates_text("sku", &duplicates),
            r#"1,200 keys of column "sku" are not unique, such as "a\"b" (2,500 rows in all); "#
                .to_owned()
                + "`bireme get` returns the first row of each"
        );
    }

    #[test]
    fn steps_are_shown_as_text() {
        let step = |done, total, ended| IndexProgress {
            stage: "build_partitions".into(),
            done,
            total,
            unit: "partitions".into(),
            ended,
        };
        assert_eq!(
            step_text(&step(5, Some(1000), false)),
            "build partitions: 5 of 1,000 partitions"
        );
        assert_eq!(step_text(&step(0, None, false)), "build partitions");
        assert_eq!(step_text(&step(9, None, true)), "build partitions: done");
    }
}
