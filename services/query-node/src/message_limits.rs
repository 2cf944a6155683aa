//! The largest message of each call.
//!
//! A message is kept until its call is answered, and anyone may send one. So each call takes what its largest
//! legitimate request needs, and no more.

use connections::CallRule;

use crate::config::Limits;

/// A Search, in bytes: its vector (100,000 dimensions have 400 KB), its filter, and its words, which may be a long text:
/// they are counted once each, however often they come.
const SEARCH_BYTES_MAX: usize = 4 << 20;

/// A key of a Get, in bytes, on average at most.
const KEY_BYTES_MAX: usize = 1 << 10;

/// What a request has beside its keys or addresses, in bytes: names of its table and columns.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// A Warm or a Placement, in bytes: very many ranges of rows, or fragments.
const RANGES_BYTES_MAX: usize = 1 << 20;

/// The largest messages by the limits that are configured, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    get: usize,
    take: usize,
}

impl MessageLimits {
    /// Of requests for as much as `limits` allow.
    pub fn of(limits: &Limits) -> Self {
        let of = |count: usize, each: usize| count.saturating_mul(each) + NAMES_BYTES_MAX;
        let get = of(limits.keys_max.min(usize::MAX >> 11), KEY_BYTES_MAX);
        let take = of(limits.take_rows_max.min(usize::MAX >> 11), size_of::<u64>());
        Self { get, take }
    }

    /// The largest of all.
    pub fn largest(self) -> usize {
        [self.get, self.take, SEARCH_BYTES_MAX, RANGES_BYTES_MAX].into_iter().max().unwrap_or(0)
    }

    /// What holds for the call at `path`.
    pub fn rule(self, path: &str) -> CallRule {
        match path.strip_prefix("/bireme.query.v1.QueryService/") {
            Some("Search") => CallRule::new(SEARCH_BYTES_MAX),
            Some("Get") => CallRule::new(self.get),
            Some("GetStream") => CallRule::new(self.get).talking(),
            // They go on for as long as their callers read.
            Some("Take") => CallRule::new(self.take).outlasting(),
            Some("Warm") => CallRule::new(RANGES_BYTES_MAX).outlasting(),
            Some("Placement") => CallRule::new(RANGES_BYTES_MAX),
            _ => CallRule::for_path(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::query::{GetRequest, TakeRequest};

    use super::*;

    #[test]
    fn the_largest_requests_fit_and_no_much_larger_ones() {
        let limits = Limits::default();
        let take = TakeRequest {
            table: "words".into(),
            row_addrs: vec![u64::MAX; limits.take_rows_max],
            ..Default::default()
        };
        let get = GetRequest {
            table: "words".into(),
            keys: vec!["k".repeat(1000); limits.keys_max],
            ..Default::default()
        };
        let bytes_max = |call: &str| {
            let path = format!("/bireme.query.v1.QueryService/{call}");
            MessageLimits::of(&limits).rule(&path).message_bytes_max
        };
        for (call, bytes) in [("Take", take.encoded_len()), ("Get", get.encoded_len())] {
            let max = bytes_max(call);
            assert!(bytes <= max && max < bytes + bytes / 10, "{call}: {bytes} of {max}");
        }
        assert_eq!([bytes_max("Status"), bytes_max("Nothing")], [64 << 10; 2]);
        let all = Limits { keys_max: usize::MAX, take_rows_max: usize::MAX, ..limits };
        assert!(MessageLimits::of(&all).largest() > 1 << 50, "no overflow");
    }
}
