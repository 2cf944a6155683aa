//! `bireme versions`: lists the versions and the tags of a table.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use client::query::{ListTagsRequest, ListVersionsRequest, QueryClient, Tag, VersionSummary};
use futures::future::try_join;
use humantime::format_rfc3339_millis;
use serde_json::{Value, json};

use crate::arguments::{Connection, parse_at_least_1};
use crate::error::Result;
use crate::output::{Align, Output, TextTable, count};

const EXAMPLES: &str = "\
Examples:
  bireme versions words
  bireme versions words --table-branch exp -n 100 --json
  bireme versions words --tags

The latest version comes first. Other commands read one with --table-version. A
tag names a version of a branch; --tags lists all tags of the table.";

/// The name of a version's number of rows.
const ROWS: &str = "total_rows";

/// Arguments of `bireme versions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VersionsArgs {
    /// The table's name (see `bireme tables`)
    #[arg(value_name = "TABLE", value_hint = ValueHint::Other)]
    table: String,
    /// The table's branch [default: the main one]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(value_hint = ValueHint::Other)]
    table_branch: String,
    /// The number of versions to list
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_at_least_1)]
    limit: u32,
    /// List all tags of the table instead
    #[arg(long, conflicts_with_all = ["table_branch", "limit"])]
    tags: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the list.
pub async fn run(args: VersionsArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let tags = tags(&client, &args.table);
    if args.tags {
        return show_tags(&tags.await?, out);
    }
    let (tags, versions) = try_join(tags, versions(&client, &args)).await?;
    let branch = if args.table_branch == "main" { "" } else { &args.table_branch };
    let mut names: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for tag in tags.iter().filter(|tag| tag.branch == branch) {
        names.entry(tag.version).or_default().push(&tag.name);
    }
    let names = |version: &VersionSummary| names.get(&version.version).cloned().unwrap_or_default();
    if out.json() {
        let version = |it: &VersionSummary| {
            json!({
                "version": it.version,
                "created_at": time(it),
                "tags": names(it),
                "metadata": it.metadata.iter().collect::<BTreeMap<_, _>>(),
            })
        };
        let versions: Vec<Value> = versions.iter().map(version).collect();
        return out.document(&json!({ "versions": versions }));
    }
    let mut text = TextTable::new([
        ("version", Align::Right),
        ("created", Align::Left),
        ("rows", Align::Right),
        ("tags", Align::Left),
    ]);
    for version in &versions {
        let rows = version.metadata.get(ROWS).and_then(|rows| rows.parse().ok());
        let rows = rows.map_or_else(|| "-".into(), count);
        text.row(vec![version.version.to_string(), time(version), rows, names(version).join(", ")]);
    }
    out.bytes(text.text(out.width()).as_bytes())
}

/// Returns the latest versions, as many as wanted.
async fn versions(client: &QueryClient, args: &VersionsArgs) -> Result<Vec<VersionSummary>> {
    let (mut versions, mut before) = (Vec::new(), 0);
    loop {
        let request = ListVersionsRequest {
            table: args.table.clone(),
            branch: args.table_branch.clone(),
            limit: (args.limit - versions.len() as u32).min(PAGE_MAX),
            before,
        };
        let page = client.list_versions(request).await?;
        versions.extend(page.versions);
        before = page.next_before;
        if before == 0 || versions.len() >= args.limit as usize {
            return Ok(versions);
        }
    }
}

/// Maximum number of versions that a node lists with one call.
const PAGE_MAX: u32 = 1000;

/// Returns all tags of a table, by their names.
async fn tags(client: &QueryClient, table: &str) -> Result<Vec<Tag>> {
    let (mut tags, mut after) = (Vec::new(), String::new());
    loop {
        let page = ListTagsRequest { table: table.to_owned(), limit: 0, after };
        let page = client.list_tags(page).await?;
        tags.extend(page.tags);
        after = page.next_after;
        if after.is_empty() {
            return Ok(tags);
        }
    }
}

fn show_tags(tags: &[Tag], out: &mut Output) -> Result<()> {
    if out.json() {
        let tag = |it: &Tag| json!({"name": it.name, "branch": it.branch, "version": it.version});
        return out.document(&json!({ "tags": tags.iter().map(tag).collect::<Vec<_>>() }));
    }
    let mut text =
        TextTable::new([("tag", Align::Left), ("branch", Align::Left), ("version", Align::Right)]);
    for Tag { name, branch, version } in tags {
        let branch = if branch.is_empty() { "main" } else { branch };
        text.row(vec![name.clone(), branch.to_owned(), version.to_string()]);
    }
    out.bytes(text.text(out.width()).as_bytes())
}

fn time(version: &VersionSummary) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(version.created_at_ms);
    format_rfc3339_millis(time).to_string()
}
