//! Answers ListTables and DescribeTable, and reads what else describes a table.

use std::sync::Arc;
use std::time::SystemTime;

use access::{Caller, Part, Permission};
use arrow_schema::FieldRef;
use futures::FutureExt;
use lake::{IndexInfo, Table};
use wire::query::{
    Column, DescribeTableRequest, DescribeTableResponse, Fragment, Index, KeyIndex,
    ListTablesResponse, TableSummary,
};

use crate::call::Call;
use crate::error::Result;
use crate::ipc::IpcHead;
use crate::key_index::KeyIndexReport;
use crate::recall_curves::index_recall;
use crate::request_context::RequestContext;
use crate::requests::count::count_rows;
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, Listed, OpenTable};

/// Lists the tables that the caller may see, open or not.
///
/// # Errors
/// The errors of [`Call::list`].
pub fn list_tables(state: &ShardState, call: &mut Call) -> Result<ListTablesResponse> {
    call.list()?;
    Ok(ListTablesResponse { tables: summaries(state, &call.caller().caller) })
}

/// Returns a summary of each table that `caller` may see.
pub fn summaries(state: &ShardState, caller: &Caller) -> Vec<TableSummary> {
    let summary = |listed: Listed| {
        let part = caller.grant(&listed.name, Permission::Read).and_then(|grant| grant.part());
        let current = listed.current.as_ref();
        let shows = |open: &OpenTable, part: &Part| {
            let has = |name: &String| open.table.schema().field_with_name(name).is_ok();
            part.rows.is_none() && part.columns.as_ref().is_none_or(|all| all.iter().any(has))
        };
        let is_counted = |open: &&Arc<OpenTable>| part.is_none_or(|part| shows(open, part));
        TableSummary {
            version: current.map_or(0, |open| open.version()),
            // To count the rows that the caller sees, all rows may have to be read.
            rows: current.filter(is_counted).map_or(0, |open| open.table.row_count()),
            error: match (&listed.current, &listed.fault) {
                // The cause may name what the caller may not see.
                (_, Some(_)) if part.is_some() => "it can't be read".to_owned(),
                (_, Some(fault)) => fault.message.clone(),
                (None, None) if !listed.opens_on_request => "it is being opened".to_owned(),
                (_, None) => String::new(),
            },
            name: listed.name,
        }
    };
    let listed = state.shared.catalog.list().into_iter();
    listed.filter(|listed| caller.sees(&listed.name)).map(summary).collect()
}

/// Returns the indexes of a table.
pub async fn indexes_of(open: &OpenTable, context: RequestContext) -> Result<Arc<Vec<IndexInfo>>> {
    let indexes = async { Ok(open.table.indexes().await?) }.boxed();
    context.bound("describe", indexes).await
}

/// Runs a read of a table in the background.
pub async fn of_table<T: Send + 'static, F>(
    state: &ShardState,
    open: &OpenTable,
    call: &Call,
    read: impl FnOnce(Table) -> F,
) -> Result<T>
where
    F: Future<Output = lake::Result<T>> + Send + 'static,
{
    let ask = Ask { during: "describe", rows: 1, context: call.context };
    let read = read(open.table.clone());
    let read = async move { Ok(read.await?) }.boxed();
    state.shared.admission.run_in_background(ask, read).await
}

/// Returns a time in milliseconds since 1970.
pub fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Describes one table: its schema, size and indexes. Of a part of a table, it describes only what the caller sees, and
/// leaves out what can't be told for the rows that the caller sees.
pub async fn describe_table(
    state: &ShardState,
    request: DescribeTableRequest,
    call: &mut Call,
) -> Result<DescribeTableResponse> {
    let DescribeTableRequest { table, branch, version, .. } = &request;
    let asked = AskedVersion { table, branch, version: *version };
    let open = call.open_shown(asked).boxed().await?;
    let context = call.context;
    let (counts_all, is_whole) = (!open.hides_rows(), call.shows_whole());
    let indexes = indexes_of(&open, context).await?;
    let indexes: Vec<&IndexInfo> =
        indexes.iter().filter(|index| open.table.shows_index(index)).collect();
    let mut recalls = Vec::with_capacity(indexes.len());
    for index in indexes.iter() {
        let curve = match index.columns.as_slice() {
            [column] if index.is_vector() && counts_all => {
                let curve = open.curves.of_column(&open.stored, column).boxed();
                context.bound("describe", curve).await?
            }
            _ => None,
        };
        recalls.push(curve.as_ref().map(index_recall));
    }
    let schema = open.table.schema();
    let packs = shown_packs(&open);
    let column = |field: &FieldRef| {
        Ok(Column {
            name: field.name().clone(),
            data_type: field.data_type().to_string(),
            nullable: field.is_nullable(),
            pack: packs.binary_search(&open.pack_of(field.name())).unwrap_or_default() as u32,
            by_default: open.is_by_default(field)?,
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    let indexes = indexes.iter().zip(recalls).map(|(index, recall)| Index {
        name: index.name.clone(),
        columns: index.columns.clone(),
        kind: index.kind.clone(),
        metric: index.metric.map(|metric| metric.to_string()).unwrap_or_default(),
        unindexed_rows: if counts_all { index.rows_uncovered } else { 0 },
        recall,
    });
    let fragments = if counts_all { open.table.fragments() } else { &[] };
    let sizes = fragments.iter().map(|info| Fragment {
        id: info.id,
        physical_rows: info.physical_rows,
        deleted_rows: info.deleted_rows,
    });
    Ok(DescribeTableResponse {
        name: open.name.clone(),
        version: open.version(),
        rows: count_rows(state, &open, "", call).await?,
        fragments: fragments.len() as u32,
        schema: IpcHead::of(schema)?.empty().into(),
        columns,
        indexes: indexes.collect(),
        key_column: open.key_column.clone().unwrap_or_default(),
        fragment_sizes: sizes.collect(),
        error: match state.shared.catalog.fault(&open).await {
            Some(fault) if is_whole => fault.message,
            Some(_) => "it can't be followed to newer versions".to_owned(),
            None => String::new(),
        },
        key_index: open
            .keys
            .as_ref()
            .filter(|_| counts_all)
            .and_then(|keys| key_index(&keys.report())),
    })
}

/// Returns the numbers of the packs that have a column which callers see, ascending. Their positions are shown in place
/// of the numbers, which count packs of hidden columns.
fn shown_packs(open: &OpenTable) -> Vec<usize> {
    let fields = open.table.schema().fields().iter();
    let mut packs: Vec<usize> = fields.map(|field| open.pack_of(field.name())).collect();
    packs.sort_unstable();
    packs.dedup();
    packs
}

/// Returns the description of a key index; `None` if the column is not indexed, because nobody has looked up a key and
/// there are no persisted runs.
fn key_index(report: &KeyIndexReport) -> Option<KeyIndex> {
    report.is_wanted.then(|| KeyIndex {
        runs: report.runs as u32,
        loaded_runs: report.runs_loaded as u32,
        paged_runs: report.runs_paged as u32,
        paged_bytes: report.paged_bytes,
        bytes: report.bytes,
        missing_rows: report.uncovered_rows,
        error: report.fault.as_deref().unwrap_or_default().to_owned(),
    })
}
