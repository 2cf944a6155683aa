//! The classes of types that a key column may have.

use std::fmt;

/// The class of a key column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Integers of any width, signed or not.
    Integer,
    /// Text: Utf8 or LargeUtf8.
    Text,
    /// Binary, LargeBinary or FixedSizeBinary.
    Bytes,
    /// Decimal128 or Decimal256 of one scale.
    Decimal {
        /// The number of digits after the point.
        scale: i8,
    },
    /// Date32 or Date64.
    Date,
    /// Timestamp of one unit, with a time zone or without.
    Timestamp {
        /// The number of digits of a second after the point: 0, 3, 6 or 9.
        digits: u8,
    },
}

impl KeyType {
    /// Returns the type's code, and its scale or digits, as they are persisted.
    pub(crate) fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Integer => [1, 0],
            Self::Text => [2, 0],
            Self::Bytes => [3, 0],
            Self::Decimal { scale } => [4, scale as u8],
            Self::Date => [5, 0],
            Self::Timestamp { digits } => [6, digits],
        }
    }

    pub(crate) fn from_bytes(bytes: [u8; 2]) -> Option<Self> {
        Some(match bytes {
            [1, 0] => Self::Integer,
            [2, 0] => Self::Text,
            [3, 0] => Self::Bytes,
            [4, scale] => Self::Decimal { scale: scale as i8 },
            [5, 0] => Self::Date,
            [6, digits @ (0 | 3 | 6 | 9)] => Self::Timestamp { digits },
            _ => return None,
        })
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer => f.write_str("integer"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("binary"),
            Self::Decimal { scale } => write!(f, "decimal with {scale} digits after the point"),
            Self::Date => f.write_str("date"),
            Self::Timestamp { digits } => write!(f, "timestamp with {digits} digits of a second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_survive_their_bytes() {
        for scale in [-3, 0, 38] {
            let all = [KeyType::Integer, KeyType::Text, KeyType::Bytes, KeyType::Date];
            for key_type in all.into_iter().chain([KeyType::Decimal { scale }]) {
                assert_eq!(KeyType::from_bytes(key_type.to_bytes()), Some(key_type));
            }
        }
        for digits in [0, 3, 6, 9] {
            let timestamp = KeyType::Timestamp { digits };
            assert_eq!(KeyType::from_bytes(timestamp.to_bytes()), Some(timestamp));
        }
        assert_eq!(KeyType::from_bytes([6, 1]), None);
        assert_eq!(KeyType::from_bytes([0, 0]), None);
        assert_eq!(KeyType::from_bytes([1, 1]), None);
    }
}
