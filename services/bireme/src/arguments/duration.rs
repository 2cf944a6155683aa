//! Durations as people write them.

use std::time::Duration;

/// `100ms`, `30s`, `2m`; more than nothing.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("it must be longer than nothing".into()),
        Ok(time) => Ok(time),
        Err(error) => Err(format!("{error}; write it like 500ms, 30s or 2m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("30").unwrap_err().contains("30s"));
        assert!(parse_duration("0s").unwrap_err().contains("longer"));
    }
}
