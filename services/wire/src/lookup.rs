//! The limits of a Lookup stream that client and node compute alike.

use crate::query::lookup_batch::Keys;
use crate::query::{Integers, LookupBatch, Strings};

/// The largest message of a client, in bytes. It is small because many small batches take far more memory than their
/// encoded bytes. As text, the 10,000 keys of the largest batch may have 200 bytes each.
pub const LOOKUP_BYTES_MAX: usize = 2 << 20;

/// The maximum number of open projections of a stream.
pub const LOOKUP_PROJECTIONS_MAX: usize = 64;

/// The number of encoded bytes that take one credit if keys are in Arrow. The number of keys is known only after they
/// have been decoded.
const ARROW_KEY_BYTES: usize = 16;

impl LookupBatch {
    /// Returns the credits that the batch takes: at least one.
    pub fn credits(&self) -> usize {
        let keys = match &self.keys {
            Some(Keys::Integers(Integers { values })) => values.len(),
            Some(Keys::Strings(Strings { lengths, .. })) => lengths.len(),
            Some(Keys::Arrow(stream)) => stream.len().div_ceil(ARROW_KEY_BYTES),
            None => 0,
        };
        keys.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_a_credit_for_each_key_and_at_least_one() {
        let credits = |keys| LookupBatch { id: 1, handle: 1, keys }.credits();
        assert_eq!(credits(None), 1);
        assert_eq!(credits(Some(Keys::Integers(Integers { values: vec![7; 3] }))), 3);
        let strings = Strings { data: "abc".into(), lengths: vec![1, 2] };
        assert_eq!(credits(Some(Keys::Strings(strings))), 2);
        assert_eq!(credits(Some(Keys::Strings(Strings::default()))), 1);
        assert_eq!(credits(Some(Keys::Arrow(vec![0; 33].into()))), 3);
    }
}
