//! Which name a misspelt one is likely meant for.

use strsim::osa_distance;

/// The one of `known` that takes the fewest changes, letters that change places being one, if most of it is the
/// same; upper and lower case are alike. Of `name`, which may be of any length, no more is looked at than a third
/// more than each of `known` has.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|known| Some((changes(name, known)?, known)));
    near.min().map(|(_, known)| known)
}

/// How many changes make `name` into `known`, if they are at most a third of its letters.
fn changes(name: &str, known: &str) -> Option<usize> {
    let most = known.chars().count() / 3;
    let known = known.to_lowercase();
    let letters = known.chars().count();
    // In lower case no name is shorter, so one that is too long still is.
    let name = name.chars().take(letters + most + 1).collect::<String>().to_lowercase();
    if name.chars().count().abs_diff(letters) > most {
        return None;
    }
    let changes = osa_distance(&name, &known);
    (changes <= most).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mostly_the_same_is_meant() {
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
        // Of names that are equally near always the same.
        assert_eq!(nearest("abcd", ["abce", "abcc"]), Some("abcc"));
        // What is nearer and yet too far hides nothing: two of four letters, three of nine.
        assert_eq!(nearest("abcxyz", ["abcx", "abcdefxyz"]), Some("abcdefxyz"));
    }

    #[test]
    fn a_name_of_any_length_is_compared_only_with_what_is_nearly_as_long() {
        // Compared whole, this would be 10^13 steps with the second.
        let long = "e\u{301}T".repeat(1 << 20);
        let longer = "t".repeat(3 << 21);
        assert_eq!(nearest(&long, ["title", &longer]), None);
        assert_eq!(changes(&long, "title"), None);
        assert_eq!(changes("titles\u{130}", "title"), None);
        assert_eq!(changes("\u{130}d", "i\u{307}D"), Some(0));
    }
}
