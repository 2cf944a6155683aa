//! Finds the name that a misspelt name was probably meant to be.

use strsim::osa_distance;

/// Returns the name in `known` with the smallest edit distance from `name`, or `None` if none is close
/// enough. Swapping two adjacent letters counts as one edit, and case is ignored. A known name qualifies if
/// the distance is at most a third of its length.
///
/// `name` may be of any length. It is compared with a known name of `n` letters by at most its first `n + n / 3 + 1`
/// letters.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates =
        known.into_iter().filter_map(|known| Some((edit_distance(name, known)?, known)));
    candidates.min().map(|(_, known)| known)
}

/// Returns the edit distance from `name` to `known` if it is at most a third of `known`'s length.
fn edit_distance(name: &str, known: &str) -> Option<usize> {
    let distance_max = known.chars().count() / 3;
    let known = known.to_lowercase();
    let letters = known.chars().count();
    // Lowercasing never makes a name shorter, so a name that is too long here is also too long afterwards.
    let name = name.chars().take(letters + distance_max + 1).collect::<String>().to_lowercase();
    if name.chars().count().abs_diff(letters) > distance_max {
        return None;
    }
    let distance = osa_distance(&name, &known);
    (distance <= distance_max).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_mostly_right_is_recognised() {
        let known = ["gloss", "Title", "k", "ram_tier", "fills"];
        for (name, meant) in [
            ("glos", "gloss"),
            ("TITEL", "Title"),
            ("title", "Title"),
            ("ram_teer", "ram_tier"),
            ("ramtier", "ram_tier"),
            ("fill", "fills"),
            ("K", "k"),
        ] {
            assert_eq!(nearest(name, known), Some(meant), "{name}");
        }
        for name in ["", "x", "tier", "colour", "flls_max"] {
            assert_eq!(nearest(name, known), None, "{name}");
        }
        assert_eq!(nearest("a", []), None);
        // If two names are at the same distance, the alphabetically first one is returned.
        assert_eq!(nearest("abcd", ["abce", "abcc"]), Some("abcc"));
        // A nearer name that does not qualify (two edits in four letters) does not hide a farther one that
        // does (three in nine).
        assert_eq!(nearest("abcxyz", ["abcx", "abcdefxyz"]), Some("abcdefxyz"));
    }

    #[test]
    fn a_long_name_is_examined_only_up_to_a_limit() {
        // A comparison of whole names would take 10^13 steps for `long` and the second known name, `longer`.
        let long = "e\u{301}T".repeat(1 << 20);
        let longer = "t".repeat(3 << 21);
        assert_eq!(nearest(&long, ["title", &longer]), None);
        assert_eq!(edit_distance(&long, "title"), None);
        assert_eq!(edit_distance("titles\u{130}", "title"), None);
        assert_eq!(edit_distance("\u{130}d", "i\u{307}D"), Some(0));
    }
}
