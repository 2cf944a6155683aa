//! Pages of lists. A page ends with a token, which names its last entry; the next page has the entries behind it. So
//! entries that appear or disappear between two pages neither repeat nor hide others.

use std::cmp::Reverse;
use std::fmt::Display;
use std::str::FromStr;

use super::route::parameter;
use crate::error::{QueryError, Result};

/// The page that a call asks for: the fields of a body. The query string may have them instead.
#[derive(Debug, Default)]
pub struct Page {
    pub limit: Option<usize>,
    pub page_token: Option<String>,
    pub descending: Option<bool>,
}

impl Page {
    /// Returns the page with the parameters of a query string, which count before the fields of a body.
    ///
    /// # Errors
    /// [`QueryError::BadRequest`] if a parameter is not of its type.
    pub fn or_by(self, query: &str) -> Result<Self> {
        Ok(Self {
            limit: given(query, "limit", "number")?.or(self.limit),
            page_token: given(query, "page_token", "token")?.or(self.page_token),
            descending: given(query, "descending", "truth value")?.or(self.descending),
        })
    }

    /// Returns this page, with at most `max` entries.
    pub fn at_most(self, max: usize) -> Self {
        Self { limit: Some(self.limit.map_or(max, |limit| limit.min(max))), ..self }
    }

    /// Returns the maximum number of entries of the page; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(|limit| limit.max(1))
    }

    /// Returns the token of the page before; an empty text for the first page.
    pub fn after(&self) -> &str {
        self.page_token.as_deref().unwrap_or_default()
    }

    /// Returns the entries of the page, in the order of their keys, and the token of the next page if there is one.
    ///
    /// # Errors
    /// [`QueryError::BadRequest`] if the token is not a key.
    pub fn of<T, K: Ord + Display + FromStr>(
        &self,
        mut entries: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Result<(Vec<T>, Option<String>)> {
        let is_descending = self.descending == Some(true);
        match is_descending {
            true => entries.sort_by_key(|entry| Reverse(key(entry))),
            false => entries.sort_by_key(&key),
        }
        if !self.after().is_empty() {
            let after: K = parsed("page_token", "token of a page of this list", self.after())?;
            let is_behind = |key: K| if is_descending { key < after } else { key > after };
            entries.retain(|entry| is_behind(key(entry)));
        }
        let limit = self.limit().unwrap_or(usize::MAX);
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|last| key(last).to_string());
        Ok((entries, next))
    }
}

fn given<T: FromStr>(query: &str, field: &'static str, what: &str) -> Result<Option<T>> {
    let text = parameter(query, field).filter(|text| !text.is_empty());
    text.map(|text| parsed(field, what, &text)).transpose()
}

fn parsed<T: FromStr>(field: &'static str, what: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| QueryError::BadRequest {
        field,
        problem: format!("is {}; give a {what}", lake::quoted(text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Page {
        Page::default().or_by(query).unwrap()
    }

    #[test]
    fn pages_together_are_the_list() {
        for (order, expected) in [("", [1, 2, 7, 10, 11]), ("&descending=true", [11, 10, 7, 2, 1])]
        {
            for limit in 1..7 {
                let (mut all, mut token) = (Vec::new(), String::new());
                loop {
                    let page = page(&format!("limit={limit}&page_token={token}{order}"));
                    let (entries, next) = page.of(vec![7, 1, 11, 2, 10], |it| *it).unwrap();
                    assert!(!entries.is_empty() && entries.len() <= limit);
                    all.extend(entries);
                    match next {
                        Some(next) => token = next,
                        None => break,
                    }
                }
                assert_eq!(all, expected, "{limit}{order}");
            }
        }
        for (query, expected) in [("", [1, 2]), ("limit=9", [1, 2]), ("page_token=2", [7, 10])] {
            let (entries, next) =
                page(query).at_most(2).of(vec![7, 1, 11, 2, 10], |it| *it).unwrap();
            assert_eq!(
                (entries, next),
                (expected.to_vec(), Some(expected[1].to_string())),
                "{query}"
            );
        }
        let (entries, _) = page("limit=1").at_most(2).of(vec![7, 1], |it| *it).unwrap();
        assert_eq!(entries, [1]);
        // An entry that has gone does not end the list.
        let (entries, next) = page("page_token=8").of(vec![7, 1, 11], |it| *it).unwrap();
        assert_eq!((entries, next), (vec![11], None));
        let (entries, next) = page("").of(vec!["b", "a"], |it| (*it).to_owned()).unwrap();
        assert_eq!((entries, next), (vec!["a", "b"], None));
    }

    #[test]
    fn the_query_string_counts_before_the_body() {
        let body = || Page { limit: Some(2), page_token: Some("3".into()), descending: None };
        let page = body().or_by("limit=1&descending=false").unwrap();
        assert_eq!((page.limit(), page.after()), (Some(1), "3"));
        let page = body().or_by("limit=&page_token=4").unwrap();
        assert_eq!((page.limit(), page.after()), (Some(2), "4"));
        for (query, problem) in [
            ("limit=x", "`limit` is `x`; give a number"),
            ("limit=-1", "`limit` is `-1`; give a number"),
            ("descending=yes", "`descending` is `yes`; give a truth value"),
        ] {
            let error = Page::default().or_by(query).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        let error = super::tests::page("page_token=x").of(vec![1], |it| *it).unwrap_err();
        assert!(error.to_string().contains("`page_token` is `x`"), "{error}");
    }
}
