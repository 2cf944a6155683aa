//! Filters that name rows by their ids or positions.

use crate::error::{QueryError, Result};
use crate::tables::OpenTable;

/// A filter that names rows by their ids or positions, as `take_row_ids` and `take_offsets` of LanceDB's clients send it.
#[derive(Clone, Debug, PartialEq)]
pub enum RowFilter {
    /// The rows with these ids.
    Ids(Vec<u64>),
    /// The rows at these positions of the table, counted without deleted rows.
    Positions(Vec<u64>),
}

impl RowFilter {
    /// Parses a filter, and at most one number more than `most` in its list. Returns `None` for a filter of another
    /// form.
    pub fn parse(filter: &str, most: usize) -> Option<Self> {
        let filter = filter.trim();
        if filter == "false" {
            return Some(Self::Ids(Vec::new()));
        }
        let (column, list) = filter.split_once(char::is_whitespace)?;
        let list = list.trim_start();
        let (word, list) = list.split_at_checked(2)?;
        let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        if !word.eq_ignore_ascii_case("in") {
            return None;
        }
        let numbers = list.split(',').take(most + 1).map(|it| it.trim().parse().ok());
        let mut numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        // A row that is named twice is returned once. A list that is too long stays too long, so that a query without a
        // lower limit is refused.
        if numbers.len() <= most {
            numbers.sort_unstable();
            numbers.dedup();
        }
        match column {
            "_rowid" => Some(Self::Ids(numbers)),
            "_rowoffset" => Some(Self::Positions(numbers)),
            _ => None,
        }
    }
}

/// Refuses a filter with `_rowid` on a table with stable row ids. Lance would compare it with the stable ids, but the
/// ids that this node returns are addresses.
pub fn check_row_ids(open: &OpenTable, filter: &str) -> Result<()> {
    if open.table.has_stable_row_ids() && filter.contains("_rowid") {
        let problem = "a filter with `_rowid` is served for this table, whose rows have stable ids, only as \
                       `_rowid IN (…)` without a search";
        return Err(QueryError::NotBuilt { problem: problem.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_that_name_rows_are_row_filters() {
        assert_eq!(RowFilter::parse("_rowid IN (2, 0, 2)", 9), Some(RowFilter::Ids(vec![0, 2])));
        assert_eq!(RowFilter::parse("_rowoffset in (7)", 9), Some(RowFilter::Positions(vec![7])));
        let long = RowFilter::parse("_rowid IN (1, 1, 1, 1)", 2);
        assert_eq!(long, Some(RowFilter::Ids(vec![1, 1, 1])), "it is too long");
        assert_eq!(RowFilter::parse("false", 9), Some(RowFilter::Ids(vec![])));
        for other in ["id IN (1)", "_rowid IN (1) OR x", "_rowid = 1", "_rowid IN (-1)", "_rowid"] {
            assert_eq!(RowFilter::parse(other, 9), None, "{other}");
        }
    }
}
