//! Columns of an answer that are computed from a table's columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::PhysicalExpr;
use lance::io::exec::Planner;
use lance_core::datatypes::Field as LanceField;

use super::filter::{check_tokens, may_read_clock};
use crate::deep_stack::on_deep_stack;
use crate::diagnose::one_line;
use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::words::shortened;

/// A SQL expression over a table's columns, which computes a column of an answer.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The top-level columns that it reads.
    pub columns: SchemaRef,
    /// The name and the type of the column that it computes.
    pub field: FieldRef,
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
        check_tokens(sql).map_err(bad)?;
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
        let nullable = physical.nullable(&schema).map_err(typed)?;
        let field = Arc::new(Field::new(name, data_type, nullable));
        Ok(Expression { columns: schema, field, physical, sql: sql.to_owned() })
    }

    /// Returns the expression that reads the column at `path`, which may be nested, such as `place.x`, and may write
    /// names in backticks or in a different case. The computed column is named as `path` is written.
    ///
    /// Errors: `ColumnNotFound`, and `BadExpression` for a path that is too long or too deep.
    pub fn column_expression(&self, path: &str) -> Result<Expression> {
        let fields = self.dataset().schema().resolve_case_insensitive(path);
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
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options);
        let batch = batch.map_err(|error| bad(error.to_string()))?;
        let value = on_deep_stack(|| self.physical.evaluate(&batch));
        let array = value.and_then(|value| value.into_array(rows));
        array.map_err(|error| bad(one_line(&error.to_string())))
    }
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
