//! The columns of a query's answer, and their order. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat;
use lake::Expression;

use crate::error::{QueryError, Result};
use crate::tables::{DISTANCE, Measure, OpenTable, RELEVANCE, ROW_ADDRESS, SCORE};

/// The name of the column with the rows' ids, in answers and filters. A row's id is its address.
const ROW_ID: &str = "_rowid";

/// The name of the column with the rows' positions in the table, counted without deleted rows.
pub const ROW_OFFSET: &str = "_rowoffset";

/// The name of the column with the position of a row's query vector in the request.
const QUERY_INDEX: &str = "query_index";

/// Maximum number of columns of an answer.
const COLUMNS_MAX: usize = 4096;

/// Maximum number of columns of an answer that are expressions or nested.
const ALIASES_MAX: usize = 100;

/// Maximum number of bytes of all expressions of a query. While they are parsed, the thread serves nothing else.
const EXPRESSIONS_BYTES_MAX: usize = 16 << 10;

/// Number of rows for which an expression is computed before other tasks of the thread may run.
const ROWS_AT_ONCE: usize = 1024;

/// The columns to return.
#[derive(Clone, Debug, PartialEq)]
pub enum Columns {
    /// Names of columns, which may be nested.
    Names(Vec<String>),
    /// Names of the answer's columns, each with a SQL expression.
    Aliases(serde_json::Map<String, serde_json::Value>),
}

/// The form of blobs in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobForm {
    /// The blobs' bytes.
    Whole,
    /// Descriptors, which have the blobs' sizes.
    Described,
}

/// The columns of an answer, in their order.
#[derive(Clone, Debug)]
pub struct Selection {
    columns: Vec<Selected>,
}

/// A column of an answer.
#[derive(Clone, Debug)]
struct Selected {
    /// Its name in the answer.
    name: String,
    source: Source,
}

/// The source of a column of an answer.
#[derive(Clone, Debug)]
enum Source {
    /// A column of the table, or the row's id, address or position.
    Column(String),
    /// A column with blobs, for which the answer has descriptors: the column's name, and the field of its descriptors.
    Blobs(String, FieldRef),
    /// The distance, the score or the relevance.
    Measure,
    /// Computed from columns of the table, the row's id or position, and the distance or score.
    Expression(Arc<Expression>),
}

impl Source {
    /// Returns the names of the columns that are read.
    fn reads(&self) -> Vec<&str> {
        match self {
            Self::Column(name) => vec![name],
            Self::Measure | Self::Blobs(..) => Vec::new(),
            Self::Expression(expression) => {
                expression.columns.fields().iter().map(|field| field.name().as_str()).collect()
            }
        }
    }
}

/// Returns the field of a column that answers may have in addition to the table's.
fn added_field(name: &str) -> Field {
    let data_type = match name {
        ROW_ID | ROW_OFFSET => DataType::UInt64,
        _ => DataType::Float32,
    };
    Field::new(name, data_type, true)
}

/// The parts of an answer that I/O nodes do not serve.
#[derive(Debug, Default)]
pub struct Beside {
    /// The rows' positions in the table.
    pub positions: Option<Vec<u64>>,
    /// Descriptors of the rows' blobs, with a column for each column of blobs.
    pub descriptors: Option<RecordBatch>,
}

impl Selection {
    /// Selects the columns that a query names, or all columns of `open` if it names none. A distance or score is added
    /// if the search has one, and the row's id if `with_row_id` is set, unless they are named. `blobs` is the form of
    /// blobs in columns that are selected as a whole.
    ///
    /// # Errors
    /// `BadExpression`, `ColumnNotFound`, or `BadRequest` for too many columns, a column that is named twice, or
    /// expressions that are too long or not text.
    pub fn new(
        columns: Option<Columns>,
        with_row_id: bool,
        blobs: BlobForm,
        measure: Measure,
        open: &OpenTable,
    ) -> Result<Self> {
        let (count, most) = match &columns {
            None => (0, 0),
            Some(Columns::Names(names)) => (names.len(), COLUMNS_MAX),
            Some(Columns::Aliases(it)) => (it.len(), ALIASES_MAX),
        };
        if count > most {
            let problem = format!("names {count} columns; name at most {most} in this form");
            return Err(QueryError::BadRequest { field: "columns", problem });
        }
        if let Some(Columns::Aliases(it)) = &columns {
            let bytes: usize = it.values().filter_map(|sql| sql.as_str()).map(str::len).sum();
            if bytes > EXPRESSIONS_BYTES_MAX {
                let problem = format!(
                    "has expressions of {bytes} bytes; {EXPRESSIONS_BYTES_MAX} are the most"
                );
                return Err(QueryError::BadRequest { field: "columns", problem });
            }
        }
        let measured = measure.name();
        let selected = |name: String, from: &str| -> Result<Selected> {
            let source = if measured == Some(from) {
                Source::Measure
            } else if blobs == BlobForm::Described && open.table.has_blobs(from).unwrap_or(false) {
                let schema = open.table.descriptor_schema(&[from.to_owned()])?;
                Source::Blobs(from.to_owned(), Arc::clone(&schema.fields()[0]))
            } else {
                Source::Column(from.to_owned())
            };
            Ok(Selected { name, source })
        };
        let mut columns: Vec<Selected> = match columns {
            None => {
                let fields = open.table.schema().fields().iter();
                let all = fields.map(|field| selected(field.name().clone(), field.name()));
                all.collect::<Result<_>>()?
            }
            Some(Columns::Names(names)) => {
                let mut known = HashSet::new();
                if let Some(name) = names.iter().find(|name| !known.insert(name.as_str())) {
                    let problem = format!("names `{name}` twice; name it once");
                    return Err(QueryError::BadRequest { field: "columns", problem });
                }
                let is_plain = |name: &&String| {
                    [ROW_ID, ROW_OFFSET, ROW_ADDRESS].contains(&name.as_str())
                        || measured == Some(name)
                        || open.table.schema().field_with_name(name).is_ok()
                };
                let others = names.iter().filter(|name| !is_plain(name)).count();
                if others > ALIASES_MAX {
                    let problem = format!(
                        "names {others} nested or unknown columns; name at most {ALIASES_MAX}"
                    );
                    return Err(QueryError::BadRequest { field: "columns", problem });
                }
                let column = |name: &String| match is_plain(&name) {
                    true => selected(name.clone(), name),
                    false => {
                        let expression = open.table.column_expression(name)?;
                        let source = Source::Expression(Arc::new(expression));
                        Ok(Selected { name: name.clone(), source })
                    }
                };
                names.iter().map(column).collect::<Result<_>>()?
            }
            Some(Columns::Aliases(aliases)) => {
                let alias = |(name, sql): (String, serde_json::Value)| {
                    let Some(sql) = sql.as_str() else {
                        let problem =
                            format!("has {sql} for column `{name}`; give a SQL expression");
                        return Err(QueryError::BadRequest { field: "columns", problem });
                    };
                    let column = unquoted(sql);
                    let is_named = open.table.schema().field_with_name(column).is_ok();
                    if is_named
                        || [ROW_ID, ROW_OFFSET].contains(&column)
                        || measured == Some(column)
                    {
                        return selected(name, column);
                    }
                    let added = [Some(ROW_ID), Some(ROW_OFFSET), measured].into_iter().flatten();
                    let added: Vec<Field> = added.map(added_field).collect();
                    let expression = open.table.expression(&name, sql, &added)?;
                    Ok(Selected { name, source: Source::Expression(Arc::new(expression)) })
                };
                aliases.into_iter().map(alias).collect::<Result<_>>()?
            }
        };
        for name in measured.into_iter().chain(with_row_id.then_some(ROW_ID)) {
            if columns.iter().all(|column| column.name != name) {
                columns.push(selected(name.to_owned(), name)?);
            }
        }
        Ok(Self { columns })
    }

    /// Returns the columns of the table that are needed, as a request names them.
    pub fn requested(&self, open: &OpenTable) -> Vec<String> {
        let is_added = |name: &str| {
            [ROW_ID, ROW_OFFSET, ROW_ADDRESS, DISTANCE, SCORE, RELEVANCE].contains(&name)
                && open.table.schema().field_with_name(name).is_err()
        };
        let mut names: Vec<String> = Vec::new();
        for name in self.columns.iter().flat_map(|column| column.source.reads()) {
            if !is_added(name) && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if names.is_empty() {
            // A request that names no column would get the default ones.
            names.push(ROW_ADDRESS.into());
        }
        names
    }

    /// Returns the columns of the table whose blobs are needed as descriptors.
    pub fn blob_columns(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for Selected { source, .. } in &self.columns {
            match source {
                Source::Blobs(column, _) if !names.contains(column) => names.push(column.clone()),
                _ => {}
            }
        }
        names
    }

    /// Returns whether positions of rows are needed.
    pub fn has_positions(&self) -> bool {
        self.columns.iter().any(|column| column.source.reads().contains(&ROW_OFFSET))
    }

    /// Returns the schema of an answer made of rows with the schema `rows`. With `has_query_index`, the position of the
    /// query vector is its first column.
    pub fn schema(&self, rows: &Schema, has_query_index: bool) -> Result<SchemaRef> {
        let field = |Selected { name, source }: &Selected| -> Result<FieldRef> {
            Ok(Arc::new(match source {
                Source::Column(column) if [ROW_ID, ROW_OFFSET].contains(&column.as_str()) => {
                    added_field(column).with_name(name.as_str())
                }
                Source::Column(column) => {
                    rows.field_with_name(column)?.clone().with_name(name.as_str())
                }
                Source::Measure => Field::new(name, DataType::Float32, true),
                Source::Expression(expression) => expression.field.as_ref().clone(),
                Source::Blobs(_, field) => field.as_ref().clone().with_name(name.as_str()),
            }))
        };
        let index =
            has_query_index.then(|| Ok(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false))));
        let fields = index.into_iter().chain(self.columns.iter().map(field));
        let fields = fields.collect::<Result<Vec<FieldRef>>>()?;
        Ok(Arc::new(Schema::new_with_metadata(fields, rows.metadata().clone())))
    }

    /// Selects from `rows`, whose last columns are row addresses and the `measure`. `beside` has the rows' positions
    /// and descriptors, if they are selected; `query_index` is the position of the query vector, if there are several.
    pub async fn select(
        &self,
        rows: &RecordBatch,
        measure: Measure,
        beside: Beside,
        query_index: Option<i32>,
    ) -> Result<RecordBatch> {
        let schema = self.schema(rows.schema_ref(), query_index.is_some())?;
        let last = rows.num_columns() - 1;
        let addresses = if measure == Measure::Nothing { last } else { last - 1 };
        let Beside { positions, descriptors } = beside;
        let positions: ArrayRef = Arc::new(UInt64Array::from(positions.unwrap_or_default()));
        let named = |name: &str| -> Result<ArrayRef> {
            Ok(match name {
                ROW_ID => Arc::clone(rows.column(addresses)),
                ROW_OFFSET => Arc::clone(&positions),
                name => Arc::clone(rows.column(rows.schema_ref().index_of(name)?)),
            })
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        if let Some(index) = query_index {
            columns.push(Arc::new(Int32Array::from(vec![index; rows.num_rows()])));
        }
        for Selected { source, .. } in &self.columns {
            columns.push(match source {
                Source::Column(name) => named(name)?,
                Source::Measure => Arc::clone(rows.column(last)),
                Source::Blobs(name, field) => match &descriptors {
                    Some(read) => Arc::clone(read.column(read.schema_ref().index_of(name)?)),
                    None => new_null_array(field.data_type(), rows.num_rows()),
                },
                Source::Expression(expression) => {
                    let read = source.reads().into_iter().map(named).collect::<Result<Vec<_>>>()?;
                    compute(expression, &read, rows.num_rows()).await?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// Returns the name of a column without the quotes that SQL allows around it.
fn unquoted(sql: &str) -> &str {
    let sql = sql.trim();
    for quote in ['`', '"'] {
        let inner = sql.strip_prefix(quote).and_then(|it| it.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return inner;
        }
    }
    sql
}

/// Computes an expression for `rows` rows, whose columns are `read`.
async fn compute(expression: &Expression, read: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
    let mut parts = Vec::with_capacity(rows.div_ceil(ROWS_AT_ONCE));
    for from in (0..rows.max(1)).step_by(ROWS_AT_ONCE) {
        let count = ROWS_AT_ONCE.min(rows - from);
        let part = read.iter().map(|column| column.slice(from, count)).collect();
        parts.push(expression.evaluate(part, count)?);
        if from + count < rows {
            tokio::task::yield_now().await;
        }
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}
