//! The columns of a query's answer, and their order. Pure.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::query_body::{Columns, NamespaceColumns};
use crate::error::{QueryError, Result};
use crate::tables::{Measure, OpenTable};

/// The id of a row, in answers and filters: its address.
const ROW_ID: &str = "_rowid";

/// The position of a row in the table, counted without deleted rows.
const ROW_OFFSET: &str = "_rowoffset";

/// The position of a row's query vector in the request.
const QUERY_INDEX: &str = "query_index";

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
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// A column of the table.
    Column(String),
    RowId,
    RowOffset,
    /// The distance or the score.
    Measure,
}

impl Selection {
    /// Selects what a query names: all columns of `open` if it names none. A distance or score is added if the search
    /// has one, and the row's id if `with_row_id` is set, unless they are named.
    ///
    /// # Errors
    /// [`QueryError::NotBuilt`] for expressions other than names of columns.
    pub fn new(
        columns: Option<Columns>,
        with_row_id: bool,
        measure: Measure,
        open: &OpenTable,
    ) -> Result<Self> {
        use Columns::{Aliases, Names, Namespace};
        use NamespaceColumns::{ColumnAliases, ColumnNames};
        let measured = measure.name();
        let selected = |name: String, from: &str| {
            let source = match from {
                ROW_ID => Source::RowId,
                ROW_OFFSET => Source::RowOffset,
                from if measured == Some(from) => Source::Measure,
                from => Source::Column(from.to_owned()),
            };
            Selected { name, source }
        };
        let mut columns: Vec<Selected> = match columns {
            None => {
                let fields = open.table.schema().fields().iter();
                fields.map(|field| selected(field.name().clone(), field.name())).collect()
            }
            Some(Names(names) | Namespace(ColumnNames(names))) => {
                names.into_iter().map(|name| selected(name.clone(), &name)).collect()
            }
            Some(Aliases(aliases) | Namespace(ColumnAliases(aliases))) => {
                let alias = |(name, sql): (String, serde_json::Value)| {
                    let column = sql.as_str().map(unquoted).unwrap_or_default();
                    let is_named = open.table.schema().field_with_name(column).is_ok();
                    let is_added =
                        [ROW_ID, ROW_OFFSET].contains(&column) || measured == Some(column);
                    match is_named || is_added {
                        true => Ok(selected(name, column)),
                        false => Err(QueryError::NotBuilt {
                            problem: format!(
                                "column `{name}` is the expression {sql}, and only names of columns are served; \
                                 compute it in the client"
                            ),
                        }),
                    }
                };
                aliases.into_iter().map(alias).collect::<Result<_>>()?
            }
        };
        for (name, source) in [
            (measured.unwrap_or_default(), measured.map(|_| Source::Measure)),
            (ROW_ID, Some(Source::RowId).filter(|_| with_row_id)),
        ] {
            let Some(source) = source else { continue };
            if columns.iter().all(|column| column.source != source) {
                columns.push(Selected { name: name.to_owned(), source });
            }
        }
        Ok(Self { columns })
    }

    /// Returns the columns of the table that are needed, as a request names them.
    pub fn requested(&self) -> Vec<String> {
        let mut names = Vec::new();
        for column in &self.columns {
            if let Source::Column(name) = &column.source
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        if names.is_empty() {
            // A request that names no column gets the default ones.
            names.push("_rowaddr".into());
        }
        names
    }

    /// Returns whether positions of rows are selected.
    pub fn has_positions(&self) -> bool {
        self.columns.iter().any(|column| column.source == Source::RowOffset)
    }

    /// Returns the schema of answers made of rows with the schema `rows`, with the position of the query vector first if
    /// there are several.
    pub fn schema(&self, rows: &Schema, has_query_index: bool) -> Result<SchemaRef> {
        let field = |Selected { name, source }: &Selected| -> Result<FieldRef> {
            Ok(Arc::new(match source {
                Source::Column(column) => {
                    rows.field_with_name(column)?.clone().with_name(name.as_str())
                }
                Source::RowId => Field::new(name, DataType::UInt64, true),
                Source::RowOffset => Field::new(name, DataType::UInt64, true),
                Source::Measure => Field::new(name, DataType::Float32, true),
            }))
        };
        let index =
            has_query_index.then(|| Ok(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false))));
        let fields = index.into_iter().chain(self.columns.iter().map(field));
        let fields = fields.collect::<Result<Vec<FieldRef>>>()?;
        Ok(Arc::new(Schema::new_with_metadata(fields, rows.metadata().clone())))
    }

    /// Selects from `rows`, whose last columns are row addresses and the `measure`. `positions` are those of the rows, if
    /// they are selected; `query_index` is the position of the query vector, if there are several.
    pub fn select(
        &self,
        rows: &RecordBatch,
        measure: Measure,
        positions: Option<Vec<u64>>,
        query_index: Option<i32>,
    ) -> Result<RecordBatch> {
        let schema = self.schema(rows.schema_ref(), query_index.is_some())?;
        let last = rows.num_columns() - 1;
        let addresses = if measure == Measure::Nothing { last } else { last - 1 };
        let positions: ArrayRef = Arc::new(UInt64Array::from(positions.unwrap_or_default()));
        let column = |Selected { source, .. }: &Selected| -> Result<ArrayRef> {
            Ok(match source {
                Source::Column(name) => {
                    let at = rows.schema_ref().index_of(name)?;
                    Arc::clone(rows.column(at))
                }
                Source::RowId => Arc::clone(rows.column(addresses)),
                Source::RowOffset => Arc::clone(&positions),
                Source::Measure => Arc::clone(rows.column(last)),
            })
        };
        let index = query_index.map(|index| {
            let index: ArrayRef = Arc::new(Int32Array::from(vec![index; rows.num_rows()]));
            Ok(index)
        });
        let columns = index.into_iter().chain(self.columns.iter().map(column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
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
