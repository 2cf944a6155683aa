//! `bireme take`: gets rows by address or by position.

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
  bireme take words --offsets 0,1,2

A row address is the number that search, get and take show as `_rowaddr`, or
FRAGMENT:OFFSET. --offsets names rows by their positions in the table, counted
without deleted rows. Rows are printed in the order of the addresses or offsets.
Those without a row are named on stderr, and the exit code is 3; the other rows
are still printed.";

/// The maximum number of addresses or offsets that an error names.
const NAMED_MAX: usize = 8;

/// Arguments of `bireme take`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TakeArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The rows' addresses
    #[arg(
        required_unless_present = "offsets",
        value_name = "ROWADDR",
        value_hint = ValueHint::Other,
        value_parser = parse_row_address,
        allow_negative_numbers = true
    )]
    addresses: Vec<RowAddr>,
    /// The rows' positions in the table, instead of addresses
    #[arg(long, value_name = "N,N", value_hint = ValueHint::Other, value_delimiter = ',', conflicts_with = "addresses")]
    offsets: Vec<u64>,
    /// Columns to show [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Exit with code 0 even if addresses or offsets have no row; they are still named on stderr
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
    let layout = if args.addresses.len() + args.offsets.len() == 1 {
        RowLayout::Records
    } else {
        RowLayout::Table
    };
    let table = args.table.table.clone();
    let request = TakeRequest {
        table: args.table.table,
        version: args.table.table_version,
        branch: args.table.table_branch,
        row_addrs: args.addresses.iter().map(|addr| addr.to_u64()).collect(),
        columns: args.columns,
        on_missing: OnMissing::Skip.into(),
        priority: args.priority.number(),
        row_offsets: args.offsets.clone(),
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
    if missing.is_empty() {
        return Ok(());
    }
    let fault = match args.offsets.is_empty() {
        true => absent(&table, &picked(&args.addresses, &missing)),
        false => absent_offsets(&table, &picked(&args.offsets, &missing)),
    };
    match args.skip_missing {
        true => {
            eprintln!("bireme: {}", fault.message);
            Ok(())
        }
        false => Err(fault.into()),
    }
}

/// Returns the items at `positions`.
fn picked<T: Copy>(items: &[T], positions: &[u32]) -> Vec<T> {
    positions.iter().filter_map(|&at| items.get(at as usize)).copied().collect()
}

fn absent_offsets(table: &str, offsets: &[u64]) -> Fault {
    let named = listed(offsets.iter().map(u64::to_string));
    let noun = if offsets.len() == 1 { "offset" } else { "offsets" };
    let message = format!("table `{table}` has no row at the {noun} {named} (after its last row)");
    let all = offsets.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    Fault::new(Reason::RowNotFound, message).with("table", table).with("row_offsets", all)
}

/// Lists the first [`NAMED_MAX`] of `names`, and the number of the others.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.take(NAMED_MAX).collect::<Vec<_>>().join(", ") + &more
}

fn absent(table: &str, addresses: &[RowAddr]) -> Fault {
    let said = |addr: &RowAddr| format!("{addr} ({addr:?})");
    let named = listed(addresses.iter().map(said));
    let noun = if addresses.len() == 1 { "address" } else { "addresses" };
    let message =
        format!("table `{table}` has no row at the {noun} {named} (never there, or deleted)");
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
