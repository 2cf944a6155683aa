//! `bireme status`: the nodes, their caches and counters.

use clap::Args;
use client::query::StatusResponse;
use serde_json::{Value, json};
use wire::fetch::StoreUse;
use wire::query::{IoNode, TableSummary};

use crate::arguments::Connection;
use crate::error::Result;
use crate::output::{Align, Output, TextTable, bytes, count, counted, micros};

const EXAMPLES: &str = "\
Examples:
  bireme status
  bireme status --json | jq '.io_nodes[] | select(.reachable | not)'

Counters run from the start of each node. Tables are listed when something is wrong with them, and
always with --json. In `bireme up` both tiers are one process, and CPU and
memory are given for both alike.";

/// Of which node.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Shows it.
pub async fn run(args: StatusArgs, out: &mut Output) -> Result<()> {
    let status = args.connection.open().await?.status().await?;
    if out.json() {
        return out.document(&to_json(&status));
    }
    out.line(format_args!(
        "query node {} (version {}): {} ({} with an error), {} waiting, {} CPU, {}\n",
        status.node,
        status.version,
        counted(status.requests, "request", "requests"),
        count(status.errors),
        counted(status.search_queue.into(), "search", "searches"),
        micros(status.cpu_us as f64),
        bytes(status.resident_bytes),
    ))?;
    let mut text = TextTable::new([
        ("I/O node", Align::Left),
        ("engine", Align::Left),
        ("cache used", Align::Right),
        ("of", Align::Right),
        ("extents", Align::Right),
        ("rows", Align::Right),
        ("reads", Align::Right),
        ("RAM hits", Align::Right),
        ("from table", Align::Right),
        ("CPU", Align::Right),
        ("memory", Align::Right),
    ]);
    status.io_nodes.iter().for_each(|node| text.row(row(node)));
    out.bytes(text.text(out.width()).as_bytes())?;
    for node in status.io_nodes.iter().filter(|node| !node.reachable) {
        out.line(format_args!("\n{} does not answer: {}", node.endpoint, node.error))?;
    }
    for node in &status.io_nodes {
        for (drives, what) in [
            (&node.read_only_drives, "takes no more writes: what it has is served"),
            (&node.retired_drives, "failed and is not used any more: its rows come from the table"),
        ] {
            for drive in drives {
                out.line(format_args!("\ndrive {drive} of {} {what}", node.endpoint))?;
            }
        }
    }
    let nodes = status.io_nodes.iter().map(|node| (node.endpoint.as_str(), &node.store));
    for (node, store) in [("this query node", &status.store)].into_iter().chain(nodes) {
        if let Some(store) = store.as_ref().filter(|store| store.reads + store.writes > 0) {
            out.line(format_args!("\n{node} {}", asked(store)))?;
        }
    }
    for table in status.tables.iter().filter(|table| !table.error.is_empty()) {
        out.line(format_args!("\ntable {} is unavailable: {}", table.name, table.error))?;
    }
    Ok(())
}

/// What object stores were asked for, in words.
fn asked(store: &StoreUse) -> String {
    let mut text = format!(
        "asked object stores for {} and {}, {} read, ${:.4} at list prices",
        counted(store.reads, "read", "reads"),
        counted(store.writes, "write or listing", "writes or listings"),
        bytes(store.bytes_read),
        store.cost_usd,
    );
    for (count, what) in
        [(store.failed, "failed"), (store.refused, "not sent: the store was let be")]
    {
        if count > 0 {
            text.push_str(&format!("; {count} {what}"));
        }
    }
    text
}

fn row(node: &IoNode) -> Vec<String> {
    let address = node.endpoint.trim_start_matches("http://").to_owned();
    if !node.reachable {
        let mut row = vec![address, "unreachable".into()];
        row.resize(11, "-".into());
        return row;
    }
    vec![
        address,
        node.engine.clone(),
        bytes(node.used_bytes),
        bytes(node.capacity_bytes),
        count(node.extents),
        count(node.rows),
        count(node.drive_reads),
        count(node.ram_hits),
        count(node.table_rows),
        micros(node.cpu_us as f64),
        bytes(node.resident_bytes),
    ]
}

fn store_json(store: &StoreUse) -> Value {
    json!({
        "reads": store.reads,
        "writes": store.writes,
        "bytes_read": store.bytes_read,
        "bytes_written": store.bytes_written,
        "failed": store.failed,
        "refused": store.refused,
        "hedged": store.hedged,
        "hedges_won": store.hedges_won,
        "under_way": store.under_way,
        "cost_usd": store.cost_usd,
    })
}

fn to_json(status: &StatusResponse) -> Value {
    let io_node = |node: &IoNode| {
        json!({
            "endpoint": node.endpoint,
            "reachable": node.reachable,
            "error": (!node.error.is_empty()).then_some(&node.error),
            "engine": node.engine,
            "capacity_bytes": node.capacity_bytes,
            "used_bytes": node.used_bytes,
            "extents": node.extents,
            "rows": node.rows,
            "drive_reads": node.drive_reads,
            "drive_read_bytes": node.drive_read_bytes,
            "ram_hits": node.ram_hits,
            "table_rows": node.table_rows,
            "cpu_us": node.cpu_us,
            "resident_bytes": node.resident_bytes,
            "read_only_drives": node.read_only_drives,
            "retired_drives": node.retired_drives,
            "store": node.store.as_ref().map(store_json),
        })
    };
    let table = |table: &TableSummary| {
        json!({
            "name": table.name,
            "version": table.version,
            "error": (!table.error.is_empty()).then_some(&table.error),
        })
    };
    json!({
        "node": status.node,
        "version": status.version,
        "requests": status.requests,
        "errors": status.errors,
        "search_queue": status.search_queue,
        "store": status.store.as_ref().map(store_json),
        "cpu_us": status.cpu_us,
        "resident_bytes": status.resident_bytes,
        "io_nodes": status.io_nodes.iter().map(io_node).collect::<Vec<_>>(),
        "tables": status.tables.iter().map(table).collect::<Vec<_>>(),
    })
}
