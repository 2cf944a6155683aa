//! Which name a misspelt one is likely meant for.

use strsim::osa_distance;

/// The one of `known` that takes the fewest changes, letters that change places being one, if most of it is the
/// same; upper and lower case are alike.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let known = known.into_iter().map(|known| (osa_distance(&name, &known.to_lowercase()), known));
    let (changes, known) = known.min()?;
    (changes * 3 <= known.chars().count()).then_some(known)
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
    }
}
