//! Finds the name that a misspelt name was probably meant to be.

use strsim::osa_distance;

/// The minimum number of letters of a name that is recognised as the beginning of another one.
const BEGINNING_MIN: usize = 3;

/// Returns the name in `known` with the smallest edit distance from `name`, or `None` if none is close
/// enough. Swapping two adjacent letters counts as one edit, and case is ignored. A known name qualifies if the
/// distance is at most a third of its length. If none does, a known name qualifies if it begins with `name` or `name`
/// begins with it, both have at least three letters, and neither is more than twice as long as the other.
///
/// `name` may be of any length. It is compared with a known name of `n` letters by at most its first `2 n + 1` letters.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let least = |difference: fn(&str, &str) -> Option<usize>| {
        let candidates = known.iter().filter_map(|known| Some((difference(name, known)?, *known)));
        candidates.min().map(|(_, known)| known)
    };
    least(edit_distance).or_else(|| least(added_letters))
}

/// Returns the number of letters that follow the shorter name in the longer one. Returns `None` unless the longer name
/// begins with the shorter one, both have at least [`BEGINNING_MIN`] letters, and neither is more than twice as long as
/// the other.
fn added_letters(name: &str, known: &str) -> Option<usize> {
    let letters = known.chars().count();
    let known = known.to_lowercase();
    let name = name.chars().take(2 * letters + 1).collect::<String>().to_lowercase();
    let (name_letters, letters) = (name.chars().count(), known.chars().count());
    let (shorter, longer) = (letters.min(name_letters), letters.max(name_letters));
    let is_beginning = name.starts_with(&known) || known.starts_with(&name);
    (is_beginning && shorter >= BEGINNING_MIN && longer <= 2 * shorter).then(|| longer - shorter)
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
        // A name is recognised by its beginning if no known name is near enough by edit distance.
        for (name, known, meant) in [
            ("vectr", ["vec", "k"], Some("vec")),
            ("VEC", ["k", "vector"], Some("vector")),
            ("vectr", ["vec", "vector"], Some("vector")),
            ("ve", ["vec_a", "k"], None),
            ("vectors", ["vec", "k"], None),
            ("vec", ["vectors", "k"], None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
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
