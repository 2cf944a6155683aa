//! Gathers the values of a binary or text column that is alone in its pack. The index knows the lengths before the
//! bytes arrive, so each value is copied to its final position, in any order.

use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::error::Malformed;
use crate::gather::zeroed;
use crate::offsets::OffsetsBuilder;
use crate::validity::Validity;

/// A builder of one binary or text array.
pub(crate) struct SoloValues {
    physical: DataType,
    offsets: OffsetsBuilder,
    bytes: MutableBuffer,
    validity: Validity,
}

impl SoloValues {
    /// Allocates the buffer for values of the lengths `lens`. Returns `None` if the sum overflows the type's offsets.
    pub fn new(physical: &DataType, lens: impl ExactSizeIterator<Item = usize>) -> Option<Self> {
        let mut offsets = OffsetsBuilder::new(physical, lens.len());
        for (slot, len) in lens.enumerate() {
            offsets.close(slot, offsets.end() + len).ok()?;
        }
        let bytes = zeroed(offsets.end());
        Some(Self { physical: physical.clone(), offsets, bytes, validity: Validity::default() })
    }

    /// Copies a piece of a row. The row consists of the flag and the value. The piece begins at `offset` in the row,
    /// and must end within it.
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
