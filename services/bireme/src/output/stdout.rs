//! Writes to stdout.

use std::fmt::Display;
use std::io::{BufWriter, IsTerminal, Stdout, Write};

use arrow_array::RecordBatch;
use serde::Serialize;
use telemetry::LogFormat;
use wire::{Fault, Reason};

use super::rows::{RowLayout, json_rows, rows_text};
use crate::error::{CliError, Result};
use crate::escape::lines;

/// The width of rows, in characters, if COLUMNS is not set and stdout is not a terminal.
const WIDTH_ELSEWHERE: usize = 120;

/// Stdout, as text or as JSON.
pub struct Output {
    json: bool,
    /// The number in the variable COLUMNS, else the width of the terminal; `None` if there is neither.
    width: Option<usize>,
    stdout: BufWriter<Stdout>,
}

impl Output {
    /// Creates an output that writes text for people, or JSON for programs if `json` is set.
    pub fn stdout(json: bool) -> Self {
        let stdout = std::io::stdout();
        let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = match wanted {
            Some(columns) => Some(columns),
            None if stdout.is_terminal() => Some(usize::from(console::Term::stdout().size().1)),
            None => None,
        };
        Self { json, width, stdout: BufWriter::new(stdout) }
    }

    /// Switches to JSON if the log is JSON, because both are the output of one container.
    pub fn follow_log(&mut self, format: LogFormat) {
        self.json |= format == LogFormat::Json;
    }

    /// Returns whether the output is JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Returns the width of a line. Without COLUMNS and without a terminal, nothing is cut.
    pub fn width(&self) -> usize {
        self.width.unwrap_or(usize::MAX)
    }

    /// Writes a text of one or more lines. Its control characters are escaped, because text from servers and tables may
    /// contain escape sequences.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        let text = text.to_string();
        writeln!(self.stdout, "{}", lines(&text)).map_err(|error| CliError::output(&error))
    }

    /// Writes a JSON document on one line.
    pub fn document(&mut self, document: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.stdout, document)
            .map_err(|error| CliError::output(&error.into()))?;
        self.line("")
    }

    /// Writes rows for people, or as JSON lines.
    pub fn rows(&mut self, rows: &RecordBatch, layout: RowLayout) -> Result<()> {
        if !self.json {
            let text = rows_text(rows, layout, self.width.unwrap_or(WIDTH_ELSEWHERE));
            return self.bytes(lines(&text).as_bytes());
        }
        let json = json_rows(rows).map_err(|error| {
            let message =
                format!("the rows can't be written as JSON: {error}; leave such columns out");
            Fault::new(Reason::UnsupportedType, message)
        })?;
        self.bytes(&json)
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stdout.write_all(bytes).map_err(|error| CliError::output(&error))
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> Result<()> {
        self.stdout.flush().map_err(|error| CliError::output(&error))
    }
}
