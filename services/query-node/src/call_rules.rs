//! The rules of each call of the query service: the maximum size of its messages, and how its streams use their
//! connection.
//!
//! A message is kept until its call is answered, and anyone may send one. Therefore each call accepts what its largest
//! legitimate request needs, and no more.

use connections::CallRule;
use wire::LOOKUP_BYTES_MAX;

/// Maximum number of keys of a Get, or of one batch of a Lookup. A Get of this many keys of 1 KiB is the largest gRPC
/// request, 10 MB.
pub const KEYS_MAX: usize = 10_000;

/// Maximum number of outstanding keys of one Lookup stream: enough for several of the largest batches.
pub const LOOKUP_CREDIT_KEYS: usize = 1 << 16;

/// Maximum number of rows of one key, if all rows of keys are wanted: as many as a Search returns.
pub const KEY_ROWS_MAX: usize = 10_000;

/// Maximum number of rows of the keys that are looked up together, if all rows of keys are wanted. Their addresses take
/// 1 MiB.
pub const BATCH_ROWS_MAX: usize = 1 << 16;

/// Maximum number of addresses of a Take. They take 8 MB.
pub const TAKE_ROWS_MAX: usize = 1_000_000;

/// Maximum size of a Search in bytes: its vector (400 KB for 100,000 dimensions), or its vectors (4 MB for 100 of
/// 10,000 dimensions), its filter, and its words. The words may be a long text: only distinct words count towards the
/// limit on words.
const SEARCH_BYTES_MAX: usize = 4 << 20;

/// Maximum size of a Count in bytes: that of its filter.
const COUNT_BYTES_MAX: usize = 1 << 20;

/// Maximum average size of the keys of a Get with [`KEYS_MAX`] keys, in bytes.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Maximum number of questions of a Tune. The mean recall of so many has a standard error of about 0.002 near 0.95, a
/// third of that of the default number, 256.
pub const QUESTIONS_MAX: usize = 2_000;

/// Maximum size of a Tune in bytes: enough for 2,000 questions of 1,024 dimensions, or 500 of 4,096.
const TUNE_BYTES_MAX: usize = 8_400_000;

/// Maximum size in bytes of the fields of a Get or Take other than its keys or addresses, and of a projection of a
/// Lookup: the names of table and columns.
pub const NAMES_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a Warm or Placement in bytes: enough for very many ranges of rows, or fragments.
const RANGES_BYTES_MAX: usize = 1 << 20;

/// Maximum size of a Get in bytes.
const GET_BYTES_MAX: usize = KEYS_MAX * KEY_BYTES_MAX + NAMES_BYTES_MAX;

/// Maximum size of a Take in bytes.
const TAKE_BYTES_MAX: usize = TAKE_ROWS_MAX * size_of::<u64>() + NAMES_BYTES_MAX;

/// Maximum size of the body of a plain HTTP call in bytes: enough for a filter with the ids of as many rows as a query
/// may return.
const HTTP_BODY_BYTES_MAX: usize = 32 << 20;

/// The maximum size of a gRPC request in bytes, over all calls: that of a Get.
pub const REQUEST_BYTES_MAX: usize = GET_BYTES_MAX;

const _: () = assert!(
    REQUEST_BYTES_MAX >= TAKE_BYTES_MAX
        && REQUEST_BYTES_MAX >= SEARCH_BYTES_MAX
        && REQUEST_BYTES_MAX >= TUNE_BYTES_MAX
        && REQUEST_BYTES_MAX >= RANGES_BYTES_MAX
);

/// Returns the rule for the call at `path`.
pub fn call_rule(path: &str) -> CallRule {
    let is_alone = ["/healthz", "/openapi.json"].contains(&path);
    if path.trim_start_matches('/').starts_with("v1/") || is_alone {
        let rule = CallRule::plain(HTTP_BODY_BYTES_MAX);
        // Answers of many rows, and the bytes of a blob, last for as long as their callers read.
        let call = path.trim_end_matches('/').rsplit('/').next();
        let is_long = matches!(call, Some("query" | "bytes"));
        return if is_long { rule.outlasting() } else { rule };
    }
    match path.strip_prefix("/bireme.query.v1.QueryService/") {
        Some("Search") => CallRule::new(SEARCH_BYTES_MAX),
        Some("Get") => CallRule::new(GET_BYTES_MAX),
        Some("GetStream") => CallRule::new(GET_BYTES_MAX).talking(),
        Some("Lookup") => CallRule::new(LOOKUP_BYTES_MAX).talking(),
        // Takes, Tunes and Warms last for as long as their callers read.
        Some("Take") => CallRule::new(TAKE_BYTES_MAX).outlasting(),
        Some("Tune") => CallRule::new(TUNE_BYTES_MAX).outlasting(),
        Some("Warm") => CallRule::new(RANGES_BYTES_MAX).outlasting(),
        Some("Placement") => CallRule::new(RANGES_BYTES_MAX),
        Some("Count") => CallRule::new(COUNT_BYTES_MAX),
        _ => CallRule::for_path(path),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::query::{GetRequest, TakeRequest};

    use super::*;

    #[test]
    fn the_limits_are_close_to_the_largest_requests() {
        let take = TakeRequest {
            table: "words".into(),
            row_addrs: vec![u64::MAX; TAKE_ROWS_MAX],
            ..Default::default()
        };
        let get = GetRequest {
            table: "words".into(),
            keys: vec!["k".repeat(1000); KEYS_MAX],
            ..Default::default()
        };
        let bytes_max = |call: &str| {
            call_rule(&format!("/bireme.query.v1.QueryService/{call}")).message_bytes_max
        };
        for (call, bytes) in [("Take", take.encoded_len()), ("Get", get.encoded_len())] {
            let max = bytes_max(call);
            assert!(bytes <= max && max < bytes + bytes / 10, "{call}: {bytes} of {max}");
        }
        assert_eq!([bytes_max("Status"), bytes_max("Nothing")], [64 << 10; 2]);
    }
}
