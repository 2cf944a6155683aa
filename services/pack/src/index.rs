//! The part of an extent that stays in RAM: where its rows are, how they are encoded, and the checksums of its sectors.
//!
//! Invariants, which [`ExtentIndex::from_bytes`] checks again:
//! - Every row has at least one byte and lies within the extent's sectors.
//! - An extent is shorter than 4 GiB.
//! - There is a checksum for each sector.
//!
//! The index knows neither the columns' types, which are in [`crate::PackLayout`], nor where on a drive the extent is.
//!
//! RAM, in addition to a constant: 4 bytes for each sector (0.1 % of the extent), 2.25 bytes for each row of variable
//! width (10.25 for a row of 65,535 bytes or more), and 1 bit for each row of an extent of [`Form::Plain`] with nulls.

use address::SECTOR_BYTES;

use crate::PackError;
use crate::checksum::crc32c;
use crate::row_placement::{FixedRows, RowSpan, SectorSpan, VariableRows};
use crate::shape::bit;

/// The encoding of an extent's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// The values of one fixed-width column. A row is the value's little-endian bytes, as in Arrow, except that a
    /// boolean is a byte. Nulls are in the index.
    Plain = 0,
    /// The general form: a null bitmap, a fixed part and a variable part.
    Row = 1,
    /// One binary or text column: a flag byte (0 null, 1 valid), then the value.
    Value = 2,
}

/// The placement of an extent's rows, from which the start of each row follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowPlacement {
    Fixed(FixedRows),
    Variable(VariableRows),
}

/// One encoded chunk of one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The part that stays in RAM.
    pub index: ExtentIndex,
    /// The part that is written to the drive: whole sectors, with zeros between and after rows.
    pub bytes: Vec<u8>,
}

/// The position of each row of an extent, and the checksum of each sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentIndex {
    pub(crate) form: Form,
    pub(crate) rows: u32,
    pub(crate) placement: RowPlacement,
    /// The CRC32C of each sector.
    pub(crate) checksums: Box<[u32]>,
    /// A bitmap of the rows that are not null, least significant bit first. `None` if no row is null, or if the form is
    /// not [`Form::Plain`].
    pub(crate) validity: Option<Box<[u8]>>,
}

impl ExtentIndex {
    pub(crate) fn new(
        form: Form,
        rows: u32,
        placement: RowPlacement,
        bytes: &[u8],
        validity: Option<Box<[u8]>>,
    ) -> Self {
        let checksums = bytes.chunks(SECTOR_BYTES).map(crc32c).collect();
        Self { form, rows, placement, checksums, validity }
    }

    /// Returns the encoding of the rows.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the number of sectors.
    pub fn sectors(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// Returns the byte range of the row; `None` if the extent has no such row.
    pub fn span(&self, row: u32) -> Option<RowSpan> {
        if row >= self.rows {
            return None;
        }
        match &self.placement {
            RowPlacement::Fixed(fixed) => {
                Some(RowSpan { offset: fixed.start(row) as u32, len: fixed.width })
            }
            RowPlacement::Variable(variable) => variable.span(row),
        }
    }

    /// Returns the byte range of the row, given that of the row before it. Cheaper than [`span`](Self::span) for rows
    /// of variable width, because no lengths are added up.
    pub fn span_after(&self, before: RowSpan, row: u32) -> Option<RowSpan> {
        match &self.placement {
            RowPlacement::Fixed(_) => self.span(row),
            RowPlacement::Variable(variable) => variable.span_after(before, row),
        }
    }

    /// Returns the length of the row's span. Cheaper than [`span`](Self::span), which may add up the lengths of
    /// preceding rows.
    pub fn len_of(&self, row: u32) -> Option<u32> {
        match &self.placement {
            RowPlacement::Fixed(fixed) => (row < self.rows).then_some(fixed.width),
            RowPlacement::Variable(variable) => variable.len_of(row),
        }
    }

    /// Loads what [`span`](Self::span) and [`len_of`](Self::len_of) read for the row into the CPU's cache. If several rows
    /// are prefetched, their memory latencies overlap.
    pub fn prefetch_row(&self, row: u32) {
        if let RowPlacement::Variable(variable) = &self.placement {
            variable.prefetch(row);
        }
    }

    /// Returns the sectors that contain the row; `None` if the extent has no such row.
    pub fn sectors_of(&self, row: u32) -> Option<SectorSpan> {
        self.span(row).map(RowSpan::sectors)
    }

    /// Returns whether the index records the row as null. Only an index of [`Form::Plain`] records nulls. In the other
    /// forms, nulls are in the rows' bytes.
    pub fn is_null(&self, row: u32) -> bool {
        let bits = self.validity.as_ref().filter(|_| row < self.rows);
        bits.is_some_and(|bits| !bit(bits, row as usize))
    }

    /// Checks the bytes that were read from sector `sector` of the extent. Sectors are numbered from 0.
    ///
    /// # Errors
    /// [`PackError::Checksum`] if the bytes don't match the sector's checksum, or the extent has no such sector.
    pub fn check(&self, sector: u32, bytes: &[u8]) -> Result<(), PackError> {
        match self.checksums.get(sector as usize) {
            Some(&sum) if bytes.len() == SECTOR_BYTES && crc32c(bytes) == sum => Ok(()),
            _ => Err(PackError::Checksum { sector }),
        }
    }

    /// Loads a sector's checksum into the CPU's cache. If the checksums of several sectors are prefetched, their memory
    /// latencies overlap, whereas [`check`](Self::check) would wait for each.
    pub fn prefetch_sum(&self, sector: u32) {
        std::hint::black_box(self.checksums.get(sector as usize).copied());
    }

    /// Returns the RAM that the index takes, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let rows = match &self.placement {
            RowPlacement::Fixed(_) => 0,
            RowPlacement::Variable(variable) => variable.ram_bytes(),
        };
        let validity = self.validity.as_ref().map_or(0, |bits| bits.len());
        size_of::<Self>() + size_of_val(&*self.checksums) + rows + validity
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
        let rows = RowPlacement::Fixed(FixedRows::new(4096).unwrap());
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
