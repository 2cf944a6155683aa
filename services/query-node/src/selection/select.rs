//! The columns of a query's answer, and their order. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat;
use lake::Expression;
use wire::query::NamedExpression;
use wire::{MESSAGE_BYTES_MAX, bytes_of_arrays};

use crate::error::{QueryError, Result};
use crate::tables::{DISTANCE, Measure, OpenTable, RELEVANCE, ROW_ADDRESS, SCORE};

/// The name of the column with the rows' ids, in answers and filters. A row's id is its address.
pub const ROW_ID: &str = "_rowid";

/// The name of the column with the rows' positions in the table, counted without deleted rows.
const ROW_OFFSET: &str = "_rowoffset";

/// The name of the column with the position of a row's query vector in the request.
const QUERY_INDEX: &str = "query_index";

/// Maximum number of columns of an answer.
const COLUMNS_MAX: usize = 4096;

/// Maximum number of columns of an answer that are expressions or nested.
const ALIASES_MAX: usize = 100;

/// Maximum number of bytes of all expressions of a query. While they are parsed, the thread serves nothing else.
const EXPRESSIONS_BYTES_MAX: usize = 16 << 10;

/// Maximum number of rows for which an expression is computed before its memory is held and other tasks of the thread
/// may run.
const ROWS_AT_ONCE: usize = 1024;

/// Maximum number of bytes that an expression reads at once, if they are those of more than one row. A filter's limit
/// on joined strings, which holds for expressions too, makes at most 17 times as many of them.
const READ_BYTES_AT_ONCE: usize = 1 << 20;

/// Maximum number of bytes that the calls of an expression read at once, if they are those of more than one row. At
/// 400 MB/s this takes 10 ms, in which the core serves nothing else; expressions before it may have read a quarter as
/// many since other tasks last ran.
const CALLED_BYTES_AT_ONCE: usize = 4 << 20;

/// Holds memory for the computed columns of an answer, of which there are so many bytes by now. An error ends the
/// computation.
pub type Hold<'a> = dyn FnMut(usize) -> Result<()> + Send + 'a;

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
    /// The form of blobs in columns that are selected as a whole.
    blobs: BlobForm,
    measure: Measure,
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
    /// Computed from columns of the table, the row's id, address or position, and the distance or score.
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
        ROW_ID | ROW_OFFSET | ROW_ADDRESS => DataType::UInt64,
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
    /// Selects the columns that a query names, or all columns of `open` if `names` is `None`. `blobs` is the form of
    /// blobs in columns that are selected as a whole.
    ///
    /// # Errors
    /// `ColumnNotFound`, or `BadRequest` for too many columns, or a column that is named twice.
    pub fn new(
        names: Option<Vec<String>>,
        blobs: BlobForm,
        measure: Measure,
        open: &OpenTable,
    ) -> Result<Self> {
        let mut selection = Self { columns: Vec::new(), blobs, measure };
        match names {
            None => {
                let fields = open.table.schema().fields().iter().map(|field| field.name());
                let all = fields.map(|name| selection.column(name.clone(), name, open));
                selection.columns = all.collect::<Result<_>>()?;
            }
            Some(names) => {
                let others = selection.check_names(&names, open)?;
                let column = |name: String| match others.contains(&name) {
                    false => selection.column(name.clone(), &name, open),
                    true => {
                        let expression = Arc::new(open.table.column_expression(&name)?);
                        Ok(Selected { name, source: Source::Expression(expression) })
                    }
                };
                selection.columns = names.into_iter().map(column).collect::<Result<_>>()?;
            }
        }
        Ok(selection)
    }

    /// Checks the names of columns. Returns those that are nested or unknown.
    fn check_names(&self, names: &[String], open: &OpenTable) -> Result<HashSet<String>> {
        let bad = |problem| Err(QueryError::BadRequest { field: "columns", problem });
        if names.len() > COLUMNS_MAX {
            return bad(format!("names {} columns; name at most {COLUMNS_MAX}", names.len()));
        }
        let mut known = HashSet::new();
        if let Some(name) = names.iter().find(|name| !known.insert(name.as_str())) {
            return bad(format!("names `{name}` twice; name it once"));
        }
        let others = names.iter().filter(|name| !self.is_plain(name, open)).cloned();
        let others: HashSet<String> = others.collect();
        match others.len() > ALIASES_MAX {
            true => bad(format!(
                "names {} nested or unknown columns; name at most {ALIASES_MAX}",
                others.len()
            )),
            false => Ok(others),
        }
    }

    /// Returns whether a column is returned as it is, without being computed.
    fn is_plain(&self, name: &str, open: &OpenTable) -> bool {
        [ROW_ID, ROW_OFFSET, ROW_ADDRESS].contains(&name)
            || self.measure.name() == Some(name)
            || open.table.schema().field_with_name(name).is_ok()
    }

    /// Returns a column of the answer that is `from`, a column that is not computed.
    fn column(&self, name: String, from: &str, open: &OpenTable) -> Result<Selected> {
        let has_blobs = || open.table.has_blobs(from).unwrap_or(false);
        let source = if self.measure.name() == Some(from) {
            Source::Measure
        } else if self.blobs == BlobForm::Described && has_blobs() {
            // A descriptor has the position of its blob in the file, behind those of other rows.
            if open.hides_rows() {
                let problem = format!(
                    "names `{from}`, whose blobs can't be described under a grant that shows only some rows; name the \
                     other columns"
                );
                return Err(QueryError::BadRequest { field: "columns", problem });
            }
            let schema = open.table.descriptor_schema(&[from.to_owned()])?;
            Source::Blobs(from.to_owned(), Arc::clone(&schema.fields()[0]))
        } else {
            Source::Column(from.to_owned())
        };
        Ok(Selected { name, source })
    }

    /// Adds columns that are computed. They may read columns of the table, the row's id, address or position, and
    /// the distance or score. `field` is the request's field that has them.
    ///
    /// # Errors
    /// `BadExpression`, `ColumnNotFound`, or `BadRequest` for too many expressions, expressions that are too long, or a
    /// name that another column has.
    pub fn compute(
        &mut self,
        field: &'static str,
        expressions: Vec<NamedExpression>,
        open: &OpenTable,
    ) -> Result<()> {
        let bad = |problem| Err(QueryError::BadRequest { field, problem });
        let count = expressions.len();
        let bytes: usize = expressions.iter().map(|it| it.sql.len()).sum();
        if count > ALIASES_MAX {
            return bad(format!("has {count} expressions; give at most {ALIASES_MAX}"));
        }
        if bytes > EXPRESSIONS_BYTES_MAX {
            return bad(format!(
                "has expressions of {bytes} bytes; {EXPRESSIONS_BYTES_MAX} are the most"
            ));
        }
        let of_rows = [ROW_ID, ROW_OFFSET, ROW_ADDRESS].into_iter();
        let added: Vec<Field> = of_rows.chain(self.measure.name()).map(added_field).collect();
        for NamedExpression { name, sql } in expressions {
            if self.has(&name) {
                return bad(format!("has `{name}`, which another column is called; rename one"));
            }
            let column = unquoted(&sql);
            let selected = match self.is_plain(column, open) {
                true => self.column(name, column, open)?,
                false => {
                    let expression = Arc::new(open.table.expression(&name, &sql, &added)?);
                    Selected { name, source: Source::Expression(expression) }
                }
            };
            self.columns.push(selected);
        }
        Ok(())
    }

    /// Adds a column that answers have in addition to those that were asked for, such as the distance, unless it is
    /// selected already.
    pub fn append(&mut self, name: &str, open: &OpenTable) -> Result<()> {
        if !self.has(name) {
            self.columns.push(self.column(name.to_owned(), name, open)?);
        }
        Ok(())
    }

    /// Refuses a column that is called like the one with the positions of query vectors.
    ///
    /// # Errors
    /// `BadRequest`.
    pub fn check_query_index(&self) -> Result<()> {
        match self.has(QUERY_INDEX) {
            true => Err(QueryError::BadRequest {
                field: "vectors",
                problem: format!(
                    "add a column `{QUERY_INDEX}` to the answer, which another column is called too; leave that one \
                     out, or rename it with an expression"
                ),
            }),
            false => Ok(()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
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
    /// Each part of a computed column is passed to `hold` before the next part is computed.
    ///
    /// # Errors
    /// `BadExpression`, such as for a division by zero; `TooLarge` if the computed columns do not fit a message; and
    /// those of `hold`.
    pub async fn select(
        &self,
        rows: &RecordBatch,
        measure: Measure,
        beside: Beside,
        query_index: Option<i32>,
        hold: &mut Hold<'_>,
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
        let mut computed = 0;
        let mut count = |part: &ArrayRef| {
            computed += bytes_of_arrays(std::slice::from_ref(part));
            match computed > MESSAGE_BYTES_MAX {
                true => Err(QueryError::TooLarge { bytes: computed }),
                false => hold(computed),
            }
        };
        // The bytes that calls have read since other tasks last ran.
        let mut called = 0;
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
                    compute(expression, &read, rows.num_rows(), &mut called, &mut count).await?
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

/// Computes an expression for `rows` rows, whose columns are `read`. Calls `count` for each part of the column. Lets
/// other tasks of the thread run between parts, and once the calls have read [`CALLED_BYTES_AT_ONCE`] / 4. `called` has
/// the bytes that they have read since then, also those of expressions before this one.
async fn compute(
    expression: &Expression,
    read: &[ArrayRef],
    rows: usize,
    called: &mut usize,
    count: &mut (impl FnMut(&ArrayRef) -> Result<()> + Send),
) -> Result<ArrayRef> {
    let at_once = rows_at_once(read, rows, expression.reads);
    let mut parts = Vec::with_capacity(rows.div_ceil(at_once));
    for from in (0..rows.max(1)).step_by(at_once) {
        let len = at_once.min(rows - from);
        let part: Vec<ArrayRef> = read.iter().map(|column| column.slice(from, len)).collect();
        *called += bytes_of_arrays(&part) * expression.reads.max(1);
        let part = expression.evaluate(part, len)?;
        count(&part)?;
        parts.push(part);
        // Several small expressions count together, so that not each of them costs a turn of the runtime.
        if from + len < rows || *called >= CALLED_BYTES_AT_ONCE / 4 {
            *called = 0;
            tokio::task::yield_now().await;
        }
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

/// Returns the number of rows for which an expression whose calls read these columns of `rows` rows `reads` times is
/// computed at once.
fn rows_at_once(read: &[ArrayRef], rows: usize, reads: usize) -> usize {
    let row_bytes = (bytes_of_arrays(read) / rows.max(1)).max(1);
    let bytes = READ_BYTES_AT_ONCE.min(CALLED_BYTES_AT_ONCE / reads.max(1));
    (bytes / row_bytes).clamp(1, ROWS_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow_array::{RecordBatchIterator, StringArray};
    use lake::{Lake, LakeOptions};
    use lance::Dataset;
    use tokio::runtime::Handle;
    use tokio::task::yield_now;

    use super::*;
    use crate::config::{QueryConfig, TableConfig};
    use crate::tables::{AskedVersion, Catalog};

    #[tokio::test]
    async fn another_task_of_the_core_runs_after_each_large_part_and_after_many_small_ones() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t.lance").to_str().unwrap().to_owned();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1000); 1000]));
        let stored = RecordBatch::try_from_iter([("text", Arc::clone(&texts))]).unwrap();
        let schema = stored.schema();
        let stored = RecordBatchIterator::new([Ok(stored)], schema);
        Dataset::write(stored, &uri, None).await.unwrap();
        let table = TableConfig { uri, ..Default::default() };
        let config = QueryConfig { tables: [("t".to_owned(), table)].into(), ..Default::default() };
        let catalog = Catalog::new(Lake::new(LakeOptions::default()), &config, Handle::current());
        catalog.refresh().await;
        let asked = AskedVersion { table: "t", branch: "", version: 0 };
        let open = catalog.open(asked).await.unwrap();
        let addresses: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..1000));
        let rows = RecordBatch::try_from_iter([("text", texts), (ROW_ADDRESS, addresses)]).unwrap();

        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        // Returns how often the other task had run when the memory of each part was held.
        let runs_at_parts = async |rows: RecordBatch, expressions: usize, calls: usize| {
            let measure = Measure::Nothing;
            let mut selection =
                Selection::new(Some(Vec::new()), BlobForm::Whole, measure, &open).unwrap();
            let sql = vec!["lower(text) = 'y'"; calls].join(" OR ");
            let expression =
                |at: usize| NamedExpression { name: format!("column_{at}"), sql: sql.clone() };
            let expressions = (0..expressions).map(expression).collect();
            selection.compute("expressions", expressions, &open).unwrap();
            let mut seen = Vec::new();
            let mut hold = |_: usize| -> Result<()> {
                seen.push(runs.load(Ordering::Relaxed));
                Ok(())
            };
            let beside = Beside::default();
            let selected = selection.select(&rows, measure, beside, None, &mut hold).await;
            assert_eq!(selected.unwrap().num_rows(), rows.num_rows());
            seen
        };
        // 64 calls read 65 rows of 1,004 bytes at once.
        let seen = runs_at_parts(rows.clone(), 2, 64).await;
        assert_eq!(seen.len(), 2 * 16);
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
        // Two calls read 10 rows, 20,080 bytes, for each expression, and 1 MiB for 53 of them.
        let mut seen = runs_at_parts(rows.slice(0, 10), 100, 2).await;
        assert_eq!(seen.len(), 100);
        assert_eq!((seen[0], seen[53]), (seen[52], seen[99]), "{seen:?}");
        seen.dedup();
        assert_eq!(seen.len(), 2, "{seen:?}");
        other.abort();
    }
}
