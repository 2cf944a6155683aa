//! Patterns of the names in certificates.

use wildmatch::WildMatchPattern;

/// A pattern of DNS names or of URIs. `*` stands for any characters, or none; everything else stands for itself.
///
/// A pattern covers only names of its own kind. A pattern with a colon is for URIs, which are case-sensitive; one
/// without is for DNS names, which are not. Otherwise `*.search.example` would cover the URI
/// `spiffe://prod/other/x.search.example`. Only the pattern `*` covers both kinds.
#[derive(Clone, Debug)]
pub struct NamePattern {
    // `?` has no special meaning: the wildcard for one character is NUL, which no name contains.
    pattern: WildMatchPattern<'*', '\0'>,
    covers_uris: bool,
    covers_dns_names: bool,
}

impl NamePattern {
    /// Creates a pattern from its text.
    pub fn new(text: &str) -> Self {
        let is_uri = text.contains(':');
        let lower;
        let folded = if is_uri {
            text
        } else {
            lower = text.to_ascii_lowercase();
            &lower
        };
        Self {
            pattern: WildMatchPattern::new(folded),
            covers_uris: is_uri || text == "*",
            covers_dns_names: !is_uri,
        }
    }

    /// Returns whether the pattern covers `name`, a name as written in a certificate.
    pub fn covers(&self, name: &str) -> bool {
        match name.contains(':') {
            true => self.covers_uris && self.pattern.matches(name),
            false => self.covers_dns_names && self.pattern.matches(&name.to_ascii_lowercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_names_of_its_kind() {
        for (pattern, name, covers) in [
            ("search.Example", "SEARCH.example", true),
            ("*.search.example", "a.search.example", true),
            ("*.search.example", "spiffe://prod/evil/x.search.example", false),
            ("spiffe://prod/search/*", "spiffe://prod/search/a", true),
            ("spiffe://prod/search/*", "spiffe://Prod/search/a", false),
            ("spiffe://prod/search/*", "spiffe://prod/search", false),
            ("*", "spiffe://prod/search", true),
            ("*", "a.example", true),
            ("a?c", "abc", false),
            ("a?c", "a?c", true),
        ] {
            assert_eq!(NamePattern::new(pattern).covers(name), covers, "{pattern} {name}");
        }
    }
}
