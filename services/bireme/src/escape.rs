//! Text of others on a terminal or in a log, with nothing in it that either would obey.
//!
//! What callers, servers and tables say may hold line breaks, which would forge lines of a log, and escape sequences,
//! which a terminal carries out.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` on one line: control characters, line separators and marks that turn the direction of text are written as
/// they are in source code.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The same, but for the line breaks, of text that has several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_obeyed(c))
}

fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_obeyed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_obeyed(c) {
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
    fn what_a_terminal_or_a_log_would_obey_is_written_out() {
        assert_eq!(one_line("plain, ümlaut, 表"), "plain, ümlaut, 表");
        assert!(matches!(one_line("plain"), Cow::Borrowed(_)));
        assert_eq!(one_line("a\nb\r\tc"), r"a\nb\r\tc");
        assert_eq!(one_line("\u{1b}[2J\u{7}\u{7f}\0"), r"\u{1b}[2J\u{7}\u{7f}\u{0}");
        assert_eq!(one_line("\u{9b}31m \u{2028} \u{202e}"), r"\u{9b}31m \u{2028} \u{202e}");
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }
}
