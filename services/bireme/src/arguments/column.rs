//! A column's name, as one of a list.

/// Without the blanks around it, which `A, B` has.
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
    fn blanks_around_a_name_are_no_part_of_it() {
        assert_eq!(parse_column(" a b "), Ok("a b".into()));
        assert!(parse_column(" ").is_err());
    }
}
