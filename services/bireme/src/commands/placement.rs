//! `bireme placement`: shows which I/O node owns each of a table's chunks.

use clap::{Args, ValueHint};
use client::query::{NodePlacement, PlacementRequest, PlacementResponse};
use serde_json::{Value, json};
use wire::fetch::ChunkRange;

use super::status::{state_of, state_without_answer};
use crate::arguments::{Connection, TableArgs};
use crate::error::Result;
use crate::output::{Align, Output, TextTable, count};

const EXAMPLES: &str = "\
Examples:
  bireme placement words
  bireme placement words --chunks --fragments 0,7
  bireme placement words --chunks --json > before.json   # to compare with later

Each chunk has one owner, computed from its name and from the nodes' names and
shares, whatever their addresses. A node that joins takes chunks from all others
as its share grows; no chunk moves between the others. A node that is draining,
away or ejected keeps its chunks; their rows are read from the table meanwhile.
The numbers of rows include deleted rows.";

/// Arguments of `bireme placement`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlacementArgs {
    #[command(flatten)]
    table: TableArgs,
    /// List the chunks as well
    #[arg(long)]
    chunks: bool,
    /// Only chunks of these fragments, by their ids [default: all]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',')]
    fragments: Vec<u32>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the placement.
pub async fn run(args: PlacementArgs, out: &mut Output) -> Result<()> {
    let request = PlacementRequest {
        table: args.table.table,
        version: args.table.table_version,
        branch: args.table.table_branch,
        fragments: args.fragments,
        name_chunks: args.chunks,
    };
    let placed = args.connection.open().await?.placement(request).await?;
    if out.json() {
        return out.document(&to_json(&placed, args.chunks));
    }
    if placed.nodes.is_empty() {
        return out.line("there are no I/O nodes: all rows are read from the tables");
    }
    out.bytes(nodes_text(&placed).text(out.width()).as_bytes())?;
    if args.chunks {
        out.line("")?;
        out.bytes(chunks_text(&placed).text(out.width()).as_bytes())?;
    }
    Ok(())
}

fn nodes_text(placed: &PlacementResponse) -> TextTable {
    let mut text = TextTable::new([
        ("I/O node", Align::Left),
        ("zone", Align::Left),
        ("state", Align::Left),
        ("share", Align::Right),
        ("chunks", Align::Right),
        ("of all", Align::Right),
        ("rows", Align::Right),
    ]);
    let shares = placed.nodes.iter().map(|node| node.share).sum::<f64>();
    let chunks = placed.nodes.iter().map(|node| node.chunks).sum::<u64>();
    for node in &placed.nodes {
        text.row(vec![
            node.name.clone(),
            if node.zone.is_empty() { "-".into() } else { node.zone.clone() },
            state_text(node).into(),
            percent(node.share, shares),
            count(node.chunks),
            percent(node.chunks as f64, chunks as f64),
            count(node.rows),
        ]);
    }
    text
}

fn state_text(node: &NodePlacement) -> &'static str {
    match node.connected {
        true => state_of(node.state()),
        false => state_without_answer(node.state()),
    }
}

/// Returns `part` as a percentage of `all`; 0 if `all` is 0.
fn percent(part: f64, all: f64) -> String {
    let percent = if all > 0.0 { part / all * 100.0 } else { 0.0 };
    format!("{percent:.2} %")
}

/// Lists the ranges of chunks with their owners, ordered by fragment and first chunk.
fn chunks_text(placed: &PlacementResponse) -> TextTable {
    let mut text = TextTable::new([
        ("fragment", Align::Right),
        ("chunks", Align::Left),
        ("I/O node", Align::Left),
    ]);
    let of_node = |node: &'_ NodePlacement| {
        let name = node.name.clone();
        node.ranges.clone().into_iter().map(move |range| (range, name.clone()))
    };
    let mut ranges: Vec<(ChunkRange, String)> = placed.nodes.iter().flat_map(of_node).collect();
    ranges.sort_by_key(|(range, _)| (range.fragment, range.first));
    for (range, name) in ranges {
        let chunks = format!("{}..{}", range.first, range.first + range.count);
        text.row(vec![range.fragment.to_string(), chunks, name]);
    }
    text
}

fn to_json(placed: &PlacementResponse, are_named: bool) -> Value {
    let range = |range: &ChunkRange| json!({"fragment": range.fragment, "first": range.first, "count": range.count});
    let node = |node: &NodePlacement| {
        json!({
            "name": node.name,
            "zone": (!node.zone.is_empty()).then_some(&node.zone),
            "state": state_of(node.state()),
            "connected": node.connected,
            "share": node.share,
            "chunks": node.chunks,
            "rows": node.rows,
            "ranges": are_named.then(|| node.ranges.iter().map(range).collect::<Vec<_>>()),
        })
    };
    json!({
        "version": placed.version,
        "nodes": placed.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use wire::query::MemberState;

    use super::*;

    #[test]
    fn nodes_that_keep_chunks_without_answering_are_marked() {
        let node = |name: &str, state: MemberState| NodePlacement {
            name: name.into(),
            state: state.into(),
            ..Default::default()
        };
        let ready = NodePlacement { connected: true, ..node("a", MemberState::Ready) };
        let nodes = vec![ready, node("b", MemberState::Ejected), node("c", MemberState::Ready)];
        let placed = PlacementResponse { version: 1, nodes };
        let text = nodes_text(&placed).text(100);
        assert!(
            text.contains("a         -     ready  ")
                && text.contains("b         -     ejected  ")
                && text.contains("c         -     unreachable  "),
            "{text}"
        );
        assert_eq!(to_json(&placed, false)["nodes"][1]["state"], "ejected");
    }

    #[test]
    fn nodes_without_a_share_have_0_percent() {
        let node = |share, chunks| NodePlacement { share, chunks, ..Default::default() };
        let text = |nodes| nodes_text(&PlacementResponse { version: 1, nodes }).text(100);
        let none = text(vec![node(0.0, 0), node(0.0, 0)]);
        assert_eq!(none.matches(" 0.00 %").count(), 4, "{none}");
        let some = text(vec![node(0.0, 1), node(0.5, 3)]);
        for part in [" 0.00 %", "100.00 %", "25.00 %", "75.00 %"] {
            assert_eq!(some.matches(part).count(), 1, "{some}");
        }
    }
}
