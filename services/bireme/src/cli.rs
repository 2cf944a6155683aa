//! What can be typed.

use clap::{Parser, Subcommand};

use crate::commands::bench::BenchArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::describe::DescribeArgs;
use crate::commands::get::GetArgs;
use crate::commands::index::IndexArgs;
use crate::commands::ingest::IngestArgs;
use crate::commands::inspect::InspectArgs;
use crate::commands::io::IoArgs;
use crate::commands::placement::PlacementArgs;
use crate::commands::query::QueryArgs;
use crate::commands::search::SearchArgs;
use crate::commands::status::StatusArgs;
use crate::commands::tables::TablesArgs;
use crate::commands::take::TakeArgs;
use crate::commands::top::TopArgs;
use crate::commands::up::UpArgs;
use crate::commands::warm::WarmArgs;

const AFTER_HELP: &str = "\
First steps:
  bireme ingest words.parquet --table ./words.lance --key synset
  bireme index --table ./words.lance --vector vector --text gloss --key synset
  bireme up --table words=./words.lance
  bireme search words --text 'strong wind'

Exit codes:
  0  done
  2  a bad argument, value or setting, or one that the table has no index for
  3  not found: a table, version, row, key or file
  4  a node or a store can't be reached, is something else, or did not answer in
     time
  5  overloaded: a queue is full, try again a little later
  6  a store, folder, drive or port can't be had: no access, no room, or in use
  1  anything else
  130  interrupted: nothing was committed

Errors are one line on stderr, `bireme: what is at fault and how to mend it`;
with --json it is followed by a line
{\"error\": {\"reason\", \"message\", \"metadata\", \"exit\"}}. Where io, query or up
log JSON (with --json, or as set) a line of the log takes the first one's place.";

/// Serves Lance tables from local NVMe drives: query nodes search, I/O nodes keep the rows.
#[derive(Debug, Parser)]
#[command(name = "bireme", version, after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Cli {
    /// Machine-readable output: one JSON document, or JSON lines where there are many
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write files into a Lance table: Parquet, CSV, JSON lines, Arrow IPC
    Ingest(IngestArgs),
    /// Build indexes of a table: for vectors, words, filters and keys
    Index(IndexArgs),
    /// Run both tiers in one process on loopback, for a laptop
    Up(Box<UpArgs>),
    /// Run one I/O node
    Io(Box<IoArgs>),
    /// Run one query node
    Query(Box<QueryArgs>),
    /// Search a table by vector, by likeness to a row, by words, or by a filter
    Search(Box<SearchArgs>),
    /// Rows by key
    Get(GetArgs),
    /// Rows by address
    Take(TakeArgs),
    /// The tables that are served
    Tables(TablesArgs),
    /// A table's columns, indexes and size
    Describe(DescribeArgs),
    /// Fill a table's rows into the cache ahead of their use
    Warm(WarmArgs),
    /// Which I/O node owns which of a table's chunks
    Placement(PlacementArgs),
    /// The nodes, their caches and counters
    Status(StatusArgs),
    /// The same as it changes: rates and latencies, live
    Top(TopArgs),
    /// What a drive's slab holds, while no I/O node serves it
    Inspect(InspectArgs),
    /// Put load on a running endpoint and measure it; measure parts of an I/O node
    Bench(BenchArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}
