//! Typed keys, and their hashes.
//!
//! A key is hashed in a canonical form, so that two values of the same class of types have the same hash exactly if
//! they are equal (apart from collisions), whatever width they are stored in:
//!
//! | class | canonical form |
//! |---|---|
//! | integer | 8 bytes, little-endian; negative ones with another seed, so that -1 is not 2^64 - 1 |
//! | text | the UTF-8 bytes |
//! | bytes | the bytes; binary of any length, also of a fixed one (UUIDs) |
//! | decimal | the unscaled number: 16 bytes, or 32 if it needs them; the scale is part of the seed |
//! | date | the days as 8 bytes; a Date64 that is no whole day: its milliseconds, with another seed |
//! | timestamp | the units since 1970-01-01 (UTC) as 8 bytes; the unit is part of the seed |
//!
//! Each class has a seed of its own, derived from the table's: the integer 5, the text "5" and the date 5 have
//! different hashes. The hash is XXH3 with 64 bits. Keys come from callers, so the seed must be random and
//! must stay secret.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::KeyIndexError;
use crate::key_type::KeyType;

/// A key. Null is not a key: rows whose key is null are not in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// The unscaled value of a decimal number.
    Decimal128 {
        /// The number's digits as an integer, without the decimal point.
        unscaled: i128,
        /// The number of digits after the point.
        scale: i8,
    },
    /// The unscaled value of a decimal number, as 32 bytes in two's complement, little-endian.
    Decimal256 {
        /// The number's digits as an integer, without the decimal point.
        unscaled: [u8; 32],
        /// The number of digits after the point.
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date32(i32),
    /// Milliseconds since 1970-01-01.
    Date64(i64),
    /// Units of a timestamp since 1970-01-01 (UTC).
    Timestamp {
        /// The number of units.
        units: i64,
        /// The number of digits of a second after the point: 0, 3, 6 or 9.
        digits: u8,
    },
}

/// Hashes the keys of one column.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    key_type: KeyType,
    seed: u64,
    /// The seed for negative integers, and for dates that are no whole days.
    other_seed: u64,
}

const MS_A_DAY: i64 = 86_400_000;

impl KeyHasher {
    /// Creates the hasher of a table's key column. `table_seed` is random, and the same in all runs of the table that
    /// are used together.
    pub fn new(table_seed: u64, key_type: KeyType) -> Self {
        let [code, scale] = key_type.to_bytes();
        let derived = |form: u8| xxh3_64_with_seed(&[code, scale, form], table_seed);
        Self { key_type, seed: derived(0), other_seed: derived(1) }
    }

    /// Returns the hash of a key.
    ///
    /// # Errors
    /// [`KeyIndexError::KeyType`] if the key is not of the column's type.
    #[inline]
    pub fn hash(&self, key: Key<'_>) -> Result<u64, KeyIndexError> {
        let found = key.key_type();
        if found != self.key_type {
            return Err(KeyIndexError::KeyType { expected: self.key_type, found });
        }
        Ok(match key {
            Key::Signed(value) if value < 0 => self.other_word(value),
            Key::Signed(value) => self.word(value),
            Key::Unsigned(value) => xxh3_64_with_seed(&value.to_le_bytes(), self.seed),
            Key::Text(text) => xxh3_64_with_seed(text.as_bytes(), self.seed),
            Key::Bytes(bytes) => xxh3_64_with_seed(bytes, self.seed),
            Key::Decimal128 { unscaled, .. } => self.decimal(unscaled),
            Key::Decimal256 { unscaled, .. } => match narrowed(&unscaled) {
                Some(unscaled) => self.decimal(unscaled),
                None => xxh3_64_with_seed(&unscaled, self.seed),
            },
            Key::Date32(days) => self.word(days.into()),
            Key::Date64(ms) if ms % MS_A_DAY == 0 => self.word(ms / MS_A_DAY),
            Key::Date64(ms) => self.other_word(ms),
            Key::Timestamp { units, .. } => self.word(units),
        })
    }

    fn word(&self, value: i64) -> u64 {
        xxh3_64_with_seed(&value.to_le_bytes(), self.seed)
    }

    fn other_word(&self, value: i64) -> u64 {
        xxh3_64_with_seed(&value.to_le_bytes(), self.other_seed)
    }

    fn decimal(&self, unscaled: i128) -> u64 {
        xxh3_64_with_seed(&unscaled.to_le_bytes(), self.seed)
    }
}

/// Returns the number that 32 bytes in two's complement stand for, if 16 bytes can hold it.
fn narrowed(bytes: &[u8; 32]) -> Option<i128> {
    let (low, high) = bytes.split_first_chunk::<16>()?;
    let value = i128::from_le_bytes(*low);
    let sign = if value < 0 { 0xff } else { 0 };
    high.iter().all(|&byte| byte == sign).then_some(value)
}

impl Key<'_> {
    /// Returns the class of the key's type.
    pub fn key_type(self) -> KeyType {
        match self {
            Self::Signed(_) | Self::Unsigned(_) => KeyType::Integer,
            Self::Text(_) => KeyType::Text,
            Self::Bytes(_) => KeyType::Bytes,
            Self::Decimal128 { scale, .. } | Self::Decimal256 { scale, .. } => {
                KeyType::Decimal { scale }
            }
            Self::Date32(_) | Self::Date64(_) => KeyType::Date,
            Self::Timestamp { digits, .. } => KeyType::Timestamp { digits },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 17;

    fn hash(key: Key<'_>) -> u64 {
        KeyHasher::new(SEED, key.key_type()).hash(key).unwrap()
    }

    fn wide(value: i128) -> [u8; 32] {
        let mut bytes = [if value < 0 { 0xff } else { 0 }; 32];
        bytes[..16].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    #[test]
    fn equal_values_agree_in_every_width() {
        assert_eq!(hash(Key::Signed(5)), hash(Key::Unsigned(5)));
        assert_eq!(hash(Key::Signed(i64::from(-3i8))), hash(Key::Signed(-3)));
        for value in [0, 7, -7, i128::MAX, i128::MIN] {
            let narrow = hash(Key::Decimal128 { unscaled: value, scale: 2 });
            assert_eq!(narrow, hash(Key::Decimal256 { unscaled: wide(value), scale: 2 }));
        }
        assert_eq!(hash(Key::Date32(-2)), hash(Key::Date64(-2 * MS_A_DAY)));
    }

    #[test]
    fn different_values_and_types_differ() {
        let mut beyond = wide(1);
        beyond[16] = 1;
        let keys = [
            Key::Signed(-1),
            Key::Unsigned(u64::MAX),
            Key::Unsigned(5),
            Key::Text("5"),
            Key::Bytes(b"5"),
            Key::Bytes(&5u64.to_le_bytes()),
            Key::Decimal128 { unscaled: 5, scale: 0 },
            Key::Decimal128 { unscaled: 5, scale: 1 },
            Key::Decimal128 { unscaled: 1, scale: 1 },
            Key::Decimal256 { unscaled: beyond, scale: 1 },
            Key::Date32(5),
            Key::Date64(5),
            Key::Timestamp { units: 5, digits: 3 },
            Key::Timestamp { units: 5, digits: 6 },
            Key::Text(""),
            Key::Bytes(b""),
        ];
        let hashes: std::collections::HashSet<u64> = keys.iter().map(|&key| hash(key)).collect();
        assert_eq!(hashes.len(), keys.len());
    }

    /// Persisted runs depend on these values.
    #[test]
    fn hashes_do_not_change() {
        let hashes = [
            Key::Signed(1),
            Key::Signed(-1),
            Key::Text("bireme"),
            Key::Bytes(&[7; 16]),
            Key::Decimal128 { unscaled: 150, scale: 2 },
            Key::Date32(20_000),
            Key::Timestamp { units: 20_000, digits: 6 },
        ];
        assert_eq!(
            hashes.map(hash),
            [
                7_783_817_100_545_191_321,
                16_948_314_885_414_432_297,
                817_275_505_464_607_107,
                4_571_255_711_218_638_757,
                10_577_150_983_516_663_108,
                7_859_239_550_377_155_357,
                12_503_691_228_147_943_525,
            ]
        );
    }

    #[test]
    fn seeds_change_hashes_and_wrong_types_are_refused() {
        let hasher = |seed| KeyHasher::new(seed, KeyType::Text);
        assert_ne!(hasher(1).hash(Key::Text("a")), hasher(2).hash(Key::Text("a")));
        let refused = hasher(1).hash(Key::Signed(1)).unwrap_err();
        assert_eq!(refused.to_string(), "the key is of type integer, the key column of type text");
    }
}
