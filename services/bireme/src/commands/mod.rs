//! The commands, one file each.

pub mod api_key;
pub mod bench;
pub mod completions;
pub mod count;
pub mod describe;
pub mod get;
pub mod index;
pub mod ingest;
pub mod inspect;
pub mod io;
pub mod lookup;
pub mod placement;
pub mod query;
pub mod search;
pub mod status;
pub mod tables;
pub mod take;
pub mod top;
pub mod tune;
pub mod up;
pub mod versions;
pub mod warm;

use clap::CommandFactory;

use crate::cli::{Cli, Command};
use crate::error::Result;
use crate::output::Output;
use crate::runtime;

/// Runs the command.
pub fn run(cli: Cli) -> Result<()> {
    let out = &mut Output::stdout(cli.json);
    match cli.command {
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
        Command::Completions(args) => completions::run(&args, Cli::command(), out),
    }?;
    out.flush()
}
