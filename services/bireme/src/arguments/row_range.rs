//! Ranges of rows, by their positions in a table.

use wire::fetch::RowRange;

/// Parses `A..B`, `A..`, `..B` or `..`: half-open, counted from 0.
pub fn parse_row_range(text: &str) -> Result<RowRange, String> {
    let form =
        || "write it A..B, half-open and counted from 0; A.. goes to the table's end".to_owned();
    let (first, end) = text.trim().split_once("..").ok_or_else(form)?;
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text => text.replace('_', "").parse().map(Some).map_err(|_| form()),
    };
    let first: u64 = number(first)?.unwrap_or(0);
    match number(end)? {
        Some(end) if end <= first => {
            Err(format!("{first}..{end} has no rows: the end must be greater"))
        }
        end => Ok(RowRange { first, end: end.unwrap_or(0) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_half_open_and_has_rows() {
        let range = |text| parse_row_range(text).map(|range| (range.first, range.end));
        assert_eq!(range("5..10"), Ok((5, 10)));
        assert_eq!(range("1_000.."), Ok((1000, 0)));
        assert_eq!(range(" ..7 "), Ok((0, 7)));
        assert_eq!(range(".."), Ok((0, 0)));
        for bad in ["5", "a..b", "-1..5", "5..=7", ""] {
            assert!(range(bad).unwrap_err().contains("A..B"), "{bad}");
        }
        assert!(range("7..7").unwrap_err().contains("no rows"));
        assert!(range("..0").is_err());
    }
}
