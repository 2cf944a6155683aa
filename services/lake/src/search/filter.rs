//! Rows that a filter lets through.

use address::RowAddr;
use lance::dataset::scanner::Scanner;

use super::hit::{addresses, only_addresses};
use crate::diagnose::one_line;
use crate::error::{LakeError, Result};
use crate::table::Table;

impl Table {
    /// The first `limit` rows, in address order, for which the SQL expression `filter` is true.
    /// Scalar indexes are used where the filter's columns have them; other rows are scanned.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn search_filter(&self, filter: &str, limit: usize) -> Result<Vec<RowAddr>> {
        let mut scanner = self.dataset().scan();
        only_addresses(self, &mut scanner, &[]).map_err(|error| self.blame(error))?;
        self.set_filter(&mut scanner, Some(filter))?;
        scanner.scan_in_order(true);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let scan = async {
            scanner.limit(Some(limit), None)?;
            let batch = scanner.try_into_batch().await?;
            let mut found: Vec<_> = addresses(&batch)?.collect();
            found.sort_unstable();
            Ok(found)
        };
        scan.await.map_err(|error| self.blame(error))
    }

    /// Puts `filter` on `scanner`, parsed here and now so that what is wrong with it can be told
    /// from what goes wrong while searching.
    pub(crate) fn set_filter(&self, scanner: &mut Scanner, filter: Option<&str>) -> Result<()> {
        let Some(filter) = filter else { return Ok(()) };
        let bad = |why: String| LakeError::BadFilter { filter: filter.to_owned(), why };
        if filter.trim().is_empty() {
            return Err(bad("it is empty".into()));
        }
        let mut parsed = |text: &str| {
            let parsed = scanner.filter(text).and_then(|scanner| scanner.get_expr_filter());
            parsed.map_err(|error| bad(one_line(&error.to_string())))
        };
        // Lance reads the first complete expression and drops what follows it. Within parentheses
        // nothing may follow; what closes them itself reads differently.
        let expr = parsed(filter)?;
        if parsed(&format!("({filter}\n)"))? != expr {
            return Err(bad("text is left over behind a complete expression".into()));
        }
        if let Some(expr) = expr {
            scanner.filter_expr(expr);
        }
        Ok(())
    }
}
