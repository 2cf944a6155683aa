//! `bireme status`: shows the nodes, their caches and counters.

use clap::Args;
use client::query::StatusResponse;
use serde_json::{Value, json};
use wire::fetch::{StartWarm, StoreUse, TableUse};
use wire::query::{IoNode, MemberState, Membership, TableFolder, TableSummary};
use wire::{Fault, Reason};

use crate::arguments::Connection;
use crate::error::Result;
use crate::output::{Align, Output, TextTable, bytes, count, counted, micros};

const EXAMPLES: &str = "\
Examples:
  bireme status
  bireme status --json | jq '.io_nodes[] | select(.reachable | not)'

Counters begin at 0 when a node starts. Tables are listed if they are
unavailable, and always with --json. Folders of tables are shown to callers that
may see all tables. With `bireme up` both tiers are one
process, and both show its CPU time and memory. If an I/O node does not answer,
the exit code is 4.";

/// The source that a status names if the list of I/O nodes is in the configuration. It is not shown, because such a
/// list does not change.
const FIXED: &str = "configuration";

/// Arguments of `bireme status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Prints the status.
pub async fn run(args: StatusArgs, out: &mut Output) -> Result<()> {
    let status = args.connection.open().await?.status().await?;
    match out.json() {
        true => out.document(&to_json(&status))?,
        false => report(&status, out)?,
    }
    out.flush()?;
    unreachable(&status.io_nodes).map_or(Ok(()), |fault| Err(fault.into()))
}

/// Returns a fault if an I/O node does not answer, so that scripts see it in the exit code.
fn unreachable(nodes: &[IoNode]) -> Option<Fault> {
    let silent: Vec<&IoNode> = nodes.iter().filter(|node| !node.reachable).collect();
    let names = silent.iter().map(|node| format!("{} ({})", name_of(node), node.error));
    let names = names.collect::<Vec<_>>().join(", ");
    let message = format!(
        "{} of {} did not answer, and their rows are read from the tables: {names}; see their logs",
        silent.len(),
        counted(nodes.len() as u64, "I/O node", "I/O nodes"),
    );
    (!silent.is_empty()).then(|| Fault::new(Reason::NodeUnavailable, message))
}

/// Prints the status as text.
fn report(status: &StatusResponse, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "query node {} (version {}): {} ({} with an error), {} waiting (longest queue), {} CPU, {}\n",
        status.node,
        status.version,
        counted(status.requests, "request", "requests"),
        count(status.errors),
        counted(status.search_queue.into(), "request", "requests"),
        micros(status.cpu_us as f64),
        bytes(status.resident_bytes),
    ))?;
    if status.open_access {
        out.line(format_args!(
            "warning: access is open: everybody who reaches the node may read all tables\n"
        ))?;
    }
    if let Some(membership) = status.membership.as_ref().filter(|m| m.source != FIXED) {
        out.line(format_args!("{}\n", followed(membership)))?;
    }
    let mut text = TextTable::new([
        ("I/O node", Align::Left),
        ("state", Align::Left),
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
    if status.io_nodes.is_empty() {
        out.line(format_args!("there are no I/O nodes: all rows are read from the tables"))?;
    }
    if status.fallback_rows > 0 {
        let rows = counted(status.fallback_rows, "row", "rows");
        out.line(format_args!(
            "\n{rows} were read from the tables by this node: their I/O node could not answer"
        ))?;
    }
    for node in status.io_nodes.iter().filter(|node| !node.reachable) {
        out.line(format_args!("\n{} does not answer: {}", node.endpoint, node.error))?;
    }
    for node in status.io_nodes.iter().filter(|node| !node.engine_reason.is_empty()) {
        let IoNode { endpoint, engine, engine_reason, .. } = node;
        out.line(format_args!("\n{endpoint} reads by {engine}: {engine_reason}"))?;
    }
    for node in status.io_nodes.iter().filter(|node| node.open_access) {
        out.line(format_args!(
            "\n{} answers anyone who reaches it (`access` is `open`); name the query nodes in its `peers` instead",
            node.endpoint
        ))?;
    }
    for node in status.io_nodes.iter().filter(|node| node.unverified) {
        out.line(format_args!(
            "\nwarning: the query node can't tell {} from an impostor; set `peer_secret` on both tiers, or use TLS",
            node.endpoint
        ))?;
    }
    for node in &status.io_nodes {
        for warm in node.start_warms.iter().filter(|warm| !warm.done) {
            out.line(format_args!("\n{}", warming(node, warm)))?;
        }
    }
    for node in status.io_nodes.iter().filter(|node| waits_for_hits(node)) {
        out.line(format_args!(
            "\n{} is not ready yet: it waits until enough of its rows come from its drives (`hit_ratio_at_start`)",
            node.endpoint
        ))?;
    }
    for node in &status.io_nodes {
        for (drives, what) in [
            (&node.read_only_drives, "takes no more writes: what it holds is served"),
            (&node.retired_drives, "failed and is no longer used: its rows come from the table"),
        ] {
            for drive in drives {
                out.line(format_args!("\ndrive {drive} of {} {what}", node.endpoint))?;
            }
        }
    }
    if status.io_nodes.iter().any(|node| !node.tables.is_empty()) {
        out.line(format_args!(""))?;
        out.bytes(cached(&status.io_nodes).text(out.width()).as_bytes())?;
    }
    let nodes = status.io_nodes.iter().map(|node| (node.endpoint.as_str(), &node.store));
    for (node, store) in [("this query node", &status.store)].into_iter().chain(nodes) {
        if let Some(store) = store.as_ref().filter(|store| store.reads + store.writes > 0) {
            out.line(format_args!("\n{node} {}", store_text(store)))?;
        }
    }
    for folder in &status.folders {
        out.line(format_args!("\n{}", folder_text(folder)))?;
    }
    for table in status.tables.iter().filter(|table| !table.error.is_empty()) {
        out.line(format_args!("\ntable {} is unavailable: {}", table.name, table.error))?;
    }
    Ok(())
}

/// Returns whether a node waits for its hit ratio: it answers, has warmed and is not draining, but is not ready yet.
fn waits_for_hits(node: &IoNode) -> bool {
    let is_warm = node.start_warms.iter().all(|warm| warm.done);
    node.reachable && !node.ready && is_warm && node.state() != MemberState::Draining
}

/// Returns the progress of an unfinished warm-up at a node's start.
fn warming(node: &IoNode, warm: &StartWarm) -> String {
    let state = if node.ready { "is ready, and still warms" } else { "is not ready yet: it warms" };
    let (node, table) = (&node.endpoint, &warm.table);
    match &warm.progress {
        None => format!("{node} {state} {table}, which it waits for"),
        Some(progress) => format!(
            "{node} {state} {table}, {} of {} there",
            count(progress.extents_done),
            counted(progress.extents_total, "extent", "extents"),
        ),
    }
}

/// Returns the bytes and extents of each table on each I/O node's drives.
fn cached(nodes: &[IoNode]) -> TextTable {
    let mut text = TextTable::new([
        ("I/O node", Align::Left),
        ("table", Align::Left),
        ("cached", Align::Right),
        ("held", Align::Right),
        ("extents", Align::Right),
        ("share", Align::Left),
    ]);
    for node in nodes {
        for table in &node.tables {
            let label = if table.table.is_empty() { &table.tag } else { &table.table };
            let held = if table.held_bytes > 0 { bytes(table.held_bytes) } else { "-".into() };
            let (cached, extents) = (bytes(table.bytes), count(table.extents));
            text.row(vec![name_of(node), label.clone(), cached, held, extents, share(table)]);
        }
    }
    text
}

/// Returns a table's guarantee and quota as text.
fn share(table: &TableUse) -> String {
    let TableUse { minimum_bytes: minimum, maximum_bytes: maximum, pinned, .. } = *table;
    match (minimum, maximum) {
        (0, 0) => "-".into(),
        (_, maximum) if pinned => format!("pinned, up to {}", bytes(maximum)),
        (minimum, 0) => format!("at least {}", bytes(minimum)),
        (0, maximum) => format!("at most {}", bytes(maximum)),
        (minimum, maximum) => format!("{} to {}", bytes(minimum), bytes(maximum)),
    }
}

/// Returns the number of a folder's tables, and what is wrong with the folder, as text.
fn folder_text(folder: &TableFolder) -> String {
    let served = counted(folder.tables.into(), "table", "tables");
    let mut text = format!("folder {}: {served} served", folder.uri);
    for (names, why) in [
        (&folder.hidden, "another table has the name"),
        (&folder.refused, "not allowed as a table's name"),
    ] {
        if !names.is_empty() {
            text.push_str(&format!("; not served: {} ({why})", names.join(", ")));
        }
    }
    if folder.is_cut {
        text.push_str("; it has too many entries, and the rest is not served");
    }
    if !folder.error.is_empty() {
        text.push_str(&format!("; {}", folder.error));
    }
    text
}

/// Returns a node's name, or its endpoint if it has no name.
fn name_of(node: &IoNode) -> String {
    let name = if node.name.is_empty() { &node.endpoint } else { &node.name };
    name.trim_start_matches("http://").to_owned()
}

/// Returns the use of object stores as text.
fn store_text(store: &StoreUse) -> String {
    let mut text = format!(
        "sent object stores {} and {}, {} read, ${:.4} at list prices",
        counted(store.reads, "read", "reads"),
        counted(store.writes, "write or listing", "writes or listings"),
        bytes(store.bytes_read),
        store.cost_usd,
    );
    for (count, what) in
        [(store.failed, "failed"), (store.refused, "not sent: the circuit breaker was open")]
    {
        if count > 0 {
            text.push_str(&format!("; {count} {what}"));
        }
    }
    text
}

/// Returns the source of the list that is followed, and its state.
fn followed(membership: &Membership) -> String {
    let Membership { source, generation, age_ms, refused_lists, failures, error, ejections } =
        membership;
    let mut said = format!("I/O nodes from {source}: ");
    match generation {
        0 => said += "no list yet",
        _ => said += &format!("list {generation}, for {}", micros(*age_ms as f64 * 1000.0)),
    }
    said += &format!(
        " ({} refused, {} to read it, {})",
        counted(*refused_lists, "list", "lists"),
        counted(*failures, "failure", "failures"),
        counted(*ejections, "ejection", "ejections"),
    );
    if !error.is_empty() {
        said += &format!("\nthe last list stays in use: {error}");
    }
    said
}

/// Returns the name of an I/O node's state.
pub fn state_of(state: MemberState) -> &'static str {
    match state {
        MemberState::Unspecified => "-",
        MemberState::Ready => "ready",
        MemberState::Joining => "joining",
        MemberState::Draining => "draining",
        MemberState::Away => "away",
        MemberState::Ejected => "ejected",
    }
}

/// Returns the name of the state of a node that does not answer.
pub fn state_without_answer(state: MemberState) -> &'static str {
    match state {
        // The source of the list may still list a node that is gone.
        MemberState::Ready => "unreachable",
        state => state_of(state),
    }
}

fn row(node: &IoNode) -> Vec<String> {
    let name = name_of(node);
    let named = if node.reachable { state_of } else { state_without_answer };
    let mut state = named(node.state()).to_owned();
    if node.share < node.weight {
        state += &format!(" {:.0}%", node.share / node.weight * 100.0);
    }
    if !node.reachable {
        let mut row = vec![name, state];
        row.resize(12, "-".into());
        return row;
    }
    vec![
        name,
        state,
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
        "reads_avoided": store.reads_avoided,
        "bytes_avoided": store.bytes_avoided,
        "saved_usd": store.saved_usd,
        "cache_failures": store.cache_failures,
    })
}

fn start_warm_json(warm: &StartWarm) -> Value {
    let progress = warm.progress.clone().unwrap_or_default();
    json!({
        "table": warm.table,
        "version": (warm.version > 0).then_some(warm.version),
        "extents_total": warm.progress.as_ref().map(|progress| progress.extents_total),
        "extents_done": progress.extents_done,
        "extents_failed": progress.extents_failed,
        "error": (!progress.last_error.is_empty()).then_some(&progress.last_error),
        "done": warm.done,
    })
}

fn table_json(table: &TableUse) -> Value {
    json!({
        "table": (!table.table.is_empty()).then_some(&table.table),
        "tag": table.tag,
        "extents": table.extents,
        "bytes": table.bytes,
        "held_bytes": table.held_bytes,
        "minimum_bytes": table.minimum_bytes,
        "maximum_bytes": (table.maximum_bytes > 0).then_some(table.maximum_bytes),
        "pinned": table.pinned,
    })
}

fn to_json(status: &StatusResponse) -> Value {
    let io_node = |node: &IoNode| {
        json!({
            "name": node.name,
            "endpoint": node.endpoint,
            "state": state_of(node.state()),
            "zone": (!node.zone.is_empty()).then_some(&node.zone),
            "weight": node.weight,
            "share": node.share,
            "reachable": node.reachable,
            "error": (!node.error.is_empty()).then_some(&node.error),
            "engine": node.engine,
            "engine_reason": (!node.engine_reason.is_empty()).then_some(&node.engine_reason),
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
            "tables": node.tables.iter().map(table_json).collect::<Vec<_>>(),
            "ready": node.ready,
            "open_access": node.open_access,
            "unverified": node.unverified,
            "start_warms": node.start_warms.iter().map(start_warm_json).collect::<Vec<_>>(),
        })
    };
    let table = |table: &TableSummary| {
        json!({
            "name": table.name,
            "version": table.version,
            "error": (!table.error.is_empty()).then_some(&table.error),
        })
    };
    let membership = status.membership.as_ref().map(|membership| {
        json!({
            "source": membership.source,
            "generation": membership.generation,
            "age_ms": membership.age_ms,
            "refused_lists": membership.refused_lists,
            "failures": membership.failures,
            "error": (!membership.error.is_empty()).then_some(&membership.error),
            "ejections": membership.ejections,
        })
    });
    let folder = |folder: &TableFolder| {
        json!({
            "uri": folder.uri,
            "tables": folder.tables,
            "hidden": folder.hidden,
            "refused": folder.refused,
            "is_cut": folder.is_cut,
            "error": (!folder.error.is_empty()).then_some(&folder.error),
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
        "fallback_rows": status.fallback_rows,
        "open_access": status.open_access,
        "membership": membership,
        "io_nodes": status.io_nodes.iter().map(io_node).collect::<Vec<_>>(),
        "tables": status.tables.iter().map(table).collect::<Vec<_>>(),
        "folders": status.folders.iter().map(folder).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_shown_with_what_is_wrong() {
        let folder = TableFolder { uri: "/lake/".into(), tables: 1, ..Default::default() };
        assert_eq!(folder_text(&folder), "folder /lake/: 1 table served");
        let folder = TableFolder {
            hidden: vec!["a".into(), "b".into()],
            refused: vec!["c d".into()],
            is_cut: true,
            error: "no answer".into(),
            ..folder
        };
        assert_eq!(
            folder_text(&folder),
            "folder /lake/: 1 table served; not served: a, b (another table has the name); not served: c d (not allowed \
             as a table's name); it has too many entries, and the rest is not served; no answer"
        );
    }

    #[test]
    fn a_node_waits_for_hits_where_nothing_else_keeps_it_from_being_ready() {
        let node = || IoNode { reachable: true, ..Default::default() };
        let warm =
            |done| IoNode { start_warms: vec![StartWarm { done, ..Default::default() }], ..node() };
        assert!(waits_for_hits(&node()) && waits_for_hits(&warm(true)));
        assert!(!waits_for_hits(&warm(false)), "it still warms, and that is shown instead");
        assert!(!waits_for_hits(&IoNode { ready: true, ..node() }));
        assert!(!waits_for_hits(&IoNode { reachable: false, ..node() }));
        assert!(!waits_for_hits(&IoNode { state: MemberState::Draining.into(), ..node() }));
    }
}
