//! A builder of the offsets of variable-width slots, 32 or 64 bits wide as their Arrow type demands.

use arrow_buffer::Buffer;
use arrow_schema::DataType;

use crate::error::Malformed;

/// Builds the end offsets of slots. Slots are closed in ascending order. A slot that is skipped is empty.
pub(crate) enum OffsetsBuilder {
    Small(Vec<i32>),
    Large(Vec<i64>),
}

impl OffsetsBuilder {
    pub fn new(physical: &DataType, slots: usize) -> Self {
        let capacity = slots + 1;
        match physical {
            DataType::LargeBinary | DataType::LargeList(_) => {
                let mut offsets = Vec::with_capacity(capacity);
                offsets.push(0);
                Self::Large(offsets)
            }
            _ => {
                let mut offsets = Vec::with_capacity(capacity);
                offsets.push(0);
                Self::Small(offsets)
            }
        }
    }

    /// Returns the start of `slot`, which must be closed or directly follow the last closed slot.
    pub fn start(&self, slot: usize) -> usize {
        match self {
            Self::Small(offsets) => offsets[slot] as usize,
            Self::Large(offsets) => offsets[slot] as usize,
        }
    }

    /// Returns the end of the last closed slot.
    pub fn end(&self) -> usize {
        match self {
            Self::Small(offsets) => offsets.last().map_or(0, |&end| end as usize),
            Self::Large(offsets) => offsets.last().map_or(0, |&end| end as usize),
        }
    }

    /// Closes `slot` at the offset `end`. Unclosed slots before it are empty.
    pub fn close(&mut self, slot: usize, end: usize) -> Result<(), Malformed> {
        self.skip_to(slot);
        match self {
            Self::Small(offsets) => {
                offsets.push(i32::try_from(end).map_err(|_| Malformed::TooLarge)?)
            }
            Self::Large(offsets) => {
                offsets.push(i64::try_from(end).map_err(|_| Malformed::TooLarge)?)
            }
        }
        Ok(())
    }

    /// Returns the offsets of the first `slots` slots.
    pub fn finish(mut self, slots: usize) -> Buffer {
        self.skip_to(slots);
        match self {
            Self::Small(offsets) => Buffer::from_vec(offsets),
            Self::Large(offsets) => Buffer::from_vec(offsets),
        }
    }

    fn skip_to(&mut self, slot: usize) {
        match self {
            Self::Small(offsets) => offsets.resize(slot + 1, offsets.last().copied().unwrap_or(0)),
            Self::Large(offsets) => offsets.resize(slot + 1, offsets.last().copied().unwrap_or(0)),
        }
    }
}
