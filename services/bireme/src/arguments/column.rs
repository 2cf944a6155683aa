//! A column's name in a list.

/// Parses a column's name, and removes the spaces around it, as in `A, B`.
pub fn parse_column(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a column's name is missing; write them as A,B".into()),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_around_a_name_are_removed() {
        assert_eq!(parse_column(" a b "), Ok("a b".into()));
        assert!(parse_column(" ").is_err());
    }
}
