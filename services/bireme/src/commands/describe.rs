//! `bireme describe`: a table's columns, indexes and size.

use bytesize::ByteSize;
use clap::Args;
use client::query::TableDescription;
use serde_json::{Value, json};
use wire::query::{
    Column, DescribeTableRequest, DescribeTableResponse, Fragment, Index, IndexRecall, KeyIndex,
};

use crate::arguments::{Connection, TableArgs};
use crate::error::Result;
use crate::output::{Align, Output, TextTable, count, counted, recall_json, recall_text};

const EXAMPLES: &str = "\
Examples:
  bireme describe words
  bireme describe words --table-version 3 --json

Columns with the same pack number are read together, in one drive read. Columns
marked `shown` are returned if a command names no --columns: all but vectors
(columns of the type FixedSizeList of floats) and blobs.";

/// Arguments of `bireme describe`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DescribeArgs {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the table's description.
pub async fn run(args: DescribeArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let TableArgs { table, table_version: version, table_branch: branch } = args.table;
    let request = DescribeTableRequest { table, version, branch: branch.clone() };
    let TableDescription { response: table, .. } = client.describe_version(request).await?;
    if out.json() {
        return out.document(&to_json(&table));
    }
    let key = if table.key_column.is_empty() { "none" } else { table.key_column.as_str() };
    let deleted: u64 = table.fragment_sizes.iter().map(|it| u64::from(it.deleted_rows)).sum();
    out.line(format_args!("table      {}", table.name))?;
    if !branch.is_empty() {
        out.line(format_args!("branch     {branch}"))?;
    }
    out.line(format_args!("version    {}", table.version))?;
    out.line(format_args!("rows       {} ({} deleted)", count(table.rows), count(deleted)))?;
    out.line(format_args!("fragments  {}", table.fragments))?;
    out.line(format_args!("key        {key}"))?;
    if let Some(index) = &table.key_index {
        out.line(format_args!("key index  {}", key_index_text(index)))?;
    }
    if !table.error.is_empty() {
        out.line(format_args!("state      unavailable: {}", table.error))?;
    }
    out.line("")?;
    out.bytes(columns_text(&table).text(out.width()).as_bytes())?;
    if !table.indexes.is_empty() {
        let text = indexes_text(&table).text(out.width());
        out.bytes(format!("\n{text}").as_bytes())?;
    }
    for index in table.indexes.iter().filter(|index| !index.metric.is_empty()) {
        match &index.recall {
            Some(recall) => show_recall(index, recall, out)?,
            None => out.line(format_args!(
                "\nrecall of searches by {} is not known; `bireme tune {}` measures it",
                index.name, table.name
            ))?,
        }
    }
    Ok(())
}

/// Prints the measured recall of an index.
fn show_recall(index: &Index, recall: &IndexRecall, out: &mut Output) -> Result<()> {
    let source = if recall.questions_given { "given questions" } else { "rows as questions" };
    out.line(format_args!(
        "\nrecall of searches without a filter by {}, measured at version {} by {} {source}",
        index.name,
        recall.version,
        count(recall.questions.into()),
    ))?;
    out.bytes(recall_text(&recall.settings).text(out.width()).as_bytes())?;
    recall.warnings.iter().try_for_each(|warning| out.line(format_args!("warning: {warning}")))
}

fn key_index_text(index: &KeyIndex) -> String {
    let size = ByteSize::b(index.bytes);
    let covered = match index.missing_rows {
        0 => "covers every row".to_owned(),
        rows => format!("lacks {} rows, whose keys are looked up in the table", count(rows)),
    };
    let mut runs =
        format!("{} of {} loaded", index.loaded_runs, counted(index.runs.into(), "run", "runs"));
    if index.paged_runs > 0 {
        let paged = ByteSize::b(index.paged_bytes);
        runs += &format!(", {} read by page ({paged})", index.paged_runs);
    }
    match index.error.as_str() {
        "" => format!("{size}, {runs}, {covered}"),
        error => format!("{size}, {runs}, {covered}: {error}"),
    }
}

fn columns_text(table: &DescribeTableResponse) -> TextTable {
    let headers = [
        ("column", Align::Left),
        ("type", Align::Left),
        ("nullable", Align::Left),
        ("pack", Align::Right),
        ("shown", Align::Left),
    ];
    let mut text = TextTable::new(headers);
    for column in &table.columns {
        let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        text.row(vec![
            column.name.clone(),
            column.data_type.clone(),
            yes_or_no(column.nullable),
            column.pack.to_string(),
            yes_or_no(column.by_default),
        ]);
    }
    text
}

fn indexes_text(table: &DescribeTableResponse) -> TextTable {
    let mut text = TextTable::new([
        ("index", Align::Left),
        ("columns", Align::Left),
        ("kind", Align::Left),
        ("metric", Align::Left),
        ("unindexed rows", Align::Right),
    ]);
    for index in &table.indexes {
        text.row(vec![
            index.name.clone(),
            index.columns.join(", "),
            index.kind.clone(),
            index.metric.clone(),
            count(index.unindexed_rows),
        ]);
    }
    text
}

fn to_json(table: &DescribeTableResponse) -> Value {
    let present = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let column = |it: &Column| {
        json!({
            "name": it.name,
            "type": it.data_type,
            "nullable": it.nullable,
            "pack": it.pack,
            "by_default": it.by_default,
        })
    };
    let index = |it: &Index| {
        json!({
            "name": it.name,
            "columns": it.columns,
            "kind": it.kind,
            "metric": present(&it.metric),
            "unindexed_rows": it.unindexed_rows,
            "recall": it.recall.as_ref().map(|it| json!({
                "version": it.version,
                "rows": it.rows,
                "measured_at_s": it.measured_at_s,
                "questions": it.questions,
                "questions_given": it.questions_given,
                "settings": it.settings.iter().map(recall_json).collect::<Vec<_>>(),
                "warnings": it.warnings,
            })),
        })
    };
    let key_index = |it: &KeyIndex| {
        json!({
            "runs": it.runs,
            "loaded_runs": it.loaded_runs,
            "paged_runs": it.paged_runs,
            "paged_bytes": it.paged_bytes,
            "bytes": it.bytes,
            "missing_rows": it.missing_rows,
            "error": present(&it.error),
        })
    };
    let fragment = |it: &Fragment| json!({"id": it.id, "physical_rows": it.physical_rows, "deleted_rows": it.deleted_rows});
    json!({
        "name": table.name,
        "version": table.version,
        "rows": table.rows,
        "key_column": present(&table.key_column),
        "key_index": table.key_index.as_ref().map(key_index),
        "error": present(&table.error),
        "columns": table.columns.iter().map(column).collect::<Vec<_>>(),
        "indexes": table.indexes.iter().map(index).collect::<Vec<_>>(),
        "fragments": table.fragment_sizes.iter().map(fragment).collect::<Vec<_>>(),
    })
}
