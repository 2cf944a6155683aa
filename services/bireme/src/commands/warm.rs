//! `bireme warm`: fills the cache with a table's rows, or the files of its indexes, before they are read.

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use client::query::{WarmProgress, WarmRequest};
use futures::StreamExt;
use serde_json::json;
use wire::fetch::RowRange;
use wire::query::IndexFiles;
use wire::{Fault, Reason};

use crate::arguments::{Connection, TableArgs, parse_column, parse_row_range, parse_size};
use crate::error::Result;
use crate::output::{self, Output, bytes, count, counted};
use crate::progress::{Unit, bar};

const EXAMPLES: &str = "\
Examples:
  bireme warm words
  bireme warm words --columns vector --json
  bireme warm words --rate 50MiB
  bireme warm words --rows 1_000_000..        # all from the millionth row on
  bireme warm words --rows 0..5000,90000..95000
  bireme warm words --indexes               # files of indexes instead of rows
  bireme warm words --indexes=vector_idx

A row's position is its number in the order of a scan, from 0, without deleted
rows. Chunks are filled whole, so some neighbours of the rows are filled too.

With --json each step is a line; the last one has \"done\": true. Extents that are
filled already are skipped, so an interrupted warm continues where it stopped.";

/// Arguments of `bireme warm`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WarmArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Columns to fill [default: all]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Rows to fill, by their positions in the table, half-open [default: all]
    #[arg(long, value_name = "A..B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_row_range)]
    rows: Vec<RowRange>,
    /// Fill files of indexes instead of rows: those named, or without names all, and the table's deletion files and
    /// written key index. Only for tables in object stores
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', num_args = 0.., require_equals = true, conflicts_with_all = ["columns", "rows"])]
    indexes: Option<Vec<String>>,
    /// Bytes per second that are written at most, over all I/O nodes; 0 for no limit
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    rate: ByteSize,
    #[command(flatten)]
    connection: Connection,
}

/// Fills the cache and prints the progress.
pub async fn run(args: WarmArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open_unlimited().await?;
    let request = WarmRequest {
        table: args.table.table.clone(),
        version: args.table.table_version,
        branch: args.table.table_branch,
        columns: args.columns,
        bytes_per_s: args.rate.as_u64(),
        rows: args.rows,
        indexes: args.indexes.map(|names| IndexFiles { names }),
    };
    let began = std::time::Instant::now();
    let mut steps = client.warm(request).await?;
    let bar = bar(out.json(), Unit::Count, "warm");
    let mut last = WarmProgress::default();
    while let Some(step) = steps.next().await {
        last = step.inspect_err(|_| bar.finish_and_clear())?;
        bar.set_length(last.extents_total);
        bar.set_position(last.extents_done);
        bar.set_message(format!("extents, {} written", bytes(last.bytes_written)));
        if out.json() {
            report(&last, false, out)?;
        }
    }
    bar.finish_and_clear();
    if out.json() {
        report(&last, true, out)?;
    } else {
        out.line(format_args!(
            "{} of {} filled ({} already before), {} written in {}",
            count(last.extents_done),
            counted(last.extents_total, "extent", "extents"),
            count(last.extents_found),
            bytes(last.bytes_written),
            output::micros(began.elapsed().as_secs_f64() * 1e6),
        ))?;
    }
    out.flush()?;
    // In a cache that is too small, the last fills evict the first ones. A node that doesn't answer now does not make
    // the warm fail.
    if let Ok(status) = client.status().await {
        let held = status.io_nodes.iter().map(|node| node.used_bytes).sum::<u64>();
        if status.io_nodes.iter().all(|node| node.reachable) && held < last.bytes_written {
            let (filled, held) = (bytes(last.bytes_written), bytes(held));
            eprintln!(
                "bireme: {filled} were filled, but the drives hold only {held}: the first fills have been evicted; use \
                 larger drives, or warm fewer rows or columns"
            );
        }
    }
    if last.extents_failed > 0 { Err(failed(&args.table.table, &last).into()) } else { Ok(()) }
}

fn report(step: &WarmProgress, done: bool, out: &mut Output) -> Result<()> {
    out.document(&json!({
        "extents_total": step.extents_total,
        "extents_done": step.extents_done,
        "extents_found": step.extents_found,
        "extents_failed": step.extents_failed,
        "bytes_written": step.bytes_written,
        "done": done,
    }))?;
    out.flush()
}

fn failed(table: &str, last: &WarmProgress) -> Fault {
    let failed = counted(last.extents_failed, "extent", "extents");
    let why = &last.last_error;
    let message = format!("{failed} of table `{table}` could not be filled: {why}");
    Fault::new(Reason::Internal, message).with("table", table)
}
