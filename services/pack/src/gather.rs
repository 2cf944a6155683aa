//! Gathers encoded values into a physical Arrow array, slot by slot: the reverse of [`crate::column`].
//!
//! Slots of fixed-width types may be set in any order, those of variable-width types only in ascending order. Each slot
//! may be set once. A slot that is never set, such as one within a null struct, is valid, and its value is zero or
//! empty.
//!
//! The bytes are not trusted: whatever they are, the result is an error or a valid array.

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::error::Malformed;
use crate::offsets::OffsetsBuilder;
use crate::shape::{FieldLocation, Kind, LIST_BITMAP, LIST_COUNT_MAX, LIST_PLAIN, Shape, bit};
use crate::validity::Validity;

/// Allocates a buffer of the given length, in bytes, for a column of constant width. Unless every slot will be set, the
/// buffer must hold zeros.
pub(crate) type Allocate<'a> = &'a mut dyn FnMut(usize) -> MutableBuffer;

/// A builder of one Arrow array.
pub(crate) struct Gather {
    physical: DataType,
    fixed: Option<usize>,
    plain: Option<usize>,
    validity: Validity,
    values: GatheredValues,
}

enum GatheredValues {
    Null,
    /// One bit for each slot.
    Boolean(Vec<u8>),
    Plain(usize, MutableBuffer),
    Binary(OffsetsBuilder, MutableBuffer),
    List(OffsetsBuilder, Box<Gather>),
    FixedList(usize, Box<Gather>),
    Struct(GatherRow),
}

/// The builders of a struct's fields or of a row's projected columns.
pub(crate) struct GatherRow {
    /// The length of the row's fixed part.
    tail: usize,
    fields: Vec<GatherField>,
}

struct GatherField {
    /// The field's bit in the row's bitmap.
    bit: usize,
    location: FieldLocation,
    gather: Gather,
}

impl Gather {
    /// Creates a builder of `slots` slots. Slots of fixed width are allocated at once, so that they can be set in any
    /// order.
    pub fn new(shape: &Shape, slots: usize, allocate: Allocate<'_>) -> Self {
        let values = match &shape.kind {
            Kind::Null => GatheredValues::Null,
            Kind::Boolean => GatheredValues::Boolean(vec![0; slots.div_ceil(8)]),
            Kind::Plain(width) => {
                GatheredValues::Plain(*width, allocate(slots.saturating_mul(*width)))
            }
            Kind::Binary => GatheredValues::Binary(
                OffsetsBuilder::new(&shape.physical, slots),
                MutableBuffer::new(0),
            ),
            Kind::List(item) => {
                let items = Box::new(Gather::new(item, 0, &mut zeroed));
                GatheredValues::List(OffsetsBuilder::new(&shape.physical, slots), items)
            }
            Kind::FixedList(len, item) => {
                let items = Gather::new(item, slots.saturating_mul(*len), allocate);
                GatheredValues::FixedList(*len, Box::new(items))
            }
            Kind::Struct(row) => {
                GatheredValues::Struct(GatherRow::new(row, 0..row.fields.len(), slots, allocate))
            }
        };
        let (physical, validity) = (shape.physical.clone(), Validity::default());
        Self { physical, fixed: shape.fixed, plain: shape.plain, validity, values }
    }

    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    pub fn set_null(&mut self, slot: usize) {
        if !matches!(self.values, GatheredValues::Null) {
            self.validity.set_null(slot);
        }
    }

    /// Sets a slot from its encoding. For a type of constant width, `bytes` has exactly the type's width.
    pub fn set(&mut self, slot: usize, bytes: &[u8]) -> Result<(), Malformed> {
        match &mut self.values {
            GatheredValues::Null => Ok(()),
            GatheredValues::Boolean(bits) => {
                set_bit(bits, slot, bytes.first().is_some_and(|&byte| byte != 0));
                Ok(())
            }
            GatheredValues::Plain(width, buffer) => {
                write_at(buffer, slot * *width, bytes);
                Ok(())
            }
            GatheredValues::Binary(offsets, buffer) => {
                buffer.extend_from_slice(bytes);
                offsets.close(slot, buffer.len())
            }
            GatheredValues::List(offsets, items) => {
                let (head, body) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
                let head = u32::from_le_bytes(*head);
                let (first, count) = (offsets.end(), head as usize & LIST_COUNT_MAX);
                items.set_body(first, count, head, body)?;
                offsets.close(slot, first + count)
            }
            GatheredValues::FixedList(len, items) => {
                let first = slot.checked_mul(*len).ok_or(Malformed::TooLarge)?;
                items.set_body(first, *len, LIST_BITMAP, bytes)
            }
            GatheredValues::Struct(row) => row.set(slot, bytes).map_err(|(_, malformed)| malformed),
        }
    }

    /// Sets consecutive slots, beginning with `first`. `bytes` has their plain encodings, one after another.
    pub fn set_plain(&mut self, first: usize, bytes: &[u8]) {
        match &mut self.values {
            GatheredValues::Plain(width, buffer) => write_at(buffer, first * *width, bytes),
            GatheredValues::Boolean(bits) => {
                for (slot, byte) in (first..).zip(bytes) {
                    set_bit(bits, slot, *byte != 0);
                }
            }
            GatheredValues::FixedList(len, items) => items.set_plain(first * *len, bytes),
            _ => {}
        }
    }

    /// Returns the part of the final buffer that holds `count` slots from `first` on. Returns `None` if the buffer does
    /// not hold plain encodings (booleans are bits in it), or is not allocated that far.
    pub fn plain_mut(&mut self, first: usize, count: usize) -> Option<&mut [u8]> {
        match &mut self.values {
            GatheredValues::Plain(width, buffer) => {
                buffer.as_slice_mut().get_mut(first * *width..(first + count) * *width)
            }
            GatheredValues::FixedList(len, items) => items.plain_mut(first * *len, count * *len),
            _ => None,
        }
    }

    /// Sets slots from the body of a list or fixed list. Called on the builder of the list's items.
    fn set_body(
        &mut self,
        first: usize,
        count: usize,
        head: u32,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let has_bitmap = head & LIST_BITMAP != 0;
        if !has_bitmap && self.fixed == Some(0) {
            // Items without bytes always come with a bitmap. Otherwise a few bytes could claim any number of items.
            return Err(Malformed::Bytes("items without bytes or bitmap"));
        }
        let bitmap_len = if has_bitmap { count.div_ceil(8) } else { 0 };
        let (bitmap, values) = body.split_at_checked(bitmap_len).ok_or(SHORT)?;
        let is_valid = |i| !has_bitmap || bit(bitmap, i);
        let plain = self.plain.filter(|_| head & LIST_PLAIN != 0);
        if head & LIST_PLAIN != 0 && plain.is_none() {
            return Err(Malformed::Bytes("plain items of a type that has no plain form"));
        }
        let is_copied = matches!(self.values, GatheredValues::Plain(..));
        match plain.or(self.fixed) {
            Some(width) => {
                if count.checked_mul(width) != Some(values.len()) {
                    return Err(Malformed::Bytes("items of another length"));
                }
                if plain.is_some() || is_copied {
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

    /// Builds the array of the first `slots` slots.
    pub fn finish(self, slots: usize) -> Result<ArrayData, ArrowError> {
        let array = ArrayData::builder(self.physical).len(slots);
        let array = array.nulls(self.validity.finish(slots));
        match self.values {
            GatheredValues::Null => array,
            GatheredValues::Boolean(mut bits) => {
                bits.resize(slots.div_ceil(8), 0);
                array.add_buffer(Buffer::from_vec(bits))
            }
            GatheredValues::Plain(width, mut buffer) => {
                buffer.resize(count(slots, width)?, 0);
                array.add_buffer(buffer.into())
            }
            GatheredValues::Binary(offsets, buffer) => {
                array.add_buffer(offsets.finish(slots)).add_buffer(buffer.into())
            }
            GatheredValues::List(offsets, items) => {
                let len = offsets.end();
                array.add_buffer(offsets.finish(slots)).add_child_data(items.finish(len)?)
            }
            GatheredValues::FixedList(len, items) => {
                array.add_child_data(items.finish(count(slots, len)?)?)
            }
            GatheredValues::Struct(row) => {
                let fields = row.fields.into_iter().map(|field| field.gather.finish(slots));
                array.child_data(fields.collect::<Result<_, _>>()?)
            }
        }
        .build()
    }
}

impl GatherRow {
    /// Creates builders of the row's fields `projection`.
    pub fn new(
        row: &crate::shape::RowShape,
        projection: impl IntoIterator<Item = usize>,
        slots: usize,
        allocate: Allocate<'_>,
    ) -> Self {
        let field = |bit: usize| GatherField {
            bit,
            location: row.locations[bit],
            gather: Gather::new(&row.fields[bit], slots, allocate),
        };
        Self { tail: row.tail, fields: projection.into_iter().map(field).collect() }
    }

    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|field| field.gather.is_fixed())
    }

    /// Returns the builder of the first field.
    pub fn solo_mut(&mut self) -> Option<&mut Gather> {
        self.fields.first_mut().map(|field| &mut field.gather)
    }

    pub fn into_gathers(self) -> impl Iterator<Item = Gather> {
        self.fields.into_iter().map(|field| field.gather)
    }

    /// Sets a slot of every projected field from a row's bytes. An `Err` has the field's index in the projection.
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
        match self.location {
            FieldLocation::Fixed { offset, width } => {
                self.gather.set(slot, &bytes[offset..offset + width])
            }
            FieldLocation::Variable { end_at, start_at } => {
                let start = start_at.map_or(tail, |at| end_of(bytes, at));
                let value = bytes.get(start..end_of(bytes, end_at)).filter(|_| start >= tail);
                self.gather.set(slot, value.ok_or(ENDS)?)
            }
        }
    }
}

const SHORT: Malformed = Malformed::Bytes("shorter than its parts");
const ENDS: Malformed = Malformed::Bytes("ends that descend or pass the row's end");

/// Reads the u32 at `at`, which lies within the row's fixed part.
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
            // Only the buffer for the items of lists can be too short, because it grows as items are set, in ascending
            // order. Null items are not set, so their places get zeros here.
            buffer.resize(at, 0);
            buffer.extend_from_slice(bytes);
        }
    }
}

/// Allocates a buffer of zeros. `vec![0; _]` does not write to pages that the system has just zeroed.
/// `MutableBuffer::from_len_zeroed` does, because it asks for a larger alignment.
pub(crate) fn zeroed(len: usize) -> MutableBuffer {
    let words = vec![0u128; len.div_ceil(size_of::<u128>())];
    let mut buffer = Buffer::from_vec(words).into_mutable().unwrap_or_else(|shared| {
        // Not reached: nothing else refers to the new buffer.
        MutableBuffer::from_len_zeroed(shared.len())
    });
    buffer.truncate(len);
    buffer
}
