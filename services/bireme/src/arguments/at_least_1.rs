//! Whole numbers above 0.

/// Parses a whole number of at least 1.
pub fn parse_at_least_1(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("give a whole number, at least 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_less_are_refused() {
        assert_eq!([parse_at_least_1("1"), parse_at_least_1("10000")], [Ok(1), Ok(10_000)]);
        for bad in ["0", "-1", "", "1.5", "many", "5000000000"] {
            assert!(parse_at_least_1(bad).unwrap_err().contains("at least 1"), "{bad}");
        }
    }
}
