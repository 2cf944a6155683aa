//! A SQL predicate.

/// Only that there is one; what it means is the query node's to say.
pub fn parse_filter(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("the filter is empty; write a predicate, such as \"price < 50\"".into()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_something() {
        assert_eq!(parse_filter("a > 1"), Ok("a > 1".into()));
        assert!(parse_filter(" ").unwrap_err().contains("empty"));
    }
}
