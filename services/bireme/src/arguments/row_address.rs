//! Row addresses: `4294967297`, or `1:1` for fragment and offset.

use address::RowAddr;

/// Parses a row address in either form.
pub fn parse_row_address(text: &str) -> Result<RowAddr, String> {
    let half = |digits: &str| digits.parse::<u32>().ok();
    let parsed = match text.split_once(':') {
        Some((fragment, offset)) => half(fragment)
            .zip(half(offset))
            .map(|(fragment, offset)| RowAddr::new(fragment, offset)),
        None => text.parse().ok().map(RowAddr::from_u64),
    };
    parsed.ok_or_else(|| {
        "it is not a row address; write the number in `_rowaddr`, or FRAGMENT:OFFSET".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_row() {
        assert_eq!(parse_row_address("4294967298"), Ok(RowAddr::new(1, 2)));
        assert_eq!(parse_row_address("1:2"), Ok(RowAddr::new(1, 2)));
        assert_eq!(parse_row_address("0"), Ok(RowAddr::new(0, 0)));
        for bad in ["", "x", "-1", "1:", ":1", "1:2:3", "4294967296:0", "18446744073709551616"] {
            assert!(parse_row_address(bad).unwrap_err().contains("FRAGMENT:OFFSET"), "{bad}");
        }
    }
}
