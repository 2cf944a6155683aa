//! `bireme take`: gets rows by address.

use address::RowAddr;
use clap::{Args, ValueHint};
use client::query::{OnMissing, TakeRequest};
use wire::{Fault, Reason};

use crate::arguments::{Connection, PriorityArgs, TableArgs, parse_column, parse_row_address};
use crate::error::Result;
use crate::output::{Output, RowLayout};

const EXAMPLES: &str = "\
Examples:
  bireme take words 0 1 4294967296
  bireme take words 1:0 --columns synset,vector --json
  bireme take words 0:0 0:1 --skip-missing

A row address is the number that search, get and take show as `_rowaddr`, or
FRAGMENT:OFFSET. Rows are printed in the order of the addresses. Addresses
without a row are named on stderr, and the exit code is 3; the other rows are
still printed.";

/// The maximum number of addresses that an error names.
const ADDRESSES_NAMED: usize = 8;

/// Arguments of `bireme take`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TakeArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The rows' addresses
    #[arg(
        required = true,
        value_name = "ROWADDR",
        value_hint = ValueHint::Other,
        value_parser = parse_row_address,
        allow_negative_numbers = true
    )]
    addresses: Vec<RowAddr>,
    /// Columns to show [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Exit with code 0 even if addresses have no row; they are still named on stderr
    #[arg(long)]
    skip_missing: bool,
    #[command(flatten)]
    priority: PriorityArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Takes the rows and prints them as they arrive.
pub async fn run(args: TakeArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let layout = if args.addresses.len() == 1 { RowLayout::Records } else { RowLayout::Table };
    let table = args.table.table.clone();
    let request = TakeRequest {
        table: args.table.table,
        version: args.table.table_version,
        branch: args.table.table_branch,
        row_addrs: args.addresses.iter().map(|addr| addr.to_u64()).collect(),
        columns: args.columns,
        on_missing: OnMissing::Skip.into(),
        priority: args.priority.number(),
    };
    let mut parts = client.take(request).await?;
    let mut missing = Vec::new();
    while let Some(part) = parts.next().await? {
        for batch in part.batches.iter().filter(|batch| batch.num_rows() > 0) {
            out.rows(batch, layout)?;
        }
        missing.extend(part.missing);
    }
    out.flush()?;
    let missing = missing.iter().filter_map(|&at| args.addresses.get(at as usize));
    let missing: Vec<RowAddr> = missing.copied().collect();
    match (missing.is_empty(), args.skip_missing) {
        (true, _) => Ok(()),
        (false, true) => {
            eprintln!("bireme: {}", absent(&table, &missing).message);
            Ok(())
        }
        (false, false) => Err(absent(&table, &missing).into()),
    }
}

fn absent(table: &str, addresses: &[RowAddr]) -> Fault {
    let said = |addr: &RowAddr| format!("{addr} ({addr:?})");
    let named: Vec<String> = addresses.iter().take(ADDRESSES_NAMED).map(said).collect();
    let more = match addresses.len().saturating_sub(ADDRESSES_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if addresses.len() == 1 { "address" } else { "addresses" };
    let message = format!(
        "table `{table}` has no row at the {noun} {}{more} (never there, or deleted)",
        named.join(", ")
    );
    let all = addresses.iter().map(RowAddr::to_string).collect::<Vec<_>>().join(",");
    Fault::new(Reason::RowNotFound, message).with("table", table).with("row_addrs", all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_row_are_named_and_counted() {
        let addresses: Vec<RowAddr> = (0..10).map(|offset| RowAddr::new(1, offset)).collect();
        let one = absent("t", &addresses[..1]);
        let said = "table `t` has no row at the address 4294967296 (1:0) (never there, or deleted)";
        assert_eq!(one.message, said);
        let all = absent("t", &addresses);
        assert!(all.message.contains("(1:7) and 2 more"), "{}", all.message);
        assert!(all.metadata["row_addrs"].ends_with("4294967305"), "{:?}", all.metadata);
    }
}
