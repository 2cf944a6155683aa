//! Generates types and arrays from a seed: types of every kind that can be stored, nested up to three levels, with
//! nulls at every level, slices with an offset, and null lists whose ranges aren't empty.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeListArray,
    GenericListArray, MapArray, NullArray, OffsetSizeTrait, StringArray, StringViewArray,
    StructArray, UInt8Array, make_array,
};
use arrow_buffer::{MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Returns the generator of all random choices.
pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Generates fields `c0`, `c1` … of arbitrary types.
pub fn fields(rng: &mut StdRng, count: usize) -> Vec<FieldRef> {
    (0..count).map(|i| field(rng, &format!("c{i}"), 3)).collect()
}

fn field(rng: &mut StdRng, name: &str, depth: usize) -> FieldRef {
    let data_type = data_type(rng, depth);
    // Arrow requires a field of the null type, or of a dictionary of it, to be nullable.
    let nullable = rng.random_bool(0.7) || has_null_type(&data_type);
    Arc::new(
        Field::new(name, data_type, nullable)
            .with_metadata([("of".to_owned(), name.to_owned())].into()),
    )
}

fn has_null_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => has_null_type(value),
        other => other == &DataType::Null,
    }
}

/// Generates a type. At depth 0 it is not nested.
pub fn data_type(rng: &mut StdRng, depth: usize) -> DataType {
    let unit =
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond][rng.random_range(0..3)];
    match rng.random_range(0..if depth == 0 { 36 } else { 54 }) {
        0 => DataType::Null,
        1 | 2 => DataType::Boolean,
        3 => DataType::Int8,
        4 => DataType::Int16,
        5 => DataType::Int32,
        6 => DataType::Int64,
        7 => DataType::UInt8,
        8 => DataType::UInt16,
        9 => DataType::UInt32,
        10 => DataType::UInt64,
        11 => DataType::Float16,
        12 => DataType::Float32,
        13 => DataType::Float64,
        14 => DataType::Decimal32(9, 2),
        15 => DataType::Decimal64(18, 2),
        16 => DataType::Decimal128(38, 2),
        17 => DataType::Decimal256(76, 2),
        18 => DataType::Date32,
        19 => DataType::Date64,
        20 => DataType::Time32(TimeUnit::Millisecond),
        21 => DataType::Time64(TimeUnit::Nanosecond),
        22 => DataType::Timestamp(unit, None),
        23 => DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
        24 => DataType::Duration(unit),
        25 => DataType::Interval(IntervalUnit::YearMonth),
        26 => DataType::Interval(IntervalUnit::DayTime),
        27 => DataType::Interval(IntervalUnit::MonthDayNano),
        28 => DataType::Utf8,
        29 => DataType::LargeUtf8,
        30 => DataType::Binary,
        31 => DataType::LargeBinary,
        32 => DataType::Utf8View,
        33 => DataType::BinaryView,
        34 | 35 => DataType::FixedSizeBinary([0, 1, 2, 16, 300][rng.random_range(0..5)]),
        36..40 => DataType::List(field(rng, "item", depth - 1)),
        40 | 41 => DataType::LargeList(field(rng, "item", depth - 1)),
        42..46 => {
            let len: i32 = [1, 1, 2, 3, 9, 70][rng.random_range(0..6)];
            // Deeply nested long lists would overflow Arrow's offsets.
            let len = if depth > 1 { len.min(3) } else { len };
            DataType::FixedSizeList(field(rng, "item", depth - 1), len)
        }
        46..50 => {
            let count = rng.random_range(0..4);
            DataType::Struct((0..count).map(|i| field(rng, &format!("f{i}"), depth - 1)).collect())
        }
        50 => {
            let key = loop {
                let key = data_type(rng, 0);
                if key != DataType::Null {
                    break Field::new("keys", key, false);
                }
            };
            let entries = Fields::from(vec![Arc::new(key), field(rng, "values", depth - 1)]);
            let entries = Field::new("entries", DataType::Struct(entries), false);
            DataType::Map(Arc::new(entries), false)
        }
        _ => {
            let keys = [DataType::Int8, DataType::UInt16, DataType::Int32, DataType::UInt64];
            let key = keys[rng.random_range(0..4)].clone();
            let value = loop {
                let depth = if rng.random_bool(0.8) { 0 } else { depth - 1 };
                let value = data_type(rng, depth);
                if !matches!(value, DataType::Dictionary(..) | DataType::Null) {
                    break value;
                }
            };
            DataType::Dictionary(Box::new(key), Box::new(value))
        }
    }
}

/// Generates an array of the field's type. Half of the arrays are slices of a longer one.
pub fn array(rng: &mut StdRng, field: &Field, len: usize) -> ArrayRef {
    match rng.random_bool(0.5) {
        true => whole(rng, field.data_type(), field.is_nullable(), len),
        false => {
            let (before, after) = (rng.random_range(0..12), rng.random_range(0..5));
            let longer = whole(rng, field.data_type(), field.is_nullable(), before + len + after);
            longer.slice(before, len)
        }
    }
}

fn nulls(rng: &mut StdRng, nullable: bool, len: usize) -> Option<NullBuffer> {
    let share = [0.0, 0.1, 0.5, 1.0][rng.random_range(0..4)];
    (nullable && share > 0.0).then(|| (0..len).map(|_| !rng.random_bool(share)).collect())
}

fn whole(rng: &mut StdRng, data_type: &DataType, nullable: bool, len: usize) -> ArrayRef {
    let nulls = nulls(rng, nullable, len);
    match data_type {
        DataType::Null => Arc::new(NullArray::new(len)),
        DataType::Boolean => {
            let values = (0..len).map(|_| rng.random_bool(0.5)).collect();
            Arc::new(BooleanArray::new(values, nulls))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let texts = (0..len).map(|i| {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
                (!is_null).then(|| "aé✓".repeat(size(rng) / 6))
            });
            match data_type {
                DataType::Utf8View => Arc::new(texts.collect::<StringViewArray>()),
                other => {
                    let text: ArrayRef = Arc::new(texts.collect::<StringArray>());
                    arrow_cast::cast(&text, other).unwrap()
                }
            }
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let values = (0..len).map(|i| {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
                (!is_null).then(|| (0..size(rng)).map(|_| rng.random()).collect::<Vec<u8>>())
            });
            match data_type {
                DataType::BinaryView => Arc::new(values.collect::<BinaryViewArray>()),
                other => {
                    let bytes: ArrayRef = Arc::new(values.collect::<BinaryArray>());
                    arrow_cast::cast(&bytes, other).unwrap()
                }
            }
        }
        DataType::List(item) => list::<i32>(rng, item, len, nulls),
        DataType::LargeList(item) => list::<i64>(rng, item, len, nulls),
        DataType::Map(entries, sorted) => {
            let (offsets, total) = offsets::<i32>(rng, len);
            let entries_array = array(rng, entries, total);
            let entries_array = entries_array.as_any().downcast_ref::<StructArray>().unwrap();
            let (field, entries) = (entries.clone(), entries_array.clone());
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, *sorted).unwrap())
        }
        DataType::FixedSizeList(item, size) => {
            let items = array(rng, item, len * *size as usize);
            let item = item.clone();
            Arc::new(
                FixedSizeListArray::try_new_with_length(item, *size, items, nulls, len).unwrap(),
            )
        }
        DataType::Struct(fields) => {
            let children = fields.iter().map(|field| array(rng, field, len)).collect();
            let fields = fields.clone();
            Arc::new(StructArray::try_new_with_length(fields, children, nulls, len).unwrap())
        }
        DataType::Dictionary(key, value) => {
            let count = rng.random_range(1..6);
            let values = array(rng, &Field::new("", value.as_ref().clone(), nullable), count);
            let keys = (0..len).map(|_| rng.random_range(0..count as u8)).collect();
            let keys: ArrayRef = Arc::new(UInt8Array::new(keys, nulls));
            let keys = arrow_cast::cast(&keys, key).unwrap().to_data().into_builder();
            let data = keys.data_type(data_type.clone()).add_child_data(values.to_data());
            make_array(data.build().unwrap())
        }
        fixed => {
            let width = match fixed {
                DataType::FixedSizeBinary(width) => *width as usize,
                other => other.primitive_width().unwrap(),
            };
            let mut bytes = MutableBuffer::new(len * width);
            (0..len * width).for_each(|_| bytes.push(rng.random::<u8>()));
            let data = ArrayData::builder(fixed.clone()).len(len).nulls(nulls);
            make_array(data.add_buffer(bytes.into()).build().unwrap())
        }
    }
}

/// Generates a length, mostly short and rarely more than a sector.
fn size(rng: &mut StdRng) -> usize {
    match rng.random_range(0..60) {
        0 => rng.random_range(0..9000),
        1..4 => rng.random_range(0..1500),
        _ => rng.random_range(0..24),
    }
}

fn offsets<O: OffsetSizeTrait>(rng: &mut StdRng, len: usize) -> (OffsetBuffer<O>, usize) {
    let mut end = rng.random_range(0..3);
    let mut offsets = vec![O::usize_as(end)];
    for _ in 0..len {
        end += rng.random_range(0..4);
        offsets.push(O::usize_as(end));
    }
    (OffsetBuffer::new(ScalarBuffer::from(offsets)), end + rng.random_range(0..3))
}

fn list<O: OffsetSizeTrait>(
    rng: &mut StdRng,
    item: &FieldRef,
    len: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let (offsets, total) = offsets::<O>(rng, len);
    let items = array(rng, item, total);
    Arc::new(GenericListArray::<O>::try_new(item.clone(), offsets, items, nulls).unwrap())
}

/// Returns vectors of `dimension` f32. `value` computes each element from its row and index.
pub fn vectors(rows: usize, dimension: usize, value: impl Fn(usize, usize) -> f32) -> ArrayRef {
    let vectors =
        (0..rows).map(|row| Some((0..dimension).map(|i| Some(value(row, i))).collect::<Vec<_>>()));
    let dimension = dimension as i32;
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, dimension))
}
