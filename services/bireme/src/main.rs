//! `bireme`: creates tables, serves them with both tiers, and queries them.
//!
//! ```text
//! cli.rs      the command line           ─► commands/  one file per command
//! arguments/  parsers of flags' values      settings/  flags over environment over file
//! serve/      life of a serving process     bench/     load and its measurements
//! output/     rows, tables, JSON on stdout  error.rs   errors (report.rs prints them)
//! machine.rs  cores and free disk space
//! ```
//!
//! Composition only, apart from the load of `bench/`: the work of the commands is done in `lake`, `key-runs`,
//! `io-node`, `query-node` and `client`.

mod arguments;
mod bench;
mod cli;
mod commands;
mod error;
mod escape;
mod exit;
mod machine;
mod output;
mod part_file;
mod progress;
mod quantity;
mod report;
mod runtime;
mod serve;
mod settings;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::exit::Exit;
use crate::usage::Parsed;

fn main() -> ExitCode {
    process::keep_freed_memory();
    process::raise_descriptors();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (json, outcome) = match usage::parse(&arguments) {
        Ok(Parsed::Run(cli)) => (cli.json, cli.run()),
        Ok(Parsed::Printed(code)) => return code,
        // Arguments that can't be parsed may still ask for JSON.
        Err(error) => (arguments.iter().any(|argument| argument == "--json"), Err(error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe, which is no failure.
        Err(error) if error.exit() == Exit::OutputClosed => ExitCode::SUCCESS,
        Err(error) => {
            report::report(&error, json);
            error.exit().code()
        }
    }
}
