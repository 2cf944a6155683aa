//! Filters that name rows by their ids or positions.

use crate::error::{QueryError, Result};

/// A filter that names rows by their ids or positions, as `take_row_ids` and `take_offsets` of LanceDB's clients send
/// it.
#[derive(Clone, Debug, PartialEq)]
pub enum RowFilter {
    /// The rows with these ids.
    Ids(Vec<u64>),
    /// The rows at these positions of the table, counted without deleted rows.
    Positions(Vec<u64>),
}

impl RowFilter {
    /// Parses a filter. The returned numbers are ascending and without duplicates. Returns `None` for a filter of
    /// another form.
    ///
    /// # Errors
    /// `BadRequest` for a list of more than `most` rows, whatever the query's limit is: the first rows of the table
    /// among those that a longer list names are not known before the whole list is read.
    pub fn parse(filter: &str, most: usize) -> Result<Option<Self>> {
        let Some(mut rows) = row_list(filter, most) else { return Ok(None) };
        let (Self::Ids(numbers) | Self::Positions(numbers)) = &mut rows;
        if numbers.len() > most {
            let problem = format!("lists more than {most} rows; ask for them in several queries");
            return Err(QueryError::BadRequest { field: "filter", problem });
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Some(rows))
    }
}

/// Returns the rows that a filter names, in the order of its list. Numbers after the first `most + 1` are not read.
fn row_list(filter: &str, most: usize) -> Option<RowFilter> {
    let filter = filter.trim();
    if filter == "false" {
        return Some(RowFilter::Ids(Vec::new()));
    }
    let (column, list) = filter.split_once(char::is_whitespace)?;
    let list = list.trim_start();
    let (word, list) = list.split_at_checked(2)?;
    let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
    let form: fn(Vec<u64>) -> RowFilter = match column {
        "_rowid" => RowFilter::Ids,
        "_rowoffset" => RowFilter::Positions,
        _ => return None,
    };
    if !word.eq_ignore_ascii_case("in") {
        return None;
    }
    let numbers = list.split(',').take(most + 1).map(|it| it.trim().parse().ok());
    numbers.collect::<Option<_>>().map(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_that_name_rows_are_row_filters() {
        let parse = |filter| RowFilter::parse(filter, 9).unwrap();
        assert_eq!(parse("_rowid IN (2, 0, 2)"), Some(RowFilter::Ids(vec![0, 2])));
        assert_eq!(parse("_rowoffset in (7)"), Some(RowFilter::Positions(vec![7])));
        assert_eq!(parse("false"), Some(RowFilter::Ids(vec![])));
        for other in ["id IN (1)", "_rowid IN (1) OR x", "_rowid = 1", "_rowid IN (-1)", "_rowid"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        let long = RowFilter::parse("_rowid IN (3, 2, 1)", 2).unwrap_err();
        assert!(long.to_string().contains("`filter` lists more than 2 rows"), "{long}");
        assert_eq!(RowFilter::parse("id IN (3, 2, 1)", 2).unwrap(), None);
    }
}
