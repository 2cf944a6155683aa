//! Defines the command line: the subcommands, and the help text. Runs the subcommand.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::api_key::ApiKeyArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::count::CountArgs;
use crate::commands::describe::DescribeArgs;
use crate::commands::get::GetArgs;
use crate::commands::index::IndexArgs;
use crate::commands::ingest::IngestArgs;
use crate::commands::inspect::InspectArgs;
use crate::commands::io::IoArgs;
use crate::commands::lookup::LookupArgs;
use crate::commands::placement::PlacementArgs;
use crate::commands::query::QueryArgs;
use crate::commands::search::SearchArgs;
use crate::commands::status::StatusArgs;
use crate::commands::tables::TablesArgs;
use crate::commands::take::TakeArgs;
use crate::commands::top::TopArgs;
use crate::commands::tune::TuneArgs;
use crate::commands::up::UpArgs;
use crate::commands::versions::VersionsArgs;
use crate::commands::warm::WarmArgs;
use crate::commands::{
    api_key, bench, completions, count, describe, get, index, ingest, inspect, io, lookup,
    placement, query, search, status, tables, take, top, tune, up, versions, warm,
};
use crate::error::Result;
use crate::output::Output;
use crate::runtime;

const AFTER_HELP: &str = "\
First steps:
  bireme ingest words.parquet --table ./words.lance --key synset
  bireme index --table ./words.lance --vector vector --text gloss --key synset
  bireme up --table words=./words.lance
  bireme search words --text 'strong wind'

Exit codes:
  0  done
  2  a bad argument, value or setting, or a search that needs an index that the
     table does not have
  3  not found: a table, version, row, key or file
  4  a node or a store can't be reached, did not answer in time, or is another
     kind of server
  5  overloaded: a queue is full, or a limit of your grant is reached; try again
     later
  6  a node, store, folder, drive or port can't be used: no access, no room, or
     in use
  7  another writer changed the table at the same time: run the command again
  1  anything else
  130  interrupted: unfinished work was not committed; indexes that `index` has
     finished are kept
  143  ended by SIGTERM: a command that writes a file, a node that starts, or a
     node at the second one

An error is one line on stderr, `bireme: what is wrong and how to fix it`. With
--json a second line follows:
{\"error\": {\"reason\", \"message\", \"metadata\", \"exit\"}}
If io, query or up log as JSON, a log line takes the place of the first line.";

/// Serves Lance tables from local NVMe drives: query nodes search, I/O nodes keep the rows.
#[derive(Debug, Parser)]
#[command(name = "bireme", version, after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Cli {
    /// Machine-readable output: one JSON document, or JSON lines for many rows or steps. In rows, NaN and infinity are
    /// null, because JSON has neither
    #[arg(long, global = true)]
    pub json: bool,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
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
    /// Search a table by vector, by similarity to a row, by words, or by a filter
    Search(Box<SearchArgs>),
    /// Get rows by key
    Get(GetArgs),
    /// Append a table's columns to the rows of a file, by key
    Lookup(Box<LookupArgs>),
    /// Get rows by address
    Take(TakeArgs),
    /// Count a table's rows, or those that pass a filter
    Count(CountArgs),
    /// List the tables that are served
    Tables(TablesArgs),
    /// Show a table's columns, indexes and size
    Describe(DescribeArgs),
    /// List a table's versions and tags
    Versions(VersionsArgs),
    /// Measure the recall of a vector index, so that searches may ask for a recall
    Tune(Box<TuneArgs>),
    /// Fill the cache with a table's rows before they are read
    Warm(WarmArgs),
    /// Show which I/O node owns each of a table's chunks
    Placement(PlacementArgs),
    /// Show the nodes, their caches and counters
    Status(StatusArgs),
    /// Show the nodes' rates and latencies, live
    Top(TopArgs),
    /// Make an API key, and its entry in the access policy
    ApiKey(ApiKeyArgs),
    /// Show what a drive's slab holds, while no I/O node uses it
    Inspect(InspectArgs),
    /// Measure a running endpoint under load, or parts of an I/O node
    Bench(BenchArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

impl Cli {
    /// Runs the subcommand.
    pub fn run(self) -> Result<()> {
        let out = &mut Output::stdout(self.json);
        match self.command {
            Command::Ingest(args) => runtime::run(ingest::run(args, out)),
            Command::Index(args) => runtime::run(index::run(args, out)),
            Command::Up(args) => up::run(*args, out),
            Command::Io(args) => io::run(&args, out),
            Command::Inspect(args) => inspect::run(&args, out),
            Command::Query(args) => query::run(&args, out),
            Command::Search(args) => runtime::run(search::run(*args, out)),
            Command::Get(args) => runtime::run(get::run(args, out)),
            Command::Lookup(args) => runtime::run_unless_stopped(lookup::run(*args, out)),
            Command::Take(args) => runtime::run(take::run(args, out)),
            Command::Count(args) => runtime::run(count::run(args, out)),
            Command::Tables(args) => runtime::run(tables::run(args, out)),
            Command::Describe(args) => runtime::run(describe::run(args, out)),
            Command::Versions(args) => runtime::run(versions::run(args, out)),
            Command::Tune(args) => runtime::run(tune::run(*args, out)),
            Command::Warm(args) => runtime::run(warm::run(args, out)),
            Command::Placement(args) => runtime::run(placement::run(args, out)),
            Command::Status(args) => runtime::run(status::run(args, out)),
            Command::Top(args) => runtime::run(top::run(args, out)),
            Command::ApiKey(args) => api_key::run(&args, out),
            Command::Bench(args) => bench::run(args, out),
            Command::Completions(args) => completions::run(&args, Self::command(), out),
        }?;
        out.flush()
    }
}
