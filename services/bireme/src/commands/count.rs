//! `bireme count`: counts the rows that pass a filter.

use clap::{Args, ValueHint};
use client::query::CountRequest;
use serde_json::json;

use crate::arguments::{Connection, TableArgs, parse_filter};
use crate::error::Result;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  bireme count words
  bireme count words --filter \"pos = 'verb' AND depth > 3\"

If scalar indexes answer the filter, no row is read. Otherwise the filter's
columns are read from the table, once for each version.";

/// Arguments of `bireme count`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CountArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Count only rows for which this SQL expression is true
    #[arg(long, value_name = "SQL", value_hint = ValueHint::Other, value_parser = parse_filter)]
    filter: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the number of rows.
pub async fn run(args: CountArgs, out: &mut Output) -> Result<()> {
    let TableArgs { table, table_version: version, table_branch: branch } = args.table;
    let request = CountRequest { table, version, branch, filter: args.filter.unwrap_or_default() };
    let counted = args.connection.open().await?.count(request).await?;
    match out.json() {
        true => out.document(&json!({ "rows": counted.rows, "version": counted.version })),
        false => out.line(counted.rows),
    }
}
