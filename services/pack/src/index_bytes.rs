//! The byte format in which an [`ExtentIndex`] is recorded on a drive, in a journal. Little-endian:
//!
//! ```text
//!  0  u32  magic "BXI1" (the last byte is the version)
//!  4  u8   form: 0 plain, 1 row, 2 value
//!  5  u8   1 if there is a validity bitmap, else 0
//!  6  u16  0
//!  8  u32  rows
//! 12  u32  sectors
//! 16  u32  width of a row; 0 if it varies
//! 20  u32  long rows (of 65,535 bytes or more); 0 if the width is constant
//! 24  u32  × sectors    CRC32C of each
//!     u16  × rows       length of each, 65,535 for a long row; only if the width varies
//!     u32  × long rows  their lengths, in order
//!     u8   × rows / 8   validity, rounded up; only if there is one
//!     u32  CRC32C of all bytes before
//! ```
//!
//! The rows' start offsets are not stored. Reading computes them from the lengths, and checks that the rows fit the
//! sectors.

use address::sectors_for;

use crate::PackError;
use crate::checksum::crc32c;
use crate::index::{ExtentIndex, Form, RowPlacement};
use crate::row_placement::{FixedRows, LONG, SECTORS_MAX, VariableRows};

const MAGIC: u32 = u32::from_le_bytes(*b"BXI1");

/// The length of the fields before the checksums.
const HEAD_BYTES: usize = 24;

impl ExtentIndex {
    /// Encodes the index.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (width, variable) = match &self.placement {
            RowPlacement::Fixed(fixed) => (fixed.width, None),
            RowPlacement::Variable(variable) => (0, Some(variable)),
        };
        let long = variable.map_or(0, |v| v.long.len() as u32);
        let mut out = Vec::with_capacity(self.bytes_len());
        out.extend(MAGIC.to_le_bytes());
        out.extend([self.form as u8, u8::from(self.validity.is_some()), 0, 0]);
        for word in [self.rows, self.sectors(), width, long] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.checksums.iter().flat_map(|sum| sum.to_le_bytes()));
        if let Some(variable) = variable {
            out.extend(variable.lens.iter().flat_map(|len| len.to_le_bytes()));
            out.extend(variable.long.iter().flat_map(|(_, len)| len.to_le_bytes()));
        }
        out.extend(self.validity.iter().flatten());
        let sum = crc32c(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Returns the length of [`to_bytes`](ExtentIndex::to_bytes).
    pub fn bytes_len(&self) -> usize {
        let rows = match &self.placement {
            RowPlacement::Fixed(_) => 0,
            RowPlacement::Variable(variable) => variable.lens.len() * 2 + variable.long.len() * 4,
        };
        HEAD_BYTES
            + self.checksums.len() * 4
            + rows
            + self.validity.as_ref().map_or(0, |bits| bits.len())
            + 4
    }

    /// Decodes the bytes of [`to_bytes`](ExtentIndex::to_bytes). Checks not only the checksum, but also every invariant
    /// that other methods rely on.
    ///
    /// # Errors
    /// [`PackError::CorruptIndex`] if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PackError> {
        read(bytes).map_err(|reason| PackError::CorruptIndex { reason })
    }
}

fn read(bytes: &[u8]) -> Result<ExtentIndex, &'static str> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or("truncated")?;
    if crc32c(body) != u32::from_le_bytes(*sum) {
        return Err("wrong checksum");
    }
    let mut reader = Reader(body);
    if reader.u32()? != MAGIC {
        return Err("not an index of a known version");
    }
    let (form, has_validity) = match *reader.take(4)? {
        [form @ 0..=2, has_validity @ 0..=1, 0, 0] => {
            ([Form::Plain, Form::Row, Form::Value][usize::from(form)], has_validity == 1)
        }
        _ => return Err("unknown form or flag"),
    };
    let [rows, sectors, width, long_rows] =
        [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
    let checksums: Box<[u32]> = reader.words(sectors)?.collect();
    let (placement, end) = match width {
        0 => variable(rows, long_rows, &mut reader)?,
        _ if long_rows > 0 => return Err("long rows of constant width"),
        _ => {
            let fixed = FixedRows::new(width).ok_or("impossible width")?;
            (RowPlacement::Fixed(fixed), fixed.end(rows))
        }
    };
    if sectors_for(end) != u64::from(sectors) || u64::from(sectors) > SECTORS_MAX {
        return Err("rows do not fit the sectors");
    }
    match (form, &placement) {
        (Form::Plain, RowPlacement::Fixed(_)) | (Form::Value, RowPlacement::Variable(_)) => {}
        (Form::Row, _) => {}
        _ => return Err("placement does not fit the form"),
    }
    let validity = match has_validity {
        true if form != Form::Plain => return Err("a validity bitmap beside rows that have one"),
        true => Some(reader.take(rows.div_ceil(8) as usize)?.into()),
        false => None,
    };
    if !reader.0.is_empty() {
        return Err("bytes after the end");
    }
    Ok(ExtentIndex { form, rows, placement, checksums, validity })
}

fn variable(
    rows: u32,
    long_rows: u32,
    reader: &mut Reader<'_>,
) -> Result<(RowPlacement, u64), &'static str> {
    let lens = reader.take((rows as usize).checked_mul(2).ok_or("truncated")?)?;
    let mut long = reader.words(long_rows)?;
    let mut lens_of_rows = Vec::with_capacity(rows as usize);
    for len in lens.as_chunks::<2>().0 {
        lens_of_rows.push(match u16::from_le_bytes(*len) {
            LONG => match long.next() {
                Some(len) if len >= u32::from(LONG) => len,
                _ => return Err("a long row without a length"),
            },
            short => u32::from(short),
        });
    }
    if long.next().is_some() {
        return Err("a length without a long row");
    }
    let (rows, end) = VariableRows::new(lens_of_rows.into_iter()).ok_or("impossible lengths")?;
    Ok((RowPlacement::Variable(rows), end))
}

/// The bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.words(1)?.next().ok_or("truncated")
    }

    fn words(&mut self, count: u32) -> Result<impl Iterator<Item = u32> + 'a, &'static str> {
        let bytes = self.take((count as usize).checked_mul(4).ok_or("truncated")?)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ExtentIndex {
        let (rows, end) = VariableRows::new([3u32, 70_000, 5].into_iter()).unwrap();
        let bytes = vec![0; sectors_for(end) as usize * 4096];
        ExtentIndex::new(Form::Row, 3, RowPlacement::Variable(rows), &bytes, None)
    }

    /// Decodes `bytes` with a corrected checksum.
    fn with_right_checksum(mut bytes: Vec<u8>) -> Result<ExtentIndex, PackError> {
        let body = bytes.len() - 4;
        let sum = crc32c(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&sum);
        ExtentIndex::from_bytes(&bytes)
    }

    #[test]
    fn the_bytes_match_the_drawing() {
        let bytes = index().to_bytes();
        assert_eq!(&bytes[..8], b"BXI1\x01\0\0\0");
        assert_eq!(&bytes[8..24], [3, 0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        let lens = 24 + 18 * 4;
        assert_eq!(&bytes[lens..lens + 6], [3, 0, 255, 255, 5, 0]);
        assert_eq!(&bytes[lens + 6..lens + 10], 70_000u32.to_le_bytes());
        assert_eq!((bytes.len(), index().bytes_len()), (lens + 14, lens + 14));
        assert_eq!(ExtentIndex::from_bytes(&bytes).unwrap(), index());
    }

    #[test]
    fn every_field_is_validated_even_if_the_checksum_is_right() {
        let good = index().to_bytes();
        for (at, value) in [(3, 2), (4, 3), (5, 1), (6, 1), (8, 4), (12, 17), (16, 9), (20, 2)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(with_right_checksum(bad).is_err(), "byte {at} as {value}");
        }
        let mut damaged = good.clone();
        damaged[30] ^= 1;
        assert!(ExtentIndex::from_bytes(&damaged).is_err());
        for len in 0..good.len() {
            assert!(ExtentIndex::from_bytes(&good[..len]).is_err());
        }
    }
}
