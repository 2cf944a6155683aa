//! Columns of an answer that are computed from a table's columns.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::PhysicalExpr;
use lance::io::exec::Planner;
use lance_arrow::r#struct::StructArrayExt;
use lance_core::datatypes::Field as LanceField;

use super::filter::{check_tokens, may_read_clock};
use crate::diagnose::one_line;
use crate::error::words::shortened;
use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::threads::deep_stack::on_deep_stack;

/// A SQL expression over a table's columns, which computes a column of an answer.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The top-level columns that it reads.
    pub columns: SchemaRef,
    /// The name and the type of the column that it computes.
    pub field: FieldRef,
    /// The maximum number of times that its calls and `LIKE`s read each byte of its columns. 0 if it has none.
    pub reads: usize,
    physical: Arc<dyn PhysicalExpr>,
    sql: String,
}

impl Table {
    /// Parses `sql`, which computes the column `name`. It may use the table's columns and those in `added`, and only
    /// the syntax and the functions that a filter may use.
    ///
    /// Errors: `BadExpression`, and `ColumnNotFound`.
    pub fn expression(&self, name: &str, sql: &str, added: &[Field]) -> Result<Expression> {
        let bad = |why: String| bad(sql, &why);
        let reads = check_tokens(sql).map_err(bad)?;
        let fields = self.schema().fields().iter().cloned();
        let fields = fields.chain(added.iter().cloned().map(Arc::new)).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let planner = Planner::new(Arc::clone(&schema));
        let said = |error: lance::Error| bad(one_line(&error.to_string()));
        let parse = |text: &str| on_deep_stack(|| planner.parse_expr(text)).map_err(said);
        let expr = parse(sql)?;
        let enclosed = parse(&format!("({sql}\n)"))?;
        check_whole(sql, &expr, &enclosed).map_err(bad)?;
        let columns = columns_of(&expr);
        for column in &columns {
            if schema.field_with_name(column).is_err() {
                return Err(LakeError::column_not_found(column, self.schema()));
            }
        }
        let read = schema.fields().iter().filter(|field| columns.contains(field.name())).cloned();
        let schema = Arc::new(Schema::new(read.collect::<Vec<FieldRef>>()));
        let planner = Planner::new(Arc::clone(&schema));
        let physical = on_deep_stack(|| {
            let expr = planner.optimize_expr(expr)?;
            planner.create_physical_expr(&expr)
        });
        let physical = physical.map_err(said)?;
        let typed = |error: datafusion::error::DataFusionError| bad(one_line(&error.to_string()));
        let data_type = physical.data_type(&schema).map_err(typed)?;
        // A field that is never null itself is null where its struct is.
        let of_structs = schema.fields().iter().any(|it| it.data_type().is_nested());
        let nullable = of_structs || physical.nullable(&schema).map_err(typed)?;
        let field = Arc::new(Field::new(name, data_type, nullable));
        Ok(Expression { columns: schema, field, reads, physical, sql: sql.to_owned() })
    }

    /// Returns the expression that reads the column at `path`, which may be nested, such as `place.x`, and may write
    /// names in backticks or in a different case. The computed column is named as `path` is written.
    ///
    /// Errors: `ColumnNotFound`, and `BadExpression` for a path that is too long or too deep.
    pub fn column_expression(&self, path: &str) -> Result<Expression> {
        let fields = self.shown_fields().resolve_case_insensitive(path);
        let fields = fields.ok_or_else(|| LakeError::column_not_found(path, self.schema()))?;
        let quoted = |field: &LanceField| format!("`{}`", field.name.replace('`', "``"));
        let sql = fields.into_iter().map(quoted).collect::<Vec<_>>().join(".");
        self.expression(path, &sql, &[])
    }
}

impl Expression {
    /// Computes the column for `rows` rows. `columns` are their values in the columns that the expression reads, in the
    /// order of `self.columns`.
    ///
    /// Errors: `BadExpression`, such as for a division by zero.
    pub fn evaluate(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let bad = |why: String| bad(&self.sql, &why);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = columns.iter().map(with_null_fields).collect::<std::result::Result<_, _>>();
        let batch = columns.and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options)
        });
        let batch = batch.map_err(|error| bad(error.to_string()))?;
        let value = on_deep_stack(|| self.physical.evaluate(&batch));
        let array = value.and_then(|value| value.into_array(rows));
        array.map_err(|error| bad(one_line(&error.to_string())))
    }
}

/// Returns a column with null in each field of a struct that is null. DataFusion reads a field without looking at its
/// struct, and the value of a field in a null struct is arbitrary.
fn with_null_fields(column: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let DataType::Struct(fields) = column.data_type() else { return Ok(Arc::clone(column)) };
    let column = column.as_struct().pushdown_nulls()?;
    let children =
        column.columns().iter().map(with_null_fields).collect::<std::result::Result<_, _>>()?;
    let nulls = column.nulls().cloned();
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), children, nulls, column.len())?))
}

/// Checks that `expr` is all of `text`. Lance parses the first complete expression and ignores the text after it. In
/// parentheses, such text is an error, or changes the expression: `enclosed` is `text` as parsed in parentheses.
fn check_whole(text: &str, expr: &Expr, enclosed: &Expr) -> std::result::Result<(), String> {
    // Each parsing reads the clock anew, so the literals that it puts in place of the time differ.
    let is_same = match may_read_clock(text) {
        true => without_literals(enclosed) == without_literals(expr),
        false => enclosed == expr,
    };
    is_same.then_some(()).ok_or_else(|| "there is more text after a complete expression".into())
}

/// Returns `expr` with null in place of each literal.
fn without_literals(expr: &Expr) -> Expr {
    let erase = |part| match part {
        Expr::Literal(..) => Ok(Transformed::yes(Expr::Literal(ScalarValue::Null, None))),
        other => Ok(Transformed::no(other)),
    };
    // The closure returns no error.
    on_deep_stack(|| expr.clone().transform(erase))
        .map_or(Expr::Literal(ScalarValue::Null, None), |it| it.data)
}

/// Returns the top-level columns that an expression reads.
fn columns_of(expr: &Expr) -> Vec<String> {
    let names = on_deep_stack(|| Planner::column_names_in_expr(expr));
    let mut columns: Vec<String> =
        names.iter().map(|name| name.split('.').next().unwrap_or(name).to_owned()).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn bad(expression: &str, why: &str) -> LakeError {
    LakeError::BadExpression { expression: expression.to_owned(), why: shortened(why) }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray};
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn fields_of_structs_that_are_null_are_null() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "", "c"]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(0), None]));
        let of = |fields: Vec<(&str, &ArrayRef)>, nulls: [bool; 3]| -> ArrayRef {
            let field = |(name, column): &(&str, &ArrayRef)| {
                Arc::new(Field::new(*name, column.data_type().clone(), true))
            };
            let columns = fields.iter().map(|(_, column)| Arc::clone(column)).collect();
            let fields = fields.iter().map(field).collect::<Vec<_>>().into();
            let nulls = Some(NullBuffer::from(nulls.to_vec()));
            Arc::new(StructArray::new(fields, columns, nulls))
        };
        let inner = of(vec![("text", &texts)], [true, true, false]);
        let outer = of(vec![("number", &numbers), ("inner", &inner)], [true, false, true]);
        let pushed = with_null_fields(&outer).unwrap();
        let pushed = pushed.as_struct();
        let numbers = pushed.column(0).as_primitive::<Int32Type>();
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(1), None, None]);
        let inner = pushed.column(1).as_struct();
        assert_eq!((0..3).map(|row| inner.is_null(row)).collect::<Vec<_>>(), [false, true, true]);
        let texts = inner.column(0).as_string::<i32>();
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Some("a"), None, None]);
        let plain = with_null_fields(&(Arc::new(texts.clone()) as ArrayRef)).unwrap();
        assert_eq!(plain.as_string::<i32>(), texts);
    }
}
