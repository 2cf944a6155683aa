//! `bireme tables`: what is served.

use clap::Args;
use serde_json::{Value, json};

use crate::arguments::Connection;
use crate::error::Result;
use crate::output::{Align, Output, TextTable, count};

const EXAMPLES: &str = "\
Examples:
  bireme tables
  bireme tables --json --endpoint http://10.0.0.6:7070";

/// Of which node.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TablesArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Lists them.
pub async fn run(args: TablesArgs, out: &mut Output) -> Result<()> {
    let tables = args.connection.open().await?.tables().await?;
    if out.json() {
        let table = |table: &client::query::TableSummary| {
            json!({
                "name": table.name,
                "uri": table.uri,
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
        ("uri", Align::Left),
        ("", Align::Left),
    ]);
    for table in tables {
        let (version, rows) = match table.version {
            0 => ("-".into(), "-".into()),
            version => (version.to_string(), count(table.rows)),
        };
        text.row(vec![table.name, version, rows, table.uri, table.error]);
    }
    out.bytes(text.text(out.width()).as_bytes())
}
