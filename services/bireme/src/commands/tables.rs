//! `bireme tables`: lists the tables that are served.

use clap::Args;
use serde_json::{Value, json};

use crate::arguments::Connection;
use crate::error::Result;
use crate::output::{Align, Output, TextTable, count};

const EXAMPLES: &str = "\
Examples:
  bireme tables
  bireme tables --json --endpoint http://10.0.0.6:7070

A table is `unavailable` if it could not be opened, or was missing, damaged or
unreachable when the node last looked for a new version. The reason is printed
below the list (with --json in `error`). A table of a folder is `closed` until
somebody asks for it: the first request opens it.";

/// Arguments of `bireme tables`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TablesArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Prints the list.
pub async fn run(args: TablesArgs, out: &mut Output) -> Result<()> {
    let tables = args.connection.open().await?.tables().await?;
    if out.json() {
        let table = |table: &client::query::TableSummary| {
            json!({
                "name": table.name,
                "version": table.version,
                "rows": table.rows,
                "error": (!table.error.is_empty()).then_some(&table.error),
            })
        };
        let tables: Vec<Value> = tables.iter().map(table).collect();
        return out.document(&json!({ "tables": tables }));
    }
    let mut text = TextTable::new([
        ("table", Align::Left),
        ("version", Align::Right),
        ("rows", Align::Right),
        ("state", Align::Left),
    ]);
    for table in &tables {
        let (version, rows) = match table.version {
            0 => ("-".into(), "-".into()),
            version => (version.to_string(), count(table.rows)),
        };
        let state = match (table.error.as_str(), table.version) {
            ("", 0) => "closed",
            ("", _) => "serving",
            _ => "unavailable",
        };
        text.row(vec![table.name.clone(), version, rows, state.into()]);
    }
    out.bytes(text.text(out.width()).as_bytes())?;
    // Print the reasons below the list, because the columns of the list would cut them off.
    for table in tables.iter().filter(|table| !table.error.is_empty()) {
        out.line(format_args!("\ntable {} is unavailable: {}", table.name, table.error))?;
    }
    Ok(())
}
