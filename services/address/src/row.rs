//! Row addresses.

use std::fmt;

/// The location of a row in one version of a table: the fragment's id in the high 32 bits, and the row's
/// physical offset within the fragment in the low 32 bits. It is the same number as Lance's `_rowaddr`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RowAddr(u64);

impl RowAddr {
    /// Returns the address of the row at physical offset `offset` of fragment `fragment`.
    pub const fn new(fragment: u32, offset: u32) -> Self {
        Self((fragment as u64) << 32 | offset as u64)
    }

    /// Converts from Lance's `_rowaddr`.
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// Converts to Lance's `_rowaddr`.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns the fragment's id.
    pub const fn fragment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the row's physical offset within the fragment. Deleted rows before it are counted.
    pub const fn offset(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for RowAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for RowAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fragment(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_both_halves() {
        let addr = RowAddr::new(7, u32::MAX);
        assert_eq!(addr.to_u64(), 7 << 32 | 0xffff_ffff);
        assert_eq!((addr.fragment(), addr.offset()), (7, u32::MAX));
        assert_eq!(RowAddr::from_u64(addr.to_u64()), addr);
        assert_eq!(format!("{addr:?}"), "7:4294967295");
    }
}
