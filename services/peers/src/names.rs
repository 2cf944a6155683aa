//! The names of peers: patterns of the DNS names and URIs in certificates.

use crate::NamePattern;

/// Patterns of names.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<NamePattern>);

impl Names {
    /// Reads the patterns of a configuration.
    ///
    /// # Errors
    /// A description of the problem: a pattern is empty, or has white space.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        match patterns.iter().find(|it| it.is_empty() || it.contains(char::is_whitespace)) {
            Some(wrong) => Err(format!("names `{wrong}`, which no certificate has")),
            None => Ok(Self(patterns.iter().map(|text| NamePattern::new(text)).collect())),
        }
    }

    /// Returns the first of a certificate's `names` that a pattern covers.
    pub fn find<'a>(&self, names: &'a [String]) -> Option<&'a str> {
        let is_named = |name: &&String| self.0.iter().any(|pattern| pattern.covers(name));
        names.iter().find(is_named).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_star_stands_for_any_characters_and_only_dns_names_ignore_case() {
        for (pattern, name, is_match) in [
            ("query.example", "query.example", true),
            ("query.example", "Query.EXAMPLE", true),
            ("Query.example", "query.example", true),
            ("query.example", "query.example.org", false),
            ("query.example", "a.query.example", false),
            ("*.query.example", "a.b.query.example", true),
            ("*.query.example", "query.example", false),
            ("query-*.example", "query-.example", true),
            ("*a*ab", "aaab", true),
            ("*a*ab", "aaba", false),
            ("*", "anything", true),
            ("spiffe://prod/ns/search/*", "spiffe://prod/ns/search/sa/x", true),
            ("spiffe://prod/ns/search/*", "spiffe://prod/ns/Search/sa/x", false),
            ("spiffe://prod/*", "prod", false),
            // A wildcard in a certificate has no special meaning: it matches only itself.
            ("query.example", "*.example", false),
        ] {
            let patterns = Names::new(&names(&[pattern])).unwrap();
            let names = names(&["other", name]);
            let found = patterns.find(&names);
            let expected = is_match.then_some(if pattern == "*" { "other" } else { name });
            assert_eq!(found, expected, "{pattern} {name}");
        }
        assert_eq!(Names::default().find(&names(&["a"])), None);
        assert_eq!(Names::new(&names(&["*"])).unwrap().find(&[]), None);
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_refused() {
        for wrong in ["", "a b", "a\n"] {
            assert!(Names::new(&names(&["a", wrong])).is_err(), "{wrong:?}");
        }
    }
}
