//! Reads which versions of a table a caller accepts, from the headers of LanceDB's clients. A client must find on every
//! node what it has written, or has seen on another node.

use std::time::SystemTime;

use axum::http::HeaderMap;
use wire::{Fault, Reason};

/// The lower bounds that a request sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The lowest version.
    pub version: u64,
    /// The node must have looked for the latest version at this time or later.
    pub since: Option<SystemTime>,
}

impl Freshness {
    /// Reads the bounds of a request.
    ///
    /// # Errors
    /// A fault if a header is malformed.
    pub fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let mut version = 0;
        for name in ["x-lancedb-min-version", "x-lancedb-min-read-version"] {
            let bound =
                text(headers, name).map(|text| text.parse::<u64>().map_err(|_| bad(name, text)));
            version = version.max(bound.transpose()?.unwrap_or(0));
        }
        let name = "x-lancedb-min-timestamp";
        let since = text(headers, name).map(|text| {
            // humantime reads only times in UTC that end with `Z`.
            let utc = text.strip_suffix("+00:00").map(|time| format!("{time}Z"));
            humantime::parse_rfc3339(utc.as_deref().unwrap_or(text)).map_err(|_| bad(name, text))
        });
        Ok(Self { version, since: since.transpose()? })
    }

    /// Returns whether a version is too old, if the latest one was last looked for at `followed`.
    pub fn is_behind(self, version: u64, followed: SystemTime) -> bool {
        version < self.version || self.since.is_some_and(|since| followed < since)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn bad(name: &str, text: &str) -> Fault {
    let what = format!(
        "the header `{name}` is `{text}`; send a version's number, or a time like 2026-11-25T08:30:00Z"
    );
    Fault::new(Reason::BadArgument, what)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_largest_bound_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(Freshness::of(&headers), Ok(Freshness::default()));
        headers.insert("x-lancedb-min-version", "3".parse().unwrap());
        headers.insert("x-lancedb-min-read-version", "7".parse().unwrap());
        let time = "2026-11-25T08:30:00.123456789+00:00";
        headers.insert("x-lancedb-min-timestamp", time.parse().unwrap());
        let freshness = Freshness::of(&headers).unwrap();
        assert_eq!(freshness.version, 7);
        let since = freshness.since.unwrap();
        let whole = humantime::parse_rfc3339("2026-11-25T08:30:00Z").unwrap();
        assert_eq!(since.duration_since(whole).unwrap(), Duration::from_nanos(123_456_789));
        assert!(!freshness.is_behind(7, since));
        assert!(freshness.is_behind(6, since) && freshness.is_behind(7, whole));
        headers.insert("x-lancedb-min-timestamp", "yesterday".parse().unwrap());
        assert!(Freshness::of(&headers).is_err());
    }
}
