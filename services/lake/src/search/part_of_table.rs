//! A part of a table: only some of its columns, or some of its rows, exist for whoever uses it.
//!
//! [`Table::part`] returns a `Table` that shares everything with the whole one, and shows the part. Names are resolved
//! in [`Table::schema`] and `Table::shown_fields`, which have the shown columns only. So a hidden column gets the same
//! errors as one that does not exist: in filters, orders, expressions and defaults. The condition on rows is part of
//! every filter (`Table::parsed_filter`), and is the filter of a search that has none
//! ([`Table::filter_or_condition`]). It may use hidden columns, and a caller's filter may not.
//!
//! A search by a part thus finds shown rows only. Reads by address do not know the condition: whoever reads rows for
//! the user of a part evaluates [`Table::row_condition`] for them. Positions of rows count hidden rows, so they are
//! refused.
//!
//! Two things are refused, so that no answer depends on the values of hidden rows:
//! - A condition on rows that can't be evaluated for single rows (`predicate_of`).
//! - A caller's filter that can't, beside a condition on rows. Such a filter may fail for a value, as a division by
//!   zero does, and DataFusion may evaluate it for rows for which the condition is false.
//!
//! A part has allow-lists of its own (`Table::open_id`), because a list is found by the text of its filter.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use datafusion::logical_expr::Expr;
use lance::dataset::scanner::ExprFilter;
use lance_core::ROW_OFFSET;
use lance_core::datatypes::Schema as LanceSchema;
use predicate::Predicate;

use super::filter::{may_read_clock, predicate_of};
use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::table::part::{Part, RowCondition};
use crate::threads::deep_stack::on_deep_stack;

/// The filter that stands for the condition on rows alone. No caller's filter is empty.
const CONDITION_ALONE: &str = "";

impl Table {
    /// Returns the part of this table that has only the top-level `columns` (all of them for `None`) and only the rows
    /// for which the SQL expression `rows` is true. Names in `columns` that the table lacks are ignored. Uses neither
    /// disk nor network.
    ///
    /// Errors: `ColumnNotFound` if the table has none of the columns; `BadFilter` for a faulty condition, or one that
    /// can't be evaluated for single rows.
    ///
    /// Panics if this is a part already: the condition of that part would be lost.
    pub async fn part(&self, columns: Option<&[String]>, rows: Option<&str>) -> Result<Self> {
        assert!(self.shown_part().is_none(), "a part has no parts");
        // Lance panics on some damaged schemas.
        let part = caught(self.uri(), async { self.made_part(columns, rows) }).await?;
        Ok(self.showing(Arc::new(part)))
    }

    fn made_part(&self, columns: Option<&[String]>, rows: Option<&str>) -> Result<Part> {
        let condition = rows.map(|rows| self.made_condition(rows)).transpose()?;
        let wanted: Option<HashSet<&str>> =
            columns.map(|names| names.iter().map(String::as_str).collect());
        let is_shown = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(name));
        let fields = self.schema().fields().iter();
        let fields: Vec<_> = fields.filter(|field| is_shown(field.name())).cloned().collect();
        if let (true, Some([name, ..])) = (fields.is_empty(), columns) {
            return Err(LakeError::column_not_found(name, self.schema()));
        }
        let stored = self.dataset().schema();
        let shown = stored.fields.iter().filter(|field| is_shown(&field.name)).cloned();
        let shown = LanceSchema { fields: shown.collect(), metadata: Default::default() };
        let filterable = self.filterable(is_shown).map_err(|error| self.blame(error))?;
        Ok(Part {
            id: self.next_id(),
            schema: Arc::new(ArrowSchema::new(fields)),
            fields: shown,
            filterable,
            condition,
        })
    }

    fn made_condition(&self, rows: &str) -> Result<RowCondition> {
        let expr = self.parsed_filter(rows)?;
        let predicate = match may_read_clock(rows) {
            true => None,
            false => predicate_of(&expr, self.stored_schema()),
        };
        let predicate = predicate.ok_or_else(|| LakeError::BadFilter {
            filter: rows.to_owned(),
            why: format!("it can't be evaluated for single rows; {SINGLE_ROWS}"),
        })?;
        Ok(RowCondition { expr, predicate: Arc::new(predicate) })
    }

    /// Returns the schema that a filter of the part is resolved in: that of Lance's scanner, without hidden columns. If
    /// columns are hidden, it also lacks the versions in which a row was created and changed.
    fn filterable(&self, is_shown: impl Fn(&str) -> bool) -> lance_core::Result<LanceSchema> {
        let mut all = self.dataset().full_projection().with_row_id().with_row_addr();
        // The versions of a row also tell when its hidden columns changed.
        if self.schema().fields().iter().all(|field| is_shown(field.name())) {
            all = all.with_row_last_updated_at_version().with_row_created_at_version();
        }
        let mut schema = all.to_schema();
        let stored: HashSet<&str> =
            self.stored_schema().fields().iter().map(|field| field.name().as_str()).collect();
        let is_hidden = |name: &str| stored.contains(name) && !is_shown(name);
        schema.fields.retain(|field| !is_hidden(&field.name));
        schema.metadata.clear();
        // A filter that names it is refused as by the whole table, and not as one that names no column.
        schema.merge(&ArrowSchema::new(vec![Field::new(ROW_OFFSET, DataType::UInt64, true)]))
    }

    /// Returns the condition on the rows that this table shows, in the form in which it is evaluated for single rows;
    /// `None` if it shows all rows. The condition may use columns that the table does not show.
    pub fn row_condition(&self) -> Option<&Arc<Predicate>> {
        self.condition().map(|condition| &condition.predicate)
    }

    /// Returns the filter of a search whose caller gives `filter`: the one that stands for the condition on rows alone
    /// if the caller gives none and there is such a condition.
    pub fn filter_or_condition<'a>(&self, filter: Option<&'a str>) -> Option<&'a str> {
        filter.or_else(|| self.condition().map(|_| CONDITION_ALONE))
    }

    /// Returns the condition on the rows that this table shows; `None` if it shows all rows.
    pub(super) fn condition(&self) -> Option<&RowCondition> {
        self.shown_part()?.condition.as_ref()
    }

    /// Returns whether `filter` stands for the condition on rows alone.
    pub(super) fn is_condition_alone(&self, filter: &str) -> bool {
        filter == CONDITION_ALONE && self.condition().is_some()
    }

    /// Refuses what counts hidden rows. Errors: `BadQuery`.
    pub(crate) fn check_all_rows_shown(&self) -> Result<()> {
        match self.condition() {
            None => Ok(()),
            Some(_) => Err(LakeError::BadQuery {
                why: "positions of rows are not available for a part of a table's rows".into(),
            }),
        }
    }

    /// Parses `text`, which the user of a part gives, as a filter on the columns that the part shows.
    pub(super) fn parsed_in_part(&self, part: &Part, text: String) -> lance::Result<Expr> {
        let schema = &part.filterable;
        on_deep_stack(|| ExprFilter::Sql(text).to_datafusion(schema, schema))
    }

    /// Joins `expr`, the parsed `filter` of the user of a part, with the condition on rows.
    ///
    /// Errors: `BadFilter` if `expr` names a hidden column, or can't be evaluated for single rows beside a condition.
    pub(super) fn with_condition(&self, filter: &str, expr: Expr) -> Result<Expr> {
        let Some(part) = self.shown_part() else { return Ok(expr) };
        let bad = |why: String| LakeError::BadFilter { filter: filter.to_owned(), why };
        // The planner knew only the columns of `filterable`. This is checked again, because all depends on it.
        let is_known = |name: &str| part.filterable.fields.iter().any(|field| field.name == name);
        if let Some(hidden) = expr.column_refs().iter().find(|column| !is_known(&column.name)) {
            return Err(bad(LakeError::column_not_found(&hidden.name, self.schema()).to_string()));
        }
        let Some(condition) = &part.condition else { return Ok(expr) };
        // The planner makes a literal of a filter that is true or false of all rows.
        let can_fail = match &expr {
            Expr::Literal(..) => false,
            expr => may_read_clock(filter) || predicate_of(expr, self.schema()).is_none(),
        };
        if can_fail {
            return Err(bad(format!(
                "under a grant that shows a part of the rows, a filter must be one that can be evaluated for single \
                 rows; {SINGLE_ROWS}"
            )));
        }
        Ok(condition.expr.clone().and(expr))
    }
}

/// The filters that can be evaluated for single rows.
const SINGLE_ROWS: &str = "compare columns that are not nested with values (=, !=, <, <=, >, >=, IN, BETWEEN, IS \
                           NULL), and join such comparisons by AND, OR and NOT";
