//! Formats the fields of log lines in text, with escapes, so that no field can forge a line or control a terminal.

use std::fmt;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use crate::escape::one_line;

/// Formats fields, including the message, as `tracing_subscriber` does, but on one line. Untrusted text occurs only in
/// the fields of an event and of its spans, and all of these are formatted here.
#[derive(Default)]
pub struct EscapedFields(DefaultFields);

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        // Format into a string, without colours, so that any escape sequences in it come from the fields.
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&one_line(&text))
    }
}
