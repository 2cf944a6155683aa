//! The columns of a row that a filter may name although no table stores them: its address and its position.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use lance_core::{ROW_ADDR, ROW_ID, ROW_OFFSET};

use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::threads::deep_stack::on_deep_stack;

impl Table {
    /// Returns `expr`, a parsed `filter`, with one name for both columns that have a row's address: `_rowaddr` and, as
    /// in answers, `_rowid`. Without stable row ids the name is `_rowid`, which Lance's scanner reads in every search.
    /// With them it is `_rowaddr`, because the scanner would compare `_rowid` with the stable ids.
    ///
    /// Errors: `BadFilter` if the filter names `_rowoffset`, which Lance plans and then can't read.
    pub(super) fn with_row_columns(&self, filter: &str, expr: Expr) -> Result<Expr> {
        if names(&expr, ROW_OFFSET) {
            return Err(LakeError::BadFilter {
                filter: filter.to_owned(),
                why: format!("a filter can't compare `{ROW_OFFSET}`; compare `{ROW_ADDR}`"),
            });
        }
        let (from, to) = match self.has_stable_row_ids() {
            true => (ROW_ID, ROW_ADDR),
            false => (ROW_ADDR, ROW_ID),
        };
        if !names(&expr, from) {
            return Ok(expr);
        }
        let rename = |part| match part {
            Expr::Column(column) if column.name == from => {
                Ok(Transformed::yes(Expr::Column(Column::from_name(to))))
            }
            other => Ok(Transformed::no(other)),
        };
        let renamed = on_deep_stack(|| expr.transform(rename));
        Ok(renamed.map_err(lance_core::Error::from).map_err(|error| self.blame(error))?.data)
    }

    /// Refuses a filter that names row addresses in a search that Lance's scanner plans, on a table with stable row
    /// ids: the scanner does not read addresses there.
    ///
    /// Errors: `BadFilter`.
    pub(in crate::search) fn check_addresses_unnamed(&self, filter: Option<&str>) -> Result<()> {
        let Some(filter) = filter.filter(|_| self.has_stable_row_ids()) else { return Ok(()) };
        if !names(&self.parsed_filter(filter)?, ROW_ADDR) {
            return Ok(());
        }
        Err(LakeError::BadFilter {
            filter: filter.to_owned(),
            why: format!(
                "the table has stable row ids, so the filter of this search can't compare `{ROW_ADDR}` or \
                 `{ROW_ID}`; compare a column"
            ),
        })
    }
}

/// Returns whether `expr` reads `column`.
fn names(expr: &Expr, column: &str) -> bool {
    on_deep_stack(|| expr.column_refs().iter().any(|it| it.name == column))
}
