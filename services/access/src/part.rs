//! The part of a table that a grant shows: some of its columns, some of its rows, or both.
//!
//! This crate only checks the form of a part. Whether a table has the columns, and whether the condition on rows can be
//! evaluated, is known when the table is opened.

use std::collections::HashSet;
use std::sync::Arc;

/// The maximum number of columns that a grant lists.
const COLUMNS_MAX: usize = 4096;

/// The maximum size of a condition on rows in bytes. The condition is part of the filter of each search.
const ROWS_BYTES_MAX: usize = 16 << 10;

/// The part of a table that a grant shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The top-level columns that exist for the caller; `None` for all.
    pub columns: Option<Vec<String>>,
    /// The condition on the rows that exist for the caller, a SQL expression; `None` for all rows.
    pub rows: Option<String>,
}

impl Part {
    /// Creates the part that a grant's `columns` and `rows` describe. Returns `None` if the grant has neither, and so
    /// shows the whole table.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub(crate) fn of(
        columns: Option<Vec<String>>,
        rows: Option<String>,
    ) -> Result<Option<Arc<Self>>, (&'static str, String)> {
        if let Some(columns) = &columns {
            check_columns(columns).map_err(|problem| ("columns", problem))?;
        }
        if let Some(rows) = &rows {
            check_rows(rows).map_err(|problem| ("rows", problem))?;
        }
        let is_whole = columns.is_none() && rows.is_none();
        Ok((!is_whole).then(|| Arc::new(Self { columns, rows })))
    }
}

fn check_columns(columns: &[String]) -> Result<(), String> {
    let count = columns.len();
    if count == 0 {
        return Err("is empty, so the grant shows nothing; name columns, or leave it out".into());
    }
    if count > COLUMNS_MAX {
        return Err(format!("names {count} columns; {COLUMNS_MAX} is the most"));
    }
    if let Some(name) = columns.iter().find(|it| it.is_empty() || it.chars().any(char::is_control))
    {
        return Err(format!("names {name:?}, which no column is called; give a column's name"));
    }
    let mut known = HashSet::with_capacity(count);
    match columns.iter().find(|name| !known.insert(name.as_str())) {
        Some(name) => Err(format!("names `{name}` twice; name it once")),
        None => Ok(()),
    }
}

fn check_rows(rows: &str) -> Result<(), String> {
    if rows.trim().is_empty() {
        return Err("is empty; give a condition such as \"tenant = 'a'\", or leave it out".into());
    }
    match rows.len() {
        bytes if bytes > ROWS_BYTES_MAX => {
            Err(format!("has {bytes} bytes; {ROWS_BYTES_MAX} is the most"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(columns: Option<&[&str]>, rows: Option<&str>) -> Result<Option<Arc<Part>>, String> {
        let columns = columns.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let said = |(field, problem): (&str, String)| format!("{field} {problem}");
        Part::of(columns, rows.map(str::to_owned)).map_err(said)
    }

    #[test]
    fn a_part_has_columns_or_rows_or_both() {
        assert_eq!(part(None, None), Ok(None));
        let both = part(Some(&["a", "b"]), Some("x = 1")).unwrap().unwrap();
        assert_eq!(both.columns.as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(both.rows.as_deref(), Some("x = 1"));
        assert!(part(Some(&["a"]), None).unwrap().is_some_and(|part| part.rows.is_none()));
        assert!(part(None, Some("x = 1")).unwrap().is_some_and(|part| part.columns.is_none()));
    }

    #[test]
    fn a_part_that_shows_nothing_or_is_too_long_is_refused() {
        let many: Vec<String> = (0..=COLUMNS_MAX).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(ROWS_BYTES_MAX + 1);
        for (columns, rows, problem) in [
            (Some(&[][..]), None, "columns is empty, so the grant shows nothing"),
            (Some(&["a", "b", "a"]), None, "columns names `a` twice"),
            (Some(&[""]), None, "columns names \"\""),
            (Some(&["a\n"]), None, "columns names \"a\\n\""),
            (Some(&many), None, "columns names 4097 columns; 4096 is the most"),
            (Some(&["a"]), Some(" \n"), "rows is empty"),
            (None, Some(long.as_str()), "rows has 16385 bytes; 16384 is the most"),
        ] {
            let said = part(columns, rows).unwrap_err();
            assert!(said.starts_with(problem), "{said}");
        }
    }
}
