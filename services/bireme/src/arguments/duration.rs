//! Durations such as `500ms`.

use std::time::Duration;

/// The expected form of a duration, with an example.
pub const DURATION_EXPECTED: &str = "expected a duration, such as \"500ms\" or \"10s\"";

/// Parses a duration above 0, such as `100ms`, `30s` or `2m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("it must be longer than 0".into()),
        Ok(time) => Ok(time),
        Err(_) => Err(DURATION_EXPECTED.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["30", "soon", "10 parsecs", ""] {
            assert_eq!(parse_duration(bad), Err(DURATION_EXPECTED.into()), "{bad}");
        }
        assert!(parse_duration("0s").unwrap_err().contains("longer"));
    }
}
