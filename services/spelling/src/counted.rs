//! Spells counts with their nouns.

/// Formats a count with its noun: `1 row`, `2 rows`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    // The conversion fails only for counts above 2^64, which do not occur.
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let texts = [0u32, 1, 2].map(|count| counted(count, "row"));
        assert_eq!(texts, ["0 rows", "1 row", "2 rows"]);
    }
}
