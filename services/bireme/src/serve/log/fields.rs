//! Fields of log lines in text, without anything that would forge a line or that a terminal would obey.

use std::fmt;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use crate::escape::one_line;

/// Formats fields, messages among them, as `tracing_subscriber` does, on one line. All that a line has of others is in
/// its fields and in those of its spans, and all of these come through here.
#[derive(Default)]
pub struct EscapedFields(DefaultFields);

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        // Into a text of its own, without colours: it has no escape sequences but those of its fields.
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&one_line(&text))
    }
}
