//! A column that is computed by a SQL expression.

use client::query::NamedExpression;

/// Parses a column's name and the SQL expression behind the first `=`. Refuses comparisons without a name, such as
/// `price >= 10`, whose first `=` is a part of an operator.
pub fn parse_expression(text: &str) -> Result<NamedExpression, String> {
    let parts = text.split_once('=').map(|(name, sql)| (name.trim(), sql.trim()));
    match parts {
        Some((name, sql))
            if !name.is_empty()
                && !name.ends_with(['<', '>', '!'])
                && !sql.is_empty()
                && !sql.starts_with('=') =>
        {
            Ok(NamedExpression { name: name.to_owned(), sql: sql.to_owned() })
        }
        _ => Err("write a name and a SQL expression as NAME=SQL, such as 'twice=price * 2'".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_ends_at_the_first_equals_sign() {
        let expression = parse_expression(" is_7 = id = 7 ").unwrap();
        assert_eq!((expression.name.as_str(), expression.sql.as_str()), ("is_7", "id = 7"));
        let comparisons = ["price >= 10", "price<=10", "price != 10", "price == 10"];
        for text in ["", "price * 2", "=price", "twice= "].into_iter().chain(comparisons) {
            assert!(parse_expression(text).unwrap_err().contains("NAME=SQL"), "{text}");
        }
    }
}
