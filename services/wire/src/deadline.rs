//! Reads the timeout that a caller gives, and bounds how long a node works for one call.

use std::time::Duration;

use tonic::codegen::http::HeaderMap;

/// The longest deadline of a call, and of a batch. A longer one is cut to this. A caller with more work divides it into
/// several calls, or uses a stream, whose messages have a deadline each. An answer that is sent in pieces, or that
/// reports progress, may take longer than this: here each piece has a deadline.
pub const DEADLINE_MAX: Duration = Duration::from_secs(300);

/// Returns the timeout that the caller of a request gives in the header `grpc-timeout`: up to eight digits and a unit.
/// It may be longer than [`DEADLINE_MAX`]. Returns `None` if the header is missing or invalid.
pub fn asked_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.checked_mul(3600)?),
        "M" => Duration::from_secs(count.checked_mul(60)?),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            asked_timeout(&headers)
        };
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("5S"), Some(Duration::from_secs(5)));
        assert_eq!(read("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!([read("5"), read("S"), read("5x"), read("999999999S"), read("+5S")], [None; 5]);
        assert_eq!(asked_timeout(&HeaderMap::new()), None);
    }
}
