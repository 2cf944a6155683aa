//! Patterns of tables and of tokens' subjects: `*` stands for any characters, everything else for itself.

use wildmatch::WildMatchPattern;

/// A pattern of names. `?` has no special meaning: the wildcard for one character is NUL, which no name contains.
#[derive(Clone, Debug)]
pub struct Pattern(WildMatchPattern<'*', '\0'>);

impl Pattern {
    /// Creates a pattern from its text.
    pub fn new(text: &str) -> Self {
        Self(WildMatchPattern::new(text))
    }

    /// Returns whether the pattern covers `name`.
    pub fn covers(&self, name: &str) -> bool {
        self.0.matches(name)
    }

    /// Returns whether the pattern covers every name.
    pub fn covers_all(&self) -> bool {
        self.0.pattern_chars() == ['*']
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_stars_cover_all_names() {
        for (text, expected) in [("*", true), ("**", true), ("", false), ("a*", false)] {
            assert_eq!(Pattern::new(text).covers_all(), expected, "{text}");
        }
    }

    /// Matches by trying every length of the text that a `*` stands for.
    fn matches(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|taken| matches(rest, &name[taken..])),
            Some((c, rest)) => {
                name.split_first().is_some_and(|(n, left)| n == c && matches(rest, left))
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_a_plain_matcher(pattern in "[ab?*\\[]{0,8}", name in "[ab?\\[]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                Pattern::new(&pattern).covers(&name),
                matches(&chars(&pattern), &chars(&name)),
                "{} {}", pattern, name
            );
        }
    }
}
