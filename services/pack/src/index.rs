//! What stays in RAM of an extent: where its rows are, what they are encoded as, and the checksums
//! of its sectors.
//!
//! Invariants, which [`ExtentIndex::from_bytes`] proves again: every row has at least one byte and
//! lies within the extent's sectors; an extent is shorter than 4 GiB; there is a checksum for each
//! sector. It doesn't know the columns' types (that is the [`crate::PackLayout`]) nor where on a
//! drive the extent is.
//!
//! RAM, beside a constant: 4 bytes a sector (0.1 % of the bytes), 2.25 bytes a row of variable
//! width (10.25 for one of 64 KiB or more), and a bit a row of a solo column that has nulls.

use address::SECTOR_BYTES;

use crate::PackError;
use crate::checksum::crc32c;
use crate::placement::{FixedRows, RowSpan, SectorSpan, VariableRows};
use crate::shape::bit;

/// How an extent's rows are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// The bare values of one fixed-width column: a row is its little-endian bytes as Arrow has
    /// them (a boolean is a byte). Nulls are in the index.
    Plain = 0,
    /// The general form: a null bitmap, a fixed part, a variable part.
    Row = 1,
    /// One binary or text column: a flag byte (0 null, 1 valid), then the value.
    Value = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Fixed(FixedRows),
    Variable(VariableRows),
}

/// One chunk of one pack, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// What stays in RAM.
    pub index: ExtentIndex,
    /// What goes to the drive: whole sectors, zeros where no row is.
    pub bytes: Vec<u8>,
}

/// Where each row of an extent is, and what proves its sectors right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentIndex {
    pub(crate) form: Form,
    pub(crate) rows: u32,
    pub(crate) placement: Placement,
    /// CRC32C of each sector.
    pub(crate) sums: Box<[u32]>,
    /// A bit a row, least significant first, set where the row is not null; only if one is.
    pub(crate) validity: Option<Box<[u8]>>,
}

impl ExtentIndex {
    pub(crate) fn new(
        form: Form,
        rows: u32,
        placement: Placement,
        bytes: &[u8],
        validity: Option<Box<[u8]>>,
    ) -> Self {
        let sums = bytes.chunks(SECTOR_BYTES).map(crc32c).collect();
        Self { form, rows, placement, sums, validity }
    }

    /// How the rows are encoded.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Rows of the chunk.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Sectors of the extent.
    pub fn sectors(&self) -> u32 {
        self.sums.len() as u32
    }

    /// The row's bytes, exactly; `None` if the extent doesn't have it.
    pub fn span(&self, row: u32) -> Option<RowSpan> {
        if row >= self.rows {
            return None;
        }
        match &self.placement {
            Placement::Fixed(fixed) => {
                Some(RowSpan { offset: fixed.start(row) as u32, len: fixed.width })
            }
            Placement::Variable(variable) => variable.span(row),
        }
    }

    /// The length of the row's span alone, which takes no walk.
    pub fn len_of(&self, row: u32) -> Option<u32> {
        match &self.placement {
            Placement::Fixed(fixed) => (row < self.rows).then_some(fixed.width),
            Placement::Variable(variable) => variable.len_of(row),
        }
    }

    /// The sectors to read for the row; `None` if the extent doesn't have it.
    pub fn sectors_of(&self, row: u32) -> Option<SectorSpan> {
        self.span(row).map(RowSpan::sectors)
    }

    /// The bytes of the row's value alone, without its flag, so that a blob can be sized and read in
    /// ranges; a null has none. `None` if the form isn't [`Form::Value`] or there is no such row.
    pub fn value_span(&self, row: u32) -> Option<RowSpan> {
        let span = self.span(row).filter(|_| self.form == Form::Value)?;
        Some(RowSpan { offset: span.offset + 1, len: span.len - 1 })
    }

    /// Whether the row's value is known to be null without reading it: only in [`Form::Plain`].
    pub fn is_null(&self, row: u32) -> bool {
        let bits = self.validity.as_ref().filter(|_| row < self.rows);
        bits.is_some_and(|bits| !bit(bits, row as usize))
    }

    /// Checks the bytes read for a sector, counted from the extent's start.
    ///
    /// # Errors
    /// [`PackError::Checksum`] if they aren't the bytes written, or the extent has no such sector.
    pub fn check(&self, sector: u32, bytes: &[u8]) -> Result<(), PackError> {
        match self.sums.get(sector as usize) {
            Some(&sum) if bytes.len() == SECTOR_BYTES && crc32c(bytes) == sum => Ok(()),
            _ => Err(PackError::Checksum { sector }),
        }
    }

    /// Brings a sector's checksum near. Asked for some sectors at a time, these reads of memory overlap;
    /// [`check`](Self::check) alone waits for each.
    pub fn prefetch_sum(&self, sector: u32) {
        std::hint::black_box(self.sums.get(sector as usize).copied());
    }

    /// RAM that the index takes.
    pub fn ram_bytes(&self) -> usize {
        let rows = match &self.placement {
            Placement::Fixed(_) => 0,
            Placement::Variable(variable) => variable.ram_bytes(),
        };
        let validity = self.validity.as_ref().map_or(0, |bits| bits.len());
        size_of::<Self>() + size_of_val(&*self.sums) + rows + validity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_costs_the_sectors_it_touches() {
        let sectors = |offset, len| {
            let span = RowSpan { offset, len }.sectors();
            (span.first, span.count)
        };
        assert_eq!(sectors(0, 4096), (0, 1));
        assert_eq!(sectors(4095, 1), (0, 1));
        assert_eq!(sectors(4095, 2), (0, 2));
        assert_eq!(sectors(4096, 8193), (1, 3));
        assert_eq!(sectors(u32::MAX, u32::MAX), (0xf_ffff, 0x10_0001));
    }

    #[test]
    fn a_sector_is_checked_whole() {
        let bytes = vec![7u8; 8192];
        let rows = Placement::Fixed(FixedRows::new(4096).unwrap());
        let index = ExtentIndex::new(Form::Plain, 2, rows, &bytes, Some([0b01].into()));
        assert!(index.check(1, &bytes[..4096]).is_ok());
        assert!(index.check(1, &bytes[..4095]).is_err());
        assert!(index.check(2, &bytes[..4096]).is_err());
        let mut torn = bytes[..4096].to_vec();
        torn[4095] ^= 1;
        let error = index.check(1, &torn).unwrap_err();
        assert_eq!(error.to_string(), "sector 1 of the extent does not match its checksum");
        assert_eq!([0, 1, 2].map(|row| index.is_null(row)), [false, true, false]);
    }
}
