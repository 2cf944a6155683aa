//! Formats names, addresses and quoted texts for messages.

use address::RowAddr;

/// The maximum number of row addresses, columns or candidates that a message lists. The message says how many more
/// there are.
const NAMES_SHOWN: usize = 8;

/// Lists `names`: `"a", "b" and 3 more`.
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| format!("{name:?}")).collect();
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Lists `candidates`: `one of "a", "b"`, or says that there is none.
pub(crate) fn listed_candidates(candidates: &[String]) -> String {
    if candidates.is_empty() {
        "the table has none".to_owned()
    } else {
        format!("one of {}", listed(candidates))
    }
}

/// Lists one or several row addresses: `row address 7 (0:7)`.
pub(crate) fn listed_addresses(addresses: &[RowAddr]) -> String {
    let shown: Vec<_> =
        addresses.iter().take(NAMES_SHOWN).map(|addr| format!("{addr} ({addr:?})")).collect();
    let noun = if addresses.len() == 1 { "row address" } else { "row addresses" };
    match addresses.len().saturating_sub(NAMES_SHOWN) {
        0 => format!("{noun} {}", shown.join(", ")),
        more => format!("{noun} {} and {more} more", shown.join(", ")),
    }
}

/// The maximum number of characters of a caller's text that a message repeats.
const QUOTED_CHARS_MAX: usize = 120;

/// The maximum number of characters of a library's message, which is limited because it may repeat a caller's text.
const MESSAGE_CHARS_MAX: usize = 480;

/// Quotes a caller's text in backquotes, on one line and shortened if it is long: it must neither fill answers and logs
/// nor forge lines in them.
pub fn quoted(text: &str) -> String {
    match cut(text, QUOTED_CHARS_MAX) {
        (shown, false) => format!("`{shown}`"),
        (shown, true) => format!("`{shown}…` ({} bytes)", text.len()),
    }
}

/// Puts a library's message on one line and shortens it if it is long, like [`quoted`] but without backquotes.
pub(crate) fn shortened(text: &str) -> String {
    match cut(text, MESSAGE_CHARS_MAX) {
        (shown, false) => shown,
        (shown, true) => format!("{shown}…"),
    }
}

/// Returns the first `chars_max` characters, with control characters escaped, and whether there are more.
fn cut(text: &str, chars_max: usize) -> (String, bool) {
    let mut shown = String::with_capacity(text.len().min(2 * chars_max));
    for c in text.chars().take(chars_max) {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    (shown, text.chars().nth(chars_max).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_callers_is_put_on_one_line_and_shortened() {
        assert_eq!(quoted("a > 3"), "`a > 3`");
        assert_eq!(quoted("a\n\u{1b}[31m\u{9b}é"), "`a\\n\\u{1b}[31m\\u{9b}é`");
        let long = "é".repeat(5000);
        assert_eq!(quoted(&long), format!("`{}…` (10000 bytes)", "é".repeat(QUOTED_CHARS_MAX)));
        assert_eq!(shortened("as it is"), "as it is");
        assert_eq!(shortened(&long).chars().count(), MESSAGE_CHARS_MAX + 1);
    }
}
