//! The order of rows by one column, in a list.

use client::query::OrderBy;

/// Parses a column's name and the suffixes that may follow it: `:asc`, `:desc` for the largest values first, and
/// `:nulls-first` for rows without a value before all others.
pub fn parse_order(text: &str) -> Result<OrderBy, String> {
    let mut order = OrderBy::default();
    let mut column = text.trim();
    loop {
        if let Some(rest) = column.strip_suffix(":desc") {
            (column, order.descending) = (rest, true);
        } else if let Some(rest) = column.strip_suffix(":nulls-first") {
            (column, order.nulls_first) = (rest, true);
        } else if let Some(rest) = column.strip_suffix(":asc") {
            column = rest;
        } else {
            break;
        }
    }
    order.column = column.trim_end().to_owned();
    match order.column.as_str() {
        "" => Err("a column's name is missing; write columns as A,B:desc".into()),
        _ => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_may_have_a_direction_and_a_place_for_nulls() {
        for (text, column, descending, nulls_first) in [
            ("price", "price", false, false),
            (" place.x:asc ", "place.x", false, false),
            ("price:desc", "price", true, false),
            ("price:desc:nulls-first", "price", true, true),
            ("price:nulls-first", "price", false, true),
            ("price:down", "price:down", false, false),
        ] {
            let order = parse_order(text).unwrap();
            assert_eq!(
                (order.column.as_str(), order.descending, order.nulls_first),
                (column, descending, nulls_first),
                "{text}"
            );
        }
        assert!(parse_order(":desc").unwrap_err().contains("missing"));
    }
}
