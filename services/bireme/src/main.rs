//! `bireme`: makes tables, serves them with both tiers, and asks them.
//!
//! ```text
//! cli.rs        what can be typed     ─► commands/   one file a command
//! arguments/    how values are typed     settings/   flags over environment over file
//! serve/        life of a serving process            bench/   load and what it measured
//! output/       rows, tables and JSON on stdout      error.rs what is at fault, on stderr
//! machine.rs    what there is to use
//! ```
//!
//! Composition only: what the commands do lies in `lake`, `io-node`, `query-node` and `client`.

mod arguments;
mod bench;
mod cli;
mod commands;
mod error;
mod escape;
mod exit;
mod machine;
mod output;
mod progress;
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
        Ok(Parsed::Run(cli)) => (cli.json, commands::run(*cli)),
        Ok(Parsed::Said(code)) => return code,
        // What isn't understood may still say how it wants to be told so.
        Err(error) => (arguments.iter().any(|argument| argument == "--json"), Err(error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has had enough of it.
        Err(error) if error.exit() == Exit::OutputClosed => ExitCode::SUCCESS,
        Err(error) => {
            error.report(json);
            error.exit().code()
        }
    }
}
