//! A builder of an array's validity bitmap that allocates nothing until a slot is null.

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

/// A validity bitmap. Slots are valid until they are set to null.
#[derive(Default)]
pub(crate) struct Validity {
    /// One bit for each slot up to the last null, set if the slot is valid.
    bits: Vec<u8>,
}

impl Validity {
    pub fn set_null(&mut self, slot: usize) {
        if self.bits.len() <= slot / 8 {
            self.bits.resize(slot / 8 + 1, 0xff);
        }
        self.bits[slot / 8] &= !(1 << (slot % 8));
    }

    pub fn finish(mut self, slots: usize) -> Option<NullBuffer> {
        if self.bits.is_empty() {
            return None;
        }
        self.bits.resize(slots.div_ceil(8), 0xff);
        let nulls = NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(self.bits), 0, slots));
        Some(nulls).filter(|nulls| nulls.null_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_after_the_last_null_are_valid() {
        let mut validity = Validity::default();
        validity.set_null(9);
        validity.set_null(2);
        let nulls = validity.finish(20).unwrap();
        assert_eq!((0..20).filter(|&i| nulls.is_null(i)).collect::<Vec<_>>(), [2, 9]);
        assert!(Validity::default().finish(3).is_none());
    }
}
