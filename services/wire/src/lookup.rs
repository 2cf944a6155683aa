//! What both sides of a Lookup stream have to agree on.

use crate::query::lookup_batch::Keys;
use crate::query::{Integers, LookupBatch, Strings};

/// The largest message of a client, in bytes. Many small batches take far more memory than their bytes, so it is small.
pub const LOOKUP_BYTES_MAX: usize = 2 << 20;

/// The bytes of keys in Arrow that take one credit: how many keys they are is known only once they have been decoded.
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
