//! The names of peers: patterns of the DNS names and URIs in certificates.

/// Patterns of names. `*` stands for any characters, also none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// Reads the patterns of a configuration.
    ///
    /// # Errors
    /// What is wrong with a pattern: it is empty, or has white space.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        match patterns.iter().find(|it| it.is_empty() || it.contains(char::is_whitespace)) {
            Some(wrong) => Err(format!("names `{wrong}`, which no certificate has")),
            None => Ok(Self(patterns.to_vec())),
        }
    }

    /// Returns whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first of a certificate's `names` that a pattern matches. URIs have a colon, and their letters' case
    /// counts; DNS names have none, and it does not.
    pub fn find<'a>(&self, names: &'a [String]) -> Option<&'a str> {
        let is_named = |name: &&String| self.0.iter().any(|pattern| matches_name(pattern, name));
        names.iter().find(is_named).map(String::as_str)
    }
}

fn matches_name(pattern: &str, name: &str) -> bool {
    match name.contains(':') {
        true => matches(pattern.as_bytes(), name.as_bytes()),
        false => {
            matches(pattern.to_ascii_lowercase().as_bytes(), name.to_ascii_lowercase().as_bytes())
        }
    }
}

/// Matches in time proportional to both lengths' product: after a mismatch, only the last `*` takes one more byte.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The place after the last `*`, and the place in the name up to which that `*` reaches.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, from));
            }
            Some(byte) if *byte == name[from] => (at, from) = (at + 1, from + 1),
            _ => match &mut star {
                None => return false,
                Some((after, reach)) => {
                    *reach += 1;
                    (at, from) = (*after, *reach);
                }
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
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
            // A wildcard in a certificate is a name like another, and matches only itself.
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
