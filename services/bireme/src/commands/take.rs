//! `bireme take`: rows by address.

use address::RowAddr;
use clap::Args;
use client::query::{OnMissing, TakeRequest};

use crate::arguments::{Connection, TableArgs, parse_column, parse_row_address};
use crate::error::Result;
use crate::output::{Output, RowLayout};

const EXAMPLES: &str = "\
Examples:
  bireme take words 0 1 4294967296
  bireme take words 1:0 --columns synset,vector --json
  bireme take words 0:0 0:1 --skip-missing

A row address is the number that search and get show as `_rowaddr`, or FRAGMENT:OFFSET.";

/// Which rows.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TakeArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The rows' addresses
    #[arg(required = true, value_name = "ROWADDR", value_parser = parse_row_address)]
    addresses: Vec<RowAddr>,
    /// Columns to show [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Leave out addresses that name no row, instead of failing
    #[arg(long)]
    skip_missing: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Takes the rows, and prints them as they come.
pub async fn run(args: TakeArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let layout = if args.addresses.len() == 1 { RowLayout::Records } else { RowLayout::Table };
    let on_missing = if args.skip_missing { OnMissing::Skip } else { OnMissing::Error };
    let request = TakeRequest {
        table: args.table.table,
        version: args.table.table_version,
        row_addrs: args.addresses.iter().map(|addr| addr.to_u64()).collect(),
        columns: args.columns,
        on_missing: on_missing.into(),
    };
    let mut parts = client.take(request).await?;
    let mut missing = Vec::new();
    while let Some(part) = parts.next().await? {
        for batch in part.batches.iter().filter(|batch| batch.num_rows() > 0) {
            out.rows(batch, layout)?;
        }
        missing.extend(part.missing);
    }
    if !missing.is_empty() {
        let left_out = missing.iter().filter_map(|&at| args.addresses.get(at as usize));
        let left_out: Vec<String> = left_out.map(|addr| format!("{addr:?}")).collect();
        eprintln!("bireme: left out, no such rows: {}", left_out.join(" "));
    }
    Ok(())
}
