//! Generates rows of Arrow types of every kind that Lance stores, with nulls, empty and huge values, from a seed.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, LargeBinaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
    Float64Array, Int64Array, LargeListArray, LargeStringArray, ListArray, MapArray, NullArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Generates columns of `rows` rows.
pub struct Maker {
    rng: StdRng,
    rows: usize,
}

impl Maker {
    pub fn new(seed: u64, rows: usize) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), rows }
    }

    fn validity(&mut self, rows: usize) -> NullBuffer {
        (0..rows).map(|_| self.rng.random_bool(0.8)).collect()
    }

    fn ints(&mut self, rows: usize, below: i64) -> ArrayRef {
        let validity = self.validity(rows);
        let value = |at| validity.is_valid(at).then(|| self.rng.random_range(0..below));
        Arc::new((0..rows).map(value).collect::<Int64Array>())
    }

    fn texts(&mut self, rows: usize) -> ArrayRef {
        let text = |rng: &mut StdRng| match rng.random_range(0..20) {
            0 => String::new(),
            1 => "長い文字列 ".repeat(rng.random_range(1..400)),
            n => format!("text {} {}", n, rng.random_range(0..1_000_000)),
        };
        let values = (0..rows).map(|_| self.rng.random_bool(0.8).then(|| text(&mut self.rng)));
        Arc::new(values.collect::<Vec<_>>().into_iter().collect::<StringArray>())
    }

    /// Returns lengths, some of them 0 or huge, and their sum.
    fn lengths(&mut self, rows: usize) -> (Vec<usize>, usize) {
        let length = |rng: &mut StdRng| match rng.random_range(0..30) {
            0 => rng.random_range(500..1500),
            1..8 => 0,
            _ => rng.random_range(1..6),
        };
        let lengths: Vec<_> = (0..rows).map(|_| length(&mut self.rng)).collect();
        let total = lengths.iter().sum();
        (lengths, total)
    }

    fn list(&mut self, child: impl FnOnce(&mut Self, usize) -> ArrayRef) -> ArrayRef {
        let (lengths, total) = self.lengths(self.rows);
        let child = child(self, total);
        let field = Arc::new(Field::new("item", child.data_type().clone(), true));
        let validity = self.validity(self.rows);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(ListArray::new(field, offsets, child, Some(validity)))
    }

    fn large_list(&mut self) -> ArrayRef {
        let (lengths, total) = self.lengths(self.rows);
        let child = self.texts(total);
        let field = Arc::new(Field::new("item", child.data_type().clone(), true));
        let validity = self.validity(self.rows);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(LargeListArray::new(field, offsets, child, Some(validity)))
    }

    fn vectors(&mut self, element: &DataType, dimension: usize, nullable: bool) -> ArrayRef {
        let values = (0..self.rows * dimension).map(|_| self.rng.random_range(-1000.0..1000.0));
        let values = cast(&Float64Array::from_iter_values(values), element).unwrap();
        let field = Arc::new(Field::new("item", element.clone(), true));
        let validity = nullable.then(|| self.validity(self.rows));
        Arc::new(FixedSizeListArray::new(field, dimension as i32, values, validity))
    }

    fn bytes(&mut self, width: i32) -> ArrayRef {
        let mut builder = FixedSizeBinaryBuilder::new(width);
        for _ in 0..self.rows {
            if self.rng.random_bool(0.8) {
                let value: Vec<u8> = (0..width).map(|_| self.rng.random()).collect();
                builder.append_value(value).unwrap();
            } else {
                builder.append_null();
            }
        }
        Arc::new(builder.finish())
    }

    fn structs(&mut self, depth: usize) -> ArrayRef {
        let inner: ArrayRef = match depth {
            0 => self.ints(self.rows, 100),
            _ => self.structs(depth - 1),
        };
        let texts = self.texts(self.rows);
        let fields = Fields::from(vec![
            Field::new("inner", inner.data_type().clone(), true),
            Field::new("text", DataType::Utf8, true),
        ]);
        let validity = self.validity(self.rows);
        Arc::new(StructArray::new(fields, vec![inner, texts], Some(validity)))
    }

    fn dictionary(&mut self) -> ArrayRef {
        let words = ["red", "green", "", "blue and more"];
        let keys = (0..self.rows)
            .map(|_| self.rng.random_bool(0.8).then(|| self.rng.random_range(0..4)))
            .collect();
        let words = Arc::new(StringArray::from_iter_values(words));
        Arc::new(DictionaryArray::<Int32Type>::new(keys, words))
    }

    fn map(&mut self) -> ArrayRef {
        let (lengths, total) = self.lengths(self.rows);
        let keys = StringArray::from_iter_values((0..total).map(|at| format!("key {at}")));
        let values = self.ints(total, 100);
        let fields = Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int64, true),
        ]);
        let entries = StructArray::new(fields.clone(), vec![Arc::new(keys), values], None);
        let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
        let validity = self.validity(self.rows);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(MapArray::new(field, offsets, entries, Some(validity), false))
    }

    fn scalars(&mut self) -> Vec<(String, ArrayRef)> {
        use DataType::*;
        let small = [
            Boolean,
            Int8,
            Int16,
            Int32,
            Int64,
            UInt8,
            UInt16,
            UInt32,
            UInt64,
            Float16,
            Float32,
            Float64,
            Decimal128(20, 3),
            Decimal256(40, 5),
            Date32,
            Date64,
            Time32(TimeUnit::Second),
            Time32(TimeUnit::Millisecond),
            Time64(TimeUnit::Microsecond),
            Time64(TimeUnit::Nanosecond),
            Timestamp(TimeUnit::Second, None),
            Timestamp(TimeUnit::Microsecond, Some("Europe/Athens".into())),
            Timestamp(TimeUnit::Nanosecond, Some("+02:00".into())),
            Duration(TimeUnit::Millisecond),
        ];
        let column = |data_type: &DataType| {
            let ints = self.ints(self.rows, 100);
            let column = match data_type {
                // Arrow casts i64 to these types only through i32.
                Time32(_) | Date32 => cast(&cast(&ints, &Int32).unwrap(), data_type),
                // The values must be whole days.
                Date64 => cast(&cast(&cast(&ints, &Int32).unwrap(), &Date32).unwrap(), data_type),
                _ => cast(&ints, data_type),
            };
            (data_type.to_string(), column.unwrap())
        };
        small.iter().map(column).collect()
    }

    /// Returns a column of each type.
    pub fn all_types(&mut self) -> RecordBatch {
        let mut columns: Vec<(String, ArrayRef)> =
            vec![("id".into(), Arc::new(Int64Array::from_iter_values(0..self.rows as i64)))];
        columns.extend(self.scalars());
        let texts = self.texts(self.rows);
        let large: LargeStringArray = texts.as_string::<i32>().iter().collect();
        let binary: BinaryArray =
            texts.as_string::<i32>().iter().map(|t| t.map(str::as_bytes)).collect();
        let binary = Arc::new(binary) as ArrayRef;
        columns.push(("null".into(), Arc::new(NullArray::new(self.rows))));
        columns.push(("large_text".into(), Arc::new(large)));
        columns.push(("large_binary".into(), cast(&binary, &DataType::LargeBinary).unwrap()));
        columns.push(("binary".into(), binary));
        columns.push(("text".into(), texts));
        columns.push(("fixed_binary".into(), self.bytes(7)));
        columns.push(("list".into(), self.list(|m, n| m.ints(n, 1000))));
        columns.push(("list_of_text".into(), self.list(|m, n| m.texts(n))));
        columns.push(("large_list".into(), self.large_list()));
        columns.push(("small_vector".into(), self.vectors(&DataType::Float32, 4, true)));
        columns.push(("vector_f32".into(), self.vectors(&DataType::Float32, 768, true)));
        columns.push(("vector_sector".into(), self.vectors(&DataType::Float32, 1024, false)));
        columns.push(("vector_f16".into(), self.vectors(&DataType::Float16, 300, true)));
        columns.push(("vector_f64".into(), self.vectors(&DataType::Float64, 1200, false)));
        columns.push(("struct".into(), self.structs(1)));
        columns.push(("dictionary".into(), self.dictionary()));
        columns.push(("map".into(), self.map()));
        let (bf16, bf16_field) = self.bf16();
        let (blob, blob_field) = self.blobs();
        let mut fields: Vec<Field> = columns
            .iter()
            .map(|(name, column)| Field::new(name, column.data_type().clone(), name != "id"))
            .collect();
        fields.extend([bf16_field, blob_field]);
        let columns = columns.into_iter().map(|(_, c)| c).chain([bf16, blob]).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    fn bf16(&mut self) -> (ArrayRef, Field) {
        const DIMENSION: usize = 160;
        let values = (0..self.rows * DIMENSION).map(|_| self.rng.random::<u16>().to_le_bytes());
        let values: Vec<_> = values.collect();
        let values = FixedSizeBinaryArray::try_from_iter(values.iter()).unwrap();
        let marks = [("ARROW:extension:name", "lance.bfloat16"), ("ARROW:extension:metadata", "")];
        let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let item = Field::new("item", DataType::FixedSizeBinary(2), true);
        let item = item.with_metadata(marks.into());
        let item = Arc::new(item);
        let list =
            FixedSizeListArray::new(Arc::clone(&item), DIMENSION as i32, Arc::new(values), None);
        let data_type = DataType::FixedSizeList(item, DIMENSION as i32);
        (Arc::new(list), Field::new("vector_bf16", data_type, true))
    }

    fn blobs(&mut self) -> (ArrayRef, Field) {
        let mut builder = LargeBinaryBuilder::new();
        for _ in 0..self.rows {
            match self.rng.random_range(0..10) {
                0 => builder.append_null(),
                1 => builder.append_value([]),
                2 => builder.append_value(vec![self.rng.random(); 70_000]),
                n => builder.append_value(vec![n as u8; n * 100]),
            }
        }
        let mark = ("lance-encoding:blob".to_owned(), "true".to_owned());
        let field = Field::new("blob", DataType::LargeBinary, true).with_metadata([mark].into());
        (Arc::new(builder.finish()), field)
    }
}
