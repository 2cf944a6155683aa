//! Values of a solo binary or text column. Their lengths are known before their bytes, so each is
//! copied straight to its place, in any order.

use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::gather::{Malformed, zeroed};
use crate::offsets::Offsets;
use crate::validity::Validity;

pub(crate) struct Values {
    physical: DataType,
    offsets: Offsets,
    bytes: MutableBuffer,
    validity: Validity,
}

impl Values {
    /// Room for values of these lengths; `None` if the type's offsets can't count their sum.
    pub fn new(physical: &DataType, lens: impl ExactSizeIterator<Item = usize>) -> Option<Self> {
        let mut offsets = Offsets::new(physical, lens.len());
        for (slot, len) in lens.enumerate() {
            offsets.close(slot, offsets.end() + len).ok()?;
        }
        let bytes = zeroed(offsets.end());
        Some(Self { physical: physical.clone(), offsets, bytes, validity: Validity::default() })
    }

    /// Copies a piece of the row's bytes, which are the flag and then the value; the piece is
    /// within them.
    pub fn put(&mut self, slot: usize, offset: usize, piece: &[u8]) -> Result<(), Malformed> {
        let (start, end) = (self.offsets.start(slot), self.offsets.start(slot + 1));
        let (at, value) = match (offset, piece) {
            (_, []) => return Ok(()),
            (0, [1, value @ ..]) => (start, value),
            (0, [0, ..]) if start == end => {
                self.validity.set_null(slot);
                return Ok(());
            }
            (0, _) => return Err(Malformed::Bytes("a flag that is neither null nor valid")),
            (offset, value) => (start + offset - 1, value),
        };
        self.bytes.as_slice_mut()[at..at + value.len()].copy_from_slice(value);
        Ok(())
    }

    pub fn finish(self, slots: usize) -> Result<ArrayData, ArrowError> {
        ArrayData::builder(self.physical)
            .len(slots)
            .nulls(self.validity.finish(slots))
            .add_buffer(self.offsets.finish(slots))
            .add_buffer(self.bytes.into())
            .build()
    }
}
