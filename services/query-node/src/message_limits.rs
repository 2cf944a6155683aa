//! The maximum message size of each call.
//!
//! A message is kept until its call is answered, and anyone may send one. Therefore each call accepts what its largest
//! legitimate request needs, and no more.

use connections::CallRule;

use crate::config::Limits;

/// Maximum size of a Search in bytes: its vector (400 KB for 100,000 dimensions), its filter, and its words. The words
/// may be a long text: only distinct words count towards the limit on words.
const SEARCH_BYTES_MAX: usize = 4 << 20;

/// Maximum average size of a Get's keys, in bytes.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Maximum size in bytes of a request's other fields: the names of its table and columns.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a Warm or Placement in bytes: enough for very many ranges of rows, or fragments.
const RANGES_BYTES_MAX: usize = 1 << 20;

/// The maximum message sizes that follow from the configured limits, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    get: usize,
    take: usize,
}

impl MessageLimits {
    /// Computes the sizes of the largest requests that `limits` allow.
    pub fn of(limits: &Limits) -> Self {
        let bytes = |count: usize, each: usize| count.saturating_mul(each) + NAMES_BYTES_MAX;
        let get = bytes(limits.keys_max.min(usize::MAX >> 11), KEY_BYTES_MAX);
        let take = bytes(limits.take_rows_max.min(usize::MAX >> 11), size_of::<u64>());
        Self { get, take }
    }

    /// Returns the maximum over all calls.
    pub fn largest(self) -> usize {
        [self.get, self.take, SEARCH_BYTES_MAX, RANGES_BYTES_MAX].into_iter().max().unwrap_or(0)
    }

    /// Returns the rule for the call at `path`.
    pub fn rule(self, path: &str) -> CallRule {
        match path.strip_prefix("/bireme.query.v1.QueryService/") {
            Some("Search") => CallRule::new(SEARCH_BYTES_MAX),
            Some("Get") => CallRule::new(self.get),
            Some("GetStream") => CallRule::new(self.get).talking(),
            // Takes and Warms last for as long as their callers read.
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
    fn the_limits_are_close_to_the_largest_requests() {
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
