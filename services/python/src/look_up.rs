//! Look-ups of many keys: rows joined by key, and which keys exist.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use client::query::{
    Append, Lookup, LookupOpen, Presence, QueryClient, TableDescription, append_columns,
    columns_to_append, presence_of,
};
use futures::stream::{self, TryStreamExt};
use wire::query::{DescribeTableRequest, DescribeTableResponse};
use wire::{Fault, Reason};

use crate::errors::internal;
use crate::rows::Rows;
use crate::uuid_keys::{is_uuid, uuid_keys, with_uuid_keys};

/// The name of the column of keys when a caller gives only keys. No column of a table has this name.
const KEYS: &str = "\0keys";

/// Appends columns of a table to `rows`. Their values are those of the table's row whose key is in the column `on`, or
/// nulls if no row has the key. If `open` wants all rows of each key, a row is repeated for each of them. Without `on`,
/// the only column of `rows` has the keys. The result leaves it out, since the keys are in the same order; but if rows
/// are repeated, it has the name of the table's key column, and takes its place. All rows are read from one version.
pub async fn join(
    query: QueryClient,
    mut open: LookupOpen,
    rows: Rows,
    on: Option<String>,
) -> Result<Rows, Fault> {
    let (described, key_type) = describe(&query, &mut open).await?;
    if open.columns.is_empty() {
        // If the result keeps the column of keys, the table's key column is not appended.
        let key = on.as_ref().map(|_| open.key_column.as_str());
        open.columns = columns_to_append(&described, &open.table, key)?;
    }
    let key_column = open.key_column.clone();
    let uuids = on.as_ref().and_then(|on| {
        let (at, field) = rows.schema.column_with_name(on)?;
        is_uuid(field).then_some(at)
    });
    // The column of keys that is looked up. It is the first one and left out of the result, unless it is `on`.
    let (rows, on) = match (on, uuids) {
        (Some(_), Some(at)) => {
            (with_uuid_keys(rows, at, KEYS, key_type.as_ref()).map_err(internal)?, None)
        }
        (Some(on), None) => (rows, Some(on)),
        (None, _) => (renamed(rows, key_type.as_ref()).map_err(internal)?, None),
    };
    let lookup = query.lookups().await?.open(open).await?;
    let schema = joined_schema(&rows.schema, &lookup);
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let (kept, keys_named) = match (&on, lookup.returns_all_rows() && uuids.is_none()) {
        (Some(_), _) => (all, None),
        (None, false) => (all[1..].to_vec(), None),
        (None, true) => (with_keys(&schema, &key_column), Some(key_column)),
    };
    let on = on.unwrap_or_else(|| KEYS.into());
    if rows.schema.column_with_name(&on).is_none() {
        let names = rows.schema.fields().iter().map(|field| format!("`{}`", field.name()));
        let names = names.collect::<Vec<_>>().join(", ");
        let message = format!("the rows have no column `{on}` of keys; they have {names}");
        return Err(Fault::new(Reason::ColumnNotFound, message).with("column", on));
    }
    let input = stream::iter(rows.batches.into_iter().map(Ok));
    let appended =
        append_columns(input, Arc::from([Append { lookup, on, counts: Arc::default() }]));
    let batches: Vec<RecordBatch> = appended.try_collect().await?;
    let schema = Arc::new(kept_schema(&schema, &kept, keys_named.as_deref()).map_err(internal)?);
    let batches = batches.iter().map(|batch| {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.project(&kept)?.columns().to_vec();
        RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
    });
    let batches = batches.collect::<Result<_, _>>().map_err(internal)?;
    Ok(Rows { schema, batches })
}

/// Returns the columns of `schema` with the keys, its first column, in the place of the column that is named
/// `key_column`: for a row without a match, that one is null. If there is none, the keys come first.
fn with_keys(schema: &Schema, key_column: &str) -> Vec<usize> {
    let appended = 1..schema.fields().len();
    match appended.clone().find(|&at| schema.field(at).name() == key_column) {
        Some(place) => appended.map(|at| if at == place { 0 } else { at }).collect(),
        None => (0..appended.end).collect(),
    }
}

/// Returns the schema of the columns `kept`. If `keys_named` is given, the first column of `schema` gets that name.
fn kept_schema(
    schema: &Schema,
    kept: &[usize],
    keys_named: Option<&str>,
) -> Result<Schema, ArrowError> {
    let mut fields = schema.fields().to_vec();
    if let Some(name) = keys_named {
        fields[0] = Arc::new(Field::clone(&fields[0]).with_name(name));
    }
    Schema::new_with_metadata(fields, schema.metadata().clone()).project(kept)
}

/// Describes the table of `open`, and sets its version, and its key column if it has none. Returns the description, and
/// the type of the key column if the table has it.
async fn describe(
    query: &QueryClient,
    open: &mut LookupOpen,
) -> Result<(DescribeTableResponse, Option<DataType>), Fault> {
    let request = DescribeTableRequest {
        table: open.table.clone(),
        version: open.version,
        branch: open.branch.clone(),
    };
    let TableDescription { response, schema } = query.describe_version(request).await?;
    open.version = response.version;
    if open.key_column.is_empty() {
        open.key_column.clone_from(&response.key_column);
    }
    let key_type = schema.field_with_name(&open.key_column).ok();
    let key_type = key_type.map(|field| field.data_type().clone());
    Ok((response, key_type))
}

/// Gives the column of keys a name that no appended column has. UUIDs get the form of the key column.
fn renamed(rows: Rows, key_type: Option<&DataType>) -> Result<Rows, ArrowError> {
    let field = rows.schema.field(0);
    let (rows, field) = match is_uuid(field) {
        // The keys in the form of the key column come first.
        true => {
            let rows = with_uuid_keys(rows, 0, KEYS, key_type)?;
            let field = rows.schema.field(0).clone();
            (rows, field)
        }
        false => {
            let field = field.clone().with_name(KEYS);
            (rows, field)
        }
    };
    let schema: SchemaRef = Arc::new(Schema::new(vec![field]));
    let batch = |batch: RecordBatch| {
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(batch.column(0))])
    };
    let batches = rows.batches.into_iter().map(batch).collect::<Result<_, _>>()?;
    Ok(Rows { schema, batches })
}

/// Returns the schema of the rows with the appended columns, which are nullable.
fn joined_schema(rows: &SchemaRef, lookup: &Lookup) -> Schema {
    let appended = lookup.schema();
    let appended = appended.iter().flat_map(|schema| schema.fields().iter());
    let appended = appended.map(|field| Arc::new(Field::clone(field).with_nullable(true)));
    let fields: Vec<_> = rows.fields().iter().cloned().chain(appended).collect();
    Schema::new_with_metadata(fields, rows.metadata().clone())
}

/// Returns for each of `keys` whether a row has it. With `exact`, keys that only the key index found are looked up once
/// more in the rows. If the keys are UUIDs, the table is described first, because their form depends on the key column.
pub async fn exist(
    query: QueryClient,
    mut open: LookupOpen,
    mut keys: ArrayRef,
    are_uuids: bool,
    exact: bool,
) -> Result<ArrayData, Fault> {
    if are_uuids {
        let (_, key_type) = describe(&query, &mut open).await?;
        keys = uuid_keys(&keys, key_type.as_ref());
    }
    let only_presence = LookupOpen { only_presence: true, ..open.clone() };
    let presence = query.lookups().await?.open(only_presence).await?;
    let Presence { not_found, unproven } = presence_of(&presence, &keys).await?;
    let mut found = vec![true; keys.len()];
    not_found.iter().for_each(|&at| found[at as usize] = false);
    if exact && !unproven.is_empty() {
        // The node itself compares these rows' keys, so the key column is not requested.
        open.columns = vec!["_rowaddr".into()];
        // The first stream may have ended meanwhile.
        let rows = query.lookups().await?.open(open).await?;
        let unproven = UInt32Array::from(unproven);
        let keys = take(&keys, &unproven, None).map_err(internal)?;
        let Presence { not_found, .. } = presence_of(&rows, &keys).await?;
        not_found.iter().for_each(|&at| found[unproven.value(at as usize) as usize] = false);
    }
    Ok(BooleanArray::from(found).into_data())
}
