//! `bireme lookup`: appends columns of a table to the rows of a file, by key.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use clap::{Args, ValueHint};
use client::query::{
    Append, KeyCounts, LookupOpen, TableDescription, append_columns, columns_to_append,
};
use futures::future::try_join;
use futures::{Stream, TryStreamExt};
use indicatif::ProgressBar;
use lake::{FileRows, fault_of, read_file, read_keys};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wire::Fault;
use wire::query::DescribeTableRequest;

use crate::arguments::{Connection, PriorityArgs, TableArgs, check_source, parse_column};
use crate::error::{CliError, Result};
use crate::output::{self, Output};
use crate::part_file::{part_file, unwritable};
use crate::progress::{Unit, bar};
use crate::runtime::on_a_thread;

/// The number of batches that wait between two stages: reading the file, looking up, and writing. More would only take
/// memory.
const BATCHES_AHEAD: usize = 2;

/// The encoded size at which a row group of the output ends. Its columns are in memory until then.
const ROW_GROUP_BYTES: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  bireme lookup words --keys clicks.parquet --on synset --output joined.parquet
  bireme lookup users --keys events.csv --columns name,age --output e.parquet

The file's name decides its format: .parquet, .csv, .tsv, .jsonl (.ndjson,
.json), .arrow (.ipc, .feather). The output has the file's rows in their order,
and the table's columns beside them: nulls where the key is null or in no row.
In CSV and JSON, keys are read as the type of the key column, and written as for
`bireme get`.
With --all-rows, a row of the file is repeated for each row that has its key.
All rows are read from one version of the table.";

/// Arguments of `bireme lookup`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LookupArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The file whose rows have keys
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The file's column of keys [default: the one with the name of the key column]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    on: Option<String>,
    /// Columns to append [default: all but vectors, blobs and the key]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// The key column [default: the table's own]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    key_column: Option<String>,
    /// Write a row for each row of the table that has the key, not only for one
    #[arg(long)]
    all_rows: bool,
    /// The Parquet file to write. It must not exist
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    priority: PriorityArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Looks the rows up and writes them.
pub async fn run(args: LookupArgs, out: &mut Output) -> Result<()> {
    check_output(&args.output)?;
    check_source(&args.keys)?;
    let client = args.connection.open().await?;
    let TableArgs { table, table_version: version, table_branch: branch } = args.table;
    let request = DescribeTableRequest { table: table.clone(), version, branch: branch.clone() };
    let TableDescription { response: described, schema } = client.describe_version(request).await?;
    let key_column = args.key_column.unwrap_or_else(|| described.key_column.clone());
    let on = args.on.unwrap_or_else(|| key_column.clone());
    let (keys, name) = (args.keys.clone(), on.clone());
    let key_type = schema.field_with_name(&key_column).ok().map(|key| key.data_type().clone());
    let rows = on_a_thread(move || match key_type {
        Some(key_type) => read_keys(&keys, &name, &key_type),
        // The node says why this column can't be looked up.
        None => read_file(&keys),
    });
    let rows = rows.await.map_err(|error| fault_of(&error))?;
    let columns = match args.columns.is_empty() {
        false => args.columns,
        true => columns_to_append(&described, &table, Some(&key_column))?,
    };
    let open = LookupOpen {
        table: table.clone(),
        branch,
        version: described.version,
        key_column,
        columns,
        priority: args.priority.number(),
        all_rows: args.all_rows,
        ..Default::default()
    };
    let counts = Arc::new(KeyCounts::default());
    let lookup = client.lookups().await?.open(open).await?;
    let append = Append { lookup, on, counts: Arc::clone(&counts) };
    let bar = bar(out.json(), Unit::Bytes, "lookup");
    bar.set_length(rows.bytes);
    let began = std::time::Instant::now();
    let appended = append_columns(batches(rows, bar.clone()), Arc::from([append]));
    let rows = write(appended, &args.output).await;
    bar.finish_and_clear();
    let rows = rows?;
    let written = Written { rows, counts: &counts, seconds: began.elapsed().as_secs_f64() };
    report(&table, &args.output, &written, out)
}

/// Checks the name of the file to write, before the first row is looked up.
fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    if !extension.eq_ignore_ascii_case("parquet") {
        return Err(CliError::usage(format!(
            "--output {shown}: the rows are written as Parquet; give a name that ends in .parquet"
        )));
    }
    // A link is in the way too, even if nothing is where it leads.
    match path.symlink_metadata().is_ok() {
        false => part_file(path).map(drop).map_err(|error| unwritable(path, &error)),
        true => {
            Err(CliError::usage(format!("{shown} exists; remove it, or choose another --output")))
        }
    }
}

/// The counts of a look-up that has ended, for its report.
struct Written<'a> {
    rows: u64,
    counts: &'a KeyCounts,
    seconds: f64,
}

fn report(table: &str, path: &Path, written: &Written<'_>, out: &mut Output) -> Result<()> {
    let Written { rows, counts, seconds } = *written;
    let rows_per_s = rows as f64 / seconds.max(1e-6);
    if out.json() {
        return out.document(&json!({
            "table": table,
            "output": path,
            "rows": rows,
            "keys": counts.keys(),
            "keys_found": counts.found(),
            "seconds": seconds,
            "rows_per_s": rows_per_s,
        }));
    }
    let counted = output::counted(rows, "row", "rows");
    let (took, rate) = (output::micros(seconds * 1e6), output::rate(rows_per_s));
    out.line(format_args!("{counted} in {took}, {rate} rows/s: {}", path.display()))?;
    let keys = output::counted(counts.keys(), "key", "keys");
    out.line(format_args!("{} of {keys} found", output::count(counts.found())))
}

/// Reads the file on a thread of its own, because reading blocks.
fn batches(
    mut rows: FileRows,
    bar: ProgressBar,
) -> impl Stream<Item = std::result::Result<RecordBatch, Fault>> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    tokio::task::spawn_blocking(move || {
        while let Some(batch) = rows.next() {
            bar.set_position(rows.bytes_read());
            if sender.blocking_send(batch.map_err(|error| fault_of(&error))).is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(batches)
}

/// Writes all batches to the file at `path`, which appears only when it is complete. Returns the number of rows.
async fn write(
    batches: impl Stream<Item = std::result::Result<RecordBatch, Fault>>,
    path: &Path,
) -> Result<u64> {
    let mut batches = std::pin::pin!(batches);
    // Without rows there is no batch and so no schema.
    let Some(first) = batches.try_next().await? else {
        return Err(CliError::usage("the file of keys has no rows"));
    };
    // The file is removed when this future is dropped, though the thread may still write to it.
    let file = part_file(path).map_err(|error| unwritable(path, &error))?;
    let to = file.as_file().try_clone().map_err(|error| unwritable(path, &error))?;
    let (schema, (sender, found)) = (first.schema(), mpsc::channel(BATCHES_AHEAD));
    let send = async move {
        let mut next = Some(first);
        while let Some(batch) = next {
            if sender.send(batch).await.is_err() {
                // The writer has failed, and says why.
                break;
            }
            next = batches.try_next().await?;
        }
        Ok(())
    };
    let encode = async {
        on_a_thread(move || encode(found, schema, to)).await.map_err(|error| {
            CliError::folder(format!("{} can't be written: {error}", path.display()))
        })
    };
    let ((), rows) = try_join(send, encode).await?;
    file.as_file().sync_all().map_err(|error| unwritable(path, &error))?;
    file.persist_noclobber(path).map_err(|error| unwritable(path, &error.error))?;
    Ok(rows)
}

/// Encodes batches as they come, and writes them to `file`. Returns the number of rows.
fn encode(
    mut batches: mpsc::Receiver<RecordBatch>,
    schema: SchemaRef,
    file: File,
) -> std::result::Result<u64, ParquetError> {
    let properties = writer_properties(&schema);
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    let mut rows = 0;
    let mut row_groups = 0;
    while let Some(batch) = batches.blocking_recv() {
        rows += batch.num_rows() as u64;
        writer.write(&batch)?;
        if writer.flushed_row_groups().len() > row_groups {
            row_groups = writer.flushed_row_groups().len();
            // Starts to write the dirty pages to the drive, without waiting, and drops those that are written.
            // Otherwise the page cache holds most of the file at the end, and the sync waits for the drive with all
            // CPUs idle. The file is complete also if the kernel ignores the advice.
            let _ = posix_fadvise(writer.inner(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }
    writer.close()?;
    Ok(rows)
}

/// Returns how a file of `schema` is encoded. Columns of fixed-size binary values have no statistics: the least and the
/// greatest of some UUIDs or hashes, which are rarely sorted, exclude no page from a search.
fn writer_properties(schema: &Schema) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES));
    for field in schema.fields() {
        if matches!(field.data_type(), DataType::FixedSizeBinary(_)) {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
        }
    }
    properties.build()
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn fixed_size_binary_has_no_statistics() {
        let rows = 20_000;
        let binary = (0..rows).map(|row: i64| row.to_le_bytes());
        let binary: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(binary).unwrap());
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let columns = [("binary", binary), ("numbers", numbers)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let (sender, batches) = mpsc::channel(1);
        sender.blocking_send(batch.clone()).unwrap();
        drop(sender);
        let file = tempfile::tempfile().unwrap();
        let written = encode(batches, batch.schema(), file.try_clone().unwrap()).unwrap();
        assert_eq!(written, rows as u64);

        let file = SerializedFileReader::new(file).unwrap();
        let row_group = file.get_row_group(0).unwrap();
        let columns = row_group.metadata().columns().iter();
        let have_statistics: Vec<bool> = columns.map(|it| it.statistics().is_some()).collect();
        assert_eq!(have_statistics, [false, true]);
    }
}
