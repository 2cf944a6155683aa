//! A SQL predicate.

/// Checks that the filter is not empty. The query node parses it.
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
    fn an_empty_filter_is_refused() {
        assert_eq!(parse_filter("a > 1"), Ok("a > 1".into()));
        assert!(parse_filter(" ").unwrap_err().contains("empty"));
    }
}
