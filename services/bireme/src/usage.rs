//! Parses the command line. Errors are one line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::commands::up::removed_flag;
use crate::error::{CliError, Result};

/// The outcome of parsing.
pub enum Parsed {
    /// A command to run.
    Run(Box<Cli>),
    /// Help or the version, which has been printed.
    Printed(ExitCode),
}

/// Parses the arguments, of which the first is the program's name.
pub fn parse(arguments: &[OsString]) -> Result<Parsed> {
    let error = match Cli::try_parse_from(arguments) {
        Ok(cli) => return Ok(Parsed::Run(Box::new(cli))),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // If stdout is closed, nobody is there to read an error.
            let _ = error.print();
            Ok(Parsed::Printed(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))))
        }
        _ => {
            let command = command_of(arguments);
            let removed = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(flag)) if command == "bireme up" => removed_flag(flag),
                _ => None,
            };
            let text = removed.unwrap_or_else(|| one_line(&error.render().to_string()));
            Err(CliError::usage(text).hint(&format!("see `{command} --help`")))
        }
    }
}

/// Returns the command in the arguments: `bireme search` for `bireme search --nonsense`.
fn command_of(arguments: &[OsString]) -> String {
    let mut words = vec!["bireme".to_owned()];
    let mut command = Cli::command();
    for argument in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
        let Some(next) = command.find_subcommand(argument) else { break };
        words.push(argument.to_owned());
        command = next.clone();
    }
    words.join(" ")
}

/// Joins clap's paragraphs up to the usage.
fn one_line(rendered: &str) -> String {
    let is_end =
        |line: &str| line.starts_with("Usage:") || line.starts_with("For more information");
    let lines = rendered.lines().map(str::trim).take_while(|line| !is_end(line));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).replace(" tip: ", "; tip: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match parse(&arguments) {
            Err(error) => {
                assert_eq!(error.exit().number(), 2);
                error.message().to_owned()
            }
            Ok(_) => panic!("{arguments:?} was accepted"),
        }
    }

    #[test]
    fn errors_are_one_line_that_names_the_argument() {
        for (arguments, expected) in [
            (&["bireme", "ingest", "f.csv"][..], "--table <URI>"),
            (&["bireme", "search", "t", "--texd", "x"], "a similar argument exists: '--text'"),
            (&["bireme", "search", "t", "--vector", "x", "--like", "y"], "cannot be used with"),
            (&["bireme", "search", "t", "--text", "x", "-k", "many"], "many"),
            (&["bireme", "sarch"], "'search'"),
            (
                &["bireme", "bench", "get", "t", "--duration", "5"],
                "similar argument exists: '--seconds'",
            ),
            (&["bireme", "up", "--table", "words"], "NAME=URI"),
            (
                &["bireme", "up", "--table", "a=/a", "--ram-tier", "1GiB"],
                "no longer has --ram-tier: the RAM tier has 256MiB",
            ),
            (
                &["bireme", "io", "--ram-tier", "much"],
                "'much' for '--ram-tier <SIZE>': expected a size, such as",
            ),
            (
                &["bireme", "io", "--metrics", "9464"],
                "expected an address and a port, such as \"127.0.0.1:9464\"",
            ),
            (&["bireme", "io", "--grace", "soon"], "expected a duration, such as"),
            (&["bireme", "status", "--timeout", "5"], "expected a duration, such as"),
            (&["bireme", "warm", "t", "--rate", "fast"], "expected a size, such as"),
            (&["bireme", "search", "t", "--filter", " "], "the filter is empty"),
            (&["bireme", "get", "t", "k", "--columns", "a,,b"], "a column's name is missing"),
            (&["bireme", "take", "t", "1:x"], "1:x"),
            (&["bireme", "status", "--endpoint", "ftp://x:1"], "only `http` and `https`"),
            (&["bireme", "index", "--table", "t"], "--vector"),
            (&["bireme", "ingest", "f", "--table", "t", "--fragment-rows", "x"], "invalid digit"),
            (&["bireme", "index", "--table", "t", "--text", "a", "--bits", "4"], "--vector"),
            (
                &["bireme", "index", "--table", "t", "--vector", "a", "--bits", "10"],
                "10 is not in 1..=9",
            ),
            (&["bireme", "index", "--table", "t", "--text", "a", "--kind", "ivf-pq"], "--vector"),
        ] {
            let said = message(arguments);
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains('\n') && said.contains("--help`"), "{said}");
        }
        assert!(
            message(&["bireme", "bench", "get", "--x"]).ends_with("see `bireme bench get --help`")
        );
    }

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        let mut commands = vec![Cli::command().term_width(80)];
        commands[0].build();
        while let Some(mut command) = commands.pop() {
            let is_wide = |line: &&str| line.chars().count() > 80 && !line.starts_with("Usage: ");
            let help = command.render_long_help().to_string();
            assert_eq!(help.lines().find(is_wide), None, "{}", command.get_name());
            // This text is wrapped already. clap would wrap its wide lines once more and leave ragged lines, so every
            // line must fit.
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert_eq!(after.lines().find(is_wide), None, "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
