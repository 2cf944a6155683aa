//! Rows that a filter lets through.

use address::RowAddr;
use lance::dataset::scanner::Scanner;

use super::hit::{addresses, only_addresses};
use crate::columns::not_found;
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
            parsed.map_err(|error| bad(self.said(filter, &one_line(&error.to_string()))))
        };
        if let Some(at) = closes_too_often(filter) {
            return Err(bad(format!("the `)` at character {at} closes nothing")));
        }
        // Lance reads the first complete expression and drops what follows it. Within parentheses
        // nothing may follow.
        let expr = parsed(filter)?;
        if parsed(&format!("({filter}\n)"))? != expr {
            return Err(bad("text is left over behind a complete expression".into()));
        }
        if let Some(expr) = expr {
            scanner.filter_expr(expr);
        }
        Ok(())
    }

    /// What is wrong with `filter`, without what DataFusion wraps it in.
    fn said(&self, filter: &str, text: &str) -> String {
        let between = |begin: &str, end: &str| {
            let (_, after) = text.split_once(begin)?;
            Some(after.split_once(end).map_or(after, |(inside, _)| inside))
        };
        if let Some(column) = between("Schema error: No field named ", ". ") {
            let column = column.trim_end_matches('.').trim_matches(['"', '`']);
            return not_found(self, column).to_string();
        }
        if let Some((_, problem)) = text.rsplit_once("(sql parser error: ") {
            let problem = problem.strip_suffix(')').unwrap_or(problem);
            let problem = problem.split(" at Line").next().unwrap_or(problem);
            let problem = problem.replace("Expected: ", "expected ").replace("found: ", "found ");
            let problem = problem.replace("found EOF", "found its end");
            return format!("{problem}; write it like `price > 3 AND name = 'x'`");
        }
        if let Some(function) = between("Invalid function '", "'") {
            return format!("there is no function `{function}`");
        }
        let literal = between("Received literal ", " and could not convert to literal of type ");
        if let (Some(literal), Some(data_type)) = (literal, between("literal of type '", "'")) {
            let plain = literal.strip_prefix("Utf8(\"").and_then(|it| it.strip_suffix("\")"));
            let literal = plain.map_or_else(|| literal.to_owned(), |text| format!("'{text}'"));
            return format!("{literal} can't be compared with a column of type {data_type}");
        }
        unwrapped(filter, text)
    }
}

/// What Lance and DataFusion say of `filter`, without what they begin it with. `text` is one line, whatever `filter` is.
fn unwrapped(filter: &str, text: &str) -> String {
    let wrapped = [
        "Error parsing function: ",
        "Error during planning: ",
        "Schema error: ",
        &format!("Error resolving filter expression {}: ", one_line(filter)),
    ];
    wrapped.iter().fold(text.to_owned(), |text, wrapping| text.replace(wrapping, ""))
}

/// Where a parenthesis closes that none opened, counted from 1; quoted text and comments don't count.
fn closes_too_often(filter: &str) -> Option<usize> {
    let mut open = 0usize;
    let mut rest = filter.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let next = rest.peek().map(|(_, next)| *next);
        match (c, next) {
            ('(', _) => open += 1,
            (')', _) if open == 0 => return Some(filter[..at].chars().count() + 1),
            (')', _) => open -= 1,
            // A doubled quote within ends one text and begins the next, which comes to the same.
            ('\'' | '"' | '`', _) => while rest.next().is_some_and(|(_, inner)| inner != c) {},
            ('-', Some('-')) => while rest.next().is_some_and(|(_, inner)| inner != '\n') {},
            ('/', Some('*')) => {
                rest.next();
                let mut last = ' ';
                for (_, inner) in rest.by_ref() {
                    if (last, inner) == ('*', '/') {
                        break;
                    }
                    last = inner;
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{closes_too_often, unwrapped};

    #[test]
    fn a_filter_of_several_lines_is_unwrapped_as_one_of_one_line_is() {
        let text = "Error resolving filter expression a > 3: Schema error: it is odd";
        for filter in ["a > 3", "a\n  > 3\n"] {
            assert_eq!(unwrapped(filter, text), "it is odd", "{filter}");
        }
    }

    #[test]
    fn parentheses_are_counted_outside_of_text_and_comments() {
        for fine in ["a < 1", "(a) AND (b OR (c))", "t = ')'", "t = 'it''s )' OR `)` = \")\"", ""] {
            assert_eq!(closes_too_often(fine), None, "{fine}");
        }
        for fine in ["a -- )\n < 1", "a /* ) * / ) */ < 1", "((a)", "t = 'open )"] {
            assert_eq!(closes_too_often(fine), None, "{fine}");
        }
        assert_eq!(closes_too_often("a < 1) OR b"), Some(6));
        assert_eq!(closes_too_often("(a) /* ( */ ) x"), Some(13));
        assert_eq!(closes_too_often("'é' = t) x"), Some(8));
    }
}
