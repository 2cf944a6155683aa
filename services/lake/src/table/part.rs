//! The columns and rows that a part of a table shows (`search/part_of_table.rs` makes it).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Expr;
use lance_core::datatypes::Schema as LanceSchema;
use predicate::Predicate;

/// The part of a table that a [`Table`](crate::Table) shows.
pub(crate) struct Part {
    /// A number that no other open table or part has.
    pub id: u64,
    /// The served schema of the shown columns. It lacks the metadata of the table's schema, in which other tools list
    /// all columns.
    pub schema: SchemaRef,
    /// The shown columns as the table stores them.
    pub fields: LanceSchema,
    /// The shown columns, and the columns that Lance adds, which filters may name too.
    pub filterable: LanceSchema,
    /// The condition that the shown rows satisfy; `None` if all rows are shown.
    pub condition: Option<RowCondition>,
}

/// A condition on rows.
pub(crate) struct RowCondition {
    /// The condition, which may use hidden columns.
    pub expr: Expr,
    /// The form in which it is evaluated for single rows.
    pub predicate: Arc<Predicate>,
}
