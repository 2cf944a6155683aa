//! Names and counts as messages say them.

use address::RowAddr;

/// How many row addresses, columns or candidates a message spells out before it only counts them.
const NAMES_SHOWN: usize = 8;

/// `1 row`, `2 rows`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// `"a", "b" and 3 more`
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| format!("{name:?}")).collect();
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// What to choose from, if there is anything.
pub(crate) fn candidates_said(candidates: &[String]) -> String {
    if candidates.is_empty() {
        "the table has none".to_owned()
    } else {
        format!("one of {}", listed(candidates))
    }
}

/// `row address 7 (0:7)`, or several.
pub(crate) fn addresses_said(addresses: &[RowAddr]) -> String {
    let shown: Vec<_> =
        addresses.iter().take(NAMES_SHOWN).map(|addr| format!("{addr} ({addr:?})")).collect();
    let noun = if addresses.len() == 1 { "row address" } else { "row addresses" };
    match addresses.len().saturating_sub(NAMES_SHOWN) {
        0 => format!("{noun} {}", shown.join(", ")),
        more => format!("{noun} {} and {more} more", shown.join(", ")),
    }
}
