//! `bireme get`: rows by key.

use clap::{Args, ValueHint};
use client::query::{GetRequest, GottenRows, RowFormat};
use wire::{Fault, Reason};

use crate::arguments::{Connection, PriorityArgs, TableArgs, parse_column};
use crate::error::Result;
use crate::output::{Output, RowLayout};

/// The maximum number of keys that an error names.
const KEYS_NAMED: usize = 8;

const EXAMPLES: &str = "\
Examples:
  bireme get words n02503517
  bireme get words n02503517 n02121620 --columns synset,gloss --json
  bireme get words 5 --key-column domain --all-rows

Rows are printed in the order of the keys: one for each key, or with --all-rows
all that have it. Keys without a row are named on stderr, and the exit code is
3. If the rows of some keys can't be read, those of the others are printed, the
error names these keys, and the exit code is the error's. With --all-rows, one
such key fails the command.";

/// Arguments of `bireme get`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The rows' keys
    #[arg(required = true, value_name = "KEY", value_hint = ValueHint::Other, allow_negative_numbers = true)]
    keys: Vec<String>,
    /// Columns to show [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// The key column [default: the table's own]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    key_column: Option<String>,
    /// Print all rows that have a key, not only one of them
    #[arg(long)]
    all_rows: bool,
    #[command(flatten)]
    priority: PriorityArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Looks up the rows and prints them.
pub async fn run(args: GetArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let layout =
        if args.keys.len() == 1 && !args.all_rows { RowLayout::Records } else { RowLayout::Table };
    let table = args.table.table.clone();
    let request = GetRequest {
        table: args.table.table,
        version: args.table.table_version,
        branch: args.table.table_branch,
        keys: args.keys.clone(),
        columns: args.columns,
        key_column: args.key_column.unwrap_or_default(),
        format: RowFormat::Arrow.into(),
        priority: args.priority.number(),
        all_rows: args.all_rows,
        partial: !args.all_rows,
    };
    let gotten = client.get(request).await?;
    if let GottenRows::Arrow(rows) = &gotten.rows
        && rows.num_rows() > 0
    {
        out.rows(rows, layout)?;
    }
    out.flush()?;
    let keys_at = |positions: &[u32]| -> Vec<&String> {
        positions.iter().filter_map(|&at| args.keys.get(at as usize)).collect()
    };
    let absent_keys = keys_at(&gotten.not_found);
    let absent = (!absent_keys.is_empty()).then(|| absent(&table, &absent_keys));
    let fault = match gotten.unread {
        Some(keys) => Some(unread(&keys_at(&keys.positions), keys.fault, absent)),
        None => absent,
    };
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

/// Returns the fault for keys that have no row.
fn absent(table: &str, keys: &[&String]) -> Fault {
    let message = format!("no row of table `{table}` has the {}", named(keys));
    Fault::new(Reason::KeyNotFound, message).with("table", table).with("keys", listed(keys))
}

/// Returns the fault for keys whose rows can't be read, because of `fault`. `absent` is the fault for other keys that
/// have no row.
fn unread(keys: &[&String], mut fault: Fault, absent: Option<Fault>) -> Fault {
    let rows = if keys.len() == 1 { "row" } else { "rows" };
    let absent = absent.map_or(String::new(), |absent| format!("; {}", absent.message));
    fault.message =
        format!("can't read the {rows} of the {}: {}{absent}", named(keys), fault.message);
    fault.with("keys", listed(keys))
}

/// Names the first keys.
fn named(keys: &[&String]) -> String {
    let named: Vec<String> = keys.iter().take(KEYS_NAMED).map(|key| format!("`{key}`")).collect();
    let more = match keys.len().saturating_sub(KEYS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if keys.len() == 1 { "key" } else { "keys" };
    format!("{noun} {}{more}", named.join(", "))
}

/// Lists all keys.
fn listed(keys: &[&String]) -> String {
    keys.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_a_row_are_named_and_counted() {
        let keys: Vec<String> = (0..10).map(|key| key.to_string()).collect();
        let one = absent("t", &[&keys[3]]);
        assert_eq!(one.message, "no row of table `t` has the key `3`");
        let all = absent("t", &keys.iter().collect::<Vec<_>>());
        assert!(all.message.ends_with("`6`, `7` and 2 more"), "{}", all.message);
        assert_eq!(all.metadata["keys"], "0,1,2,3,4,5,6,7,8,9");
    }

    #[test]
    fn keys_whose_rows_cannot_be_read_are_named_with_the_error() {
        let keys: Vec<String> = (0..3).map(|key| key.to_string()).collect();
        let damaged = || Fault::new(Reason::TableDamaged, "the file is short");
        let fault = unread(&[&keys[1]], damaged(), None);
        assert_eq!(fault.message, "can't read the row of the key `1`: the file is short");
        let absent = absent("t", &[&keys[2]]);
        let fault = unread(&[&keys[0], &keys[1]], damaged(), Some(absent));
        let expected = "can't read the rows of the keys `0`, `1`: the file is short; \
                        no row of table `t` has the key `2`";
        assert_eq!((fault.reason, fault.message.as_str()), (Reason::TableDamaged, expected));
        assert_eq!(fault.metadata["keys"], "0,1");
    }
}
