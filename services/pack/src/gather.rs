//! Values gathered into a physical Arrow array, slot by slot: the reverse of [`crate::source`].
//!
//! Slots of fixed-width types may be set in any order, those of variable-width types in ascending
//! order, each at most once. A slot that isn't set is valid and empty (zeros): what a null struct
//! has within. Bytes are not trusted: whatever they are, the result is an error or a valid array.

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::offsets::Offsets;
use crate::shape::{Kind, LIST_BITMAP, LIST_COUNT_MAX, LIST_PLAIN, Shape, Slot, bit};
use crate::validity::Validity;

/// Why bytes can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Bytes(&'static str),
    /// More than the array's offsets can count.
    TooLarge,
}

/// Gives so many bytes for a column of constant width, whatever they hold. A column that may have
/// slots that are never set needs zeros.
pub(crate) type Memory<'a> = &'a mut dyn FnMut(usize) -> MutableBuffer;

pub(crate) struct Gather {
    physical: DataType,
    fixed: Option<usize>,
    plain: Option<usize>,
    validity: Validity,
    values: Values,
}

enum Values {
    Null,
    /// A bit a slot.
    Boolean(Vec<u8>),
    Plain(usize, MutableBuffer),
    Binary(Offsets, MutableBuffer),
    List(Offsets, Box<Gather>),
    FixedList(usize, Box<Gather>),
    Struct(GatherRow),
}

/// The fields of a struct, or the projected columns of a row.
pub(crate) struct GatherRow {
    tail: usize,
    fields: Vec<GatherField>,
}

struct GatherField {
    /// Its bit in the row's bitmap.
    bit: usize,
    slot: Slot,
    gather: Gather,
}

impl Gather {
    /// Room for `slots` slots. Those of fixed width lie in `memory` already, so that they can be set
    /// in any order.
    pub fn new(shape: &Shape, slots: usize, memory: Memory<'_>) -> Self {
        let values = match &shape.kind {
            Kind::Null => Values::Null,
            Kind::Boolean => Values::Boolean(vec![0; slots.div_ceil(8)]),
            Kind::Plain(width) => Values::Plain(*width, memory(slots.saturating_mul(*width))),
            Kind::Binary => {
                Values::Binary(Offsets::new(&shape.physical, slots), MutableBuffer::new(0))
            }
            Kind::List(item) => {
                let items = Box::new(Gather::new(item, 0, &mut zeroed));
                Values::List(Offsets::new(&shape.physical, slots), items)
            }
            Kind::FixedList(len, item) => {
                let items = Gather::new(item, slots.saturating_mul(*len), memory);
                Values::FixedList(*len, Box::new(items))
            }
            Kind::Struct(row) => {
                Values::Struct(GatherRow::new(row, 0..row.fields.len(), slots, memory))
            }
        };
        let (physical, validity) = (shape.physical.clone(), Validity::default());
        Self { physical, fixed: shape.fixed, plain: shape.plain, validity, values }
    }

    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    pub fn set_null(&mut self, slot: usize) {
        if !matches!(self.values, Values::Null) {
            self.validity.set_null(slot);
        }
    }

    /// Sets a slot from its encoding; of a fixed-width type exactly that many bytes.
    pub fn set(&mut self, slot: usize, bytes: &[u8]) -> Result<(), Malformed> {
        match &mut self.values {
            Values::Null => Ok(()),
            Values::Boolean(bits) => {
                set_bit(bits, slot, bytes.first().is_some_and(|&byte| byte != 0));
                Ok(())
            }
            Values::Plain(width, buffer) => {
                write_at(buffer, slot * *width, bytes);
                Ok(())
            }
            Values::Binary(offsets, buffer) => {
                buffer.extend_from_slice(bytes);
                offsets.close(slot, buffer.len())
            }
            Values::List(offsets, items) => {
                let (head, body) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
                let head = u32::from_le_bytes(*head);
                let (first, count) = (offsets.end(), head as usize & LIST_COUNT_MAX);
                items.set_body(first, count, head, body)?;
                offsets.close(slot, first + count)
            }
            Values::FixedList(len, items) => {
                let first = slot.checked_mul(*len).ok_or(Malformed::TooLarge)?;
                items.set_body(first, *len, LIST_BITMAP, bytes)
            }
            Values::Struct(row) => row.set(slot, bytes).map_err(|(_, malformed)| malformed),
        }
    }

    /// Sets slots from `first` on from plain encodings, back to back, as many as the bytes are.
    pub fn set_plain(&mut self, first: usize, bytes: &[u8]) {
        match &mut self.values {
            Values::Plain(width, buffer) => write_at(buffer, first * *width, bytes),
            Values::Boolean(bits) => {
                for (slot, byte) in (first..).zip(bytes) {
                    set_bit(bits, slot, *byte != 0);
                }
            }
            Values::FixedList(len, items) => items.set_plain(first * *len, bytes),
            _ => {}
        }
    }

    /// The place in the final buffer for the plain encoding of `count` slots from `first`; `None`
    /// where the array has another form of it (booleans) or no room was made.
    pub fn plain_mut(&mut self, first: usize, count: usize) -> Option<&mut [u8]> {
        match &mut self.values {
            Values::Plain(width, buffer) => {
                buffer.as_slice_mut().get_mut(first * *width..(first + count) * *width)
            }
            Values::FixedList(len, items) => items.plain_mut(first * *len, count * *len),
            _ => None,
        }
    }

    /// Of an item's gather: sets slots from the body of a list or fixed list.
    fn set_body(
        &mut self,
        first: usize,
        count: usize,
        head: u32,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let has_bitmap = head & LIST_BITMAP != 0;
        if !has_bitmap && self.fixed == Some(0) {
            // Else a few bytes could claim any number of items.
            return Err(Malformed::Bytes("items without bytes or bitmap"));
        }
        let bitmap_len = if has_bitmap { count.div_ceil(8) } else { 0 };
        let (bitmap, values) = body.split_at_checked(bitmap_len).ok_or(SHORT)?;
        let is_valid = |i| !has_bitmap || bit(bitmap, i);
        let plain = self.plain.filter(|_| head & LIST_PLAIN != 0);
        if head & LIST_PLAIN != 0 && plain.is_none() {
            return Err(Malformed::Bytes("plain items of a type that has no plain form"));
        }
        let copied = matches!(self.values, Values::Plain(..));
        match plain.or(self.fixed) {
            Some(width) => {
                if count.checked_mul(width) != Some(values.len()) {
                    return Err(Malformed::Bytes("items of another length"));
                }
                if plain.is_some() || copied {
                    self.set_plain(first, values);
                    (0..count).filter(|&i| !is_valid(i)).for_each(|i| self.set_null(first + i));
                    return Ok(());
                }
                for i in 0..count {
                    match is_valid(i) {
                        true => self.set(first + i, &values[i * width..(i + 1) * width])?,
                        false => self.set_null(first + i),
                    }
                }
            }
            None => {
                let ends = count.checked_mul(4).ok_or(SHORT)?;
                let (ends, values) = values.split_at_checked(ends).ok_or(SHORT)?;
                let mut start = 0;
                for (i, end) in ends.as_chunks::<4>().0.iter().enumerate() {
                    let end = u32::from_le_bytes(*end) as usize;
                    let value = values.get(start..end).ok_or(ENDS)?;
                    match is_valid(i) {
                        true => self.set(first + i, value)?,
                        false => self.set_null(first + i),
                    }
                    start = end;
                }
            }
        }
        Ok(())
    }

    /// The array of the first `slots` slots.
    pub fn finish(self, slots: usize) -> Result<ArrayData, ArrowError> {
        let array = ArrayData::builder(self.physical).len(slots);
        let array = array.nulls(self.validity.finish(slots));
        match self.values {
            Values::Null => array,
            Values::Boolean(mut bits) => {
                bits.resize(slots.div_ceil(8), 0);
                array.add_buffer(Buffer::from_vec(bits))
            }
            Values::Plain(width, mut buffer) => {
                buffer.resize(count(slots, width)?, 0);
                array.add_buffer(buffer.into())
            }
            Values::Binary(offsets, buffer) => {
                array.add_buffer(offsets.finish(slots)).add_buffer(buffer.into())
            }
            Values::List(offsets, items) => {
                let len = offsets.end();
                array.add_buffer(offsets.finish(slots)).add_child_data(items.finish(len)?)
            }
            Values::FixedList(len, items) => {
                array.add_child_data(items.finish(count(slots, len)?)?)
            }
            Values::Struct(row) => {
                let fields = row.fields.into_iter().map(|field| field.gather.finish(slots));
                array.child_data(fields.collect::<Result<_, _>>()?)
            }
        }
        .build()
    }
}

impl GatherRow {
    /// Of the fields `projection` of a row.
    pub fn new(
        row: &crate::shape::RowShape,
        projection: impl IntoIterator<Item = usize>,
        slots: usize,
        memory: Memory<'_>,
    ) -> Self {
        let field = |bit: usize| GatherField {
            bit,
            slot: row.slots[bit],
            gather: Gather::new(&row.fields[bit], slots, memory),
        };
        Self { tail: row.tail, fields: projection.into_iter().map(field).collect() }
    }

    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|field| field.gather.is_fixed())
    }

    /// The gather of the only field.
    pub fn solo_mut(&mut self) -> Option<&mut Gather> {
        self.fields.first_mut().map(|field| &mut field.gather)
    }

    pub fn into_gathers(self) -> impl Iterator<Item = Gather> {
        self.fields.into_iter().map(|field| field.gather)
    }

    /// Sets a slot of every field from a row's bytes. An `Err` says which field.
    pub fn set(&mut self, slot: usize, bytes: &[u8]) -> Result<(), (usize, Malformed)> {
        for (i, field) in self.fields.iter_mut().enumerate() {
            field.set(slot, bytes, self.tail).map_err(|malformed| (i, malformed))?;
        }
        Ok(())
    }
}

impl GatherField {
    fn set(&mut self, slot: usize, bytes: &[u8], tail: usize) -> Result<(), Malformed> {
        if bytes.len() < tail {
            return Err(SHORT);
        }
        if !bit(bytes, self.bit) {
            self.gather.set_null(slot);
            return Ok(());
        }
        match self.slot {
            Slot::Fixed { offset, width } => self.gather.set(slot, &bytes[offset..offset + width]),
            Slot::Variable { end_at, start_at } => {
                let start = start_at.map_or(tail, |at| end_of(bytes, at));
                let value = bytes.get(start..end_of(bytes, end_at)).filter(|_| start >= tail);
                self.gather.set(slot, value.ok_or(ENDS)?)
            }
        }
    }
}

const SHORT: Malformed = Malformed::Bytes("shorter than its parts");
const ENDS: Malformed = Malformed::Bytes("ends that descend or pass the row's end");

/// The u32 at `at`, which is within the row's fixed part.
fn end_of(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn count(slots: usize, each: usize) -> Result<usize, ArrowError> {
    let overflow = || ArrowError::OffsetOverflowError(slots);
    slots.checked_mul(each).ok_or_else(overflow)
}

fn set_bit(bits: &mut Vec<u8>, slot: usize, value: bool) {
    if bits.len() <= slot / 8 {
        bits.resize(slot / 8 + 1, 0);
    }
    bits[slot / 8] |= u8::from(value) << (slot % 8);
}

fn write_at(buffer: &mut MutableBuffer, at: usize, bytes: &[u8]) {
    match buffer.as_slice_mut().get_mut(at..at + bytes.len()) {
        Some(place) => place.copy_from_slice(bytes),
        None => {
            // Only within lists, whose items arrive in order but for nulls passed over.
            buffer.resize(at, 0);
            buffer.extend_from_slice(bytes);
        }
    }
}

/// Zeros in memory of their own. What the system hands out is zeros already, and no pass over it is
/// made. (`MutableBuffer::from_len_zeroed` makes one, since it asks for a larger alignment.)
pub(crate) fn zeroed(len: usize) -> MutableBuffer {
    let words = vec![0u128; len.div_ceil(size_of::<u128>())];
    let mut buffer = Buffer::from_vec(words).into_mutable().unwrap_or_else(|shared| {
        // Never: the buffer was just made.
        MutableBuffer::from_len_zeroed(shared.len())
    });
    buffer.truncate(len);
    buffer
}
