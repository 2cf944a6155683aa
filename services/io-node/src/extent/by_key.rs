//! Hash maps whose keys are extents' names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use address::ExtentKey;

/// A hash map whose keys are extents' names.
pub type ByKey<T> = HashMap<ExtentKey, T, BuildHasherDefault<KeyHasher>>;

/// Hashes names. A pack's key is a hash already, so combining it with the chunk's number spreads well enough.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, chunk: u32) {
        self.write_u64(u64::from(chunk));
    }

    fn write_u64(&mut self, word: u64) {
        // An odd constant with well-mixed bits: 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, pack: u128) {
        self.write_u64(pack as u64);
    }
}
