//! The way to stdout.

use std::fmt::Display;
use std::io::{BufWriter, IsTerminal, Stdout, Write};

use arrow_array::RecordBatch;
use serde::Serialize;
use telemetry::LogFormat;
use wire::{Fault, Reason};

use super::rows::{RowLayout, json_rows, rows_text};
use crate::error::{CliError, Result};
use crate::escape::lines;

/// Columns of rows that go to no terminal.
const WIDTH_ELSEWHERE: usize = 120;

/// Stdout, in the form that was asked for.
pub struct Output {
    json: bool,
    /// Of the terminal, or as it was asked for; elsewhere there is no bound.
    width: Option<usize>,
    stdout: BufWriter<Stdout>,
}

impl Output {
    /// For people, or with `json` for programs.
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

    /// For programs too where the log is for them: both come from one container.
    pub fn follow_log(&mut self, format: LogFormat) {
        self.json |= format == LogFormat::Json;
    }

    /// Whether programs read it.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Columns of text that fit a line: what goes to no terminal is not cut.
    pub fn width(&self) -> usize {
        self.width.unwrap_or(usize::MAX)
    }

    /// A line, or several. Of what servers and tables have in it, a terminal obeys nothing.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        let text = text.to_string();
        writeln!(self.stdout, "{}", lines(&text)).map_err(|error| CliError::output(&error))
    }

    /// A JSON document, on one line.
    pub fn document(&mut self, document: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.stdout, document)
            .map_err(|error| CliError::output(&error.into()))?;
        self.line("")
    }

    /// Rows: laid out for people, or a JSON line a row.
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

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stdout.write_all(bytes).map_err(|error| CliError::output(&error))
    }

    /// Hands on what is buffered.
    pub fn flush(&mut self) -> Result<()> {
        self.stdout.flush().map_err(|error| CliError::output(&error))
    }
}
