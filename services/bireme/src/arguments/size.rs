//! Sizes such as `512MiB`.

use bytesize::ByteSize;

/// The expected form of a size, with an example.
pub const SIZE_EXPECTED: &str = "expected a size, such as \"512MiB\" or \"100GB\"";

/// Parses a size, such as `512MiB`, `1.5 GB` or `4096`.
pub fn parse_size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| SIZE_EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("512MiB"), Ok(ByteSize::mib(512)));
        assert_eq!(parse_size("1.5 GB"), Ok(ByteSize::mb(1500)));
        assert_eq!(parse_size("0"), Ok(ByteSize::b(0)));
        for bad in ["much", "5XB", "-1GiB", ""] {
            assert_eq!(parse_size(bad), Err(SIZE_EXPECTED.to_owned()), "{bad}");
        }
    }
}
