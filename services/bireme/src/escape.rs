//! Escapes untrusted text for a terminal or a log.
//!
//! Text from callers, servers and tables may contain line breaks, which would forge lines of a log, and escape
//! sequences, which a terminal would execute.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` on one line. Control characters, line separators and the characters that embed, override or isolate a
/// direction of text are written as Rust's escapes.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, needs_escape)
}

/// Returns `text` escaped as [`one_line`] does, but keeps its line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && needs_escape(c))
}

fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, needs_escape: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match needs_escape(c) {
            true => write!(shown, "{}", c.escape_default()).expect("a string takes all"),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(one_line("plain, ümlaut, 表"), "plain, ümlaut, 表");
        assert!(matches!(one_line("plain"), Cow::Borrowed(_)));
        assert_eq!(one_line("a\nb\r\tc"), r"a\nb\r\tc");
        assert_eq!(one_line("\u{1b}[2J\u{7}\u{7f}\0"), r"\u{1b}[2J\u{7}\u{7f}\u{0}");
        assert_eq!(one_line("\u{9b}31m \u{2028} \u{202e}"), r"\u{9b}31m \u{2028} \u{202e}");
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }
}
