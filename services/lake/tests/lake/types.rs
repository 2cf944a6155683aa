//! Values of every kind of type that Lance stores are read as Lance's own take returns them.

use std::collections::HashMap;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;
use half::f16;
use lance::dataset::ProjectionRequest;
use lance_file::version::LanceFileVersion;

use crate::fixture::{TableKind, TablePlace, all, lake, write};

const ROWS: usize = 200;

fn some<T>(make: impl Fn(usize) -> T) -> impl Iterator<Item = Option<T>> {
    (0..ROWS).map(move |i| (i % 7 != 3).then(|| make(i)))
}

fn nulls() -> NullBuffer {
    NullBuffer::from_iter((0..ROWS).map(|i| i % 7 != 3))
}

fn plain() -> Vec<(&'static str, ArrayRef)> {
    let decimals = Decimal128Array::from_iter(some(|i| i as i128 * 1_000_000_007))
        .with_precision_and_scale(30, 3);
    let zoned =
        TimestampMicrosecondArray::from_iter(some(|i| i as i64)).with_timezone("Europe/Zurich");
    let sixteen = some(|i| [i as u8; 16]).map(|it| it.map(Vec::from));
    let sixteen = FixedSizeBinaryArray::try_from_sparse_iter_with_size(sixteen, 16).unwrap();
    vec![
        ("bool", Arc::new(BooleanArray::from_iter(some(|i| i % 2 == 0)))),
        ("i8", Arc::new(Int8Array::from_iter(some(|i| i as i8)))),
        ("u16", Arc::new(UInt16Array::from_iter(some(|i| i as u16)))),
        ("i64", Arc::new(Int64Array::from_iter(some(|i| i as i64 - 100)))),
        ("u64", Arc::new(UInt64Array::from_iter(some(|i| u64::MAX - i as u64)))),
        ("f16", Arc::new(Float16Array::from_iter(some(|i| f16::from_f32(i as f32))))),
        ("f32", Arc::new(Float32Array::from_iter(some(|i| i as f32 / 3.0)))),
        ("f64", Arc::new(Float64Array::from_iter(some(|i| i as f64 / 3.0)))),
        ("decimal", Arc::new(decimals.unwrap())),
        ("date32", Arc::new(Date32Array::from_iter(some(|i| i as i32)))),
        ("date64", Arc::new(Date64Array::from_iter(some(|i| i as i64 * 86_400_000)))),
        ("time32", Arc::new(Time32SecondArray::from_iter(some(|i| i as i32)))),
        ("time64", Arc::new(Time64NanosecondArray::from_iter(some(|i| i as i64)))),
        ("timestamp", Arc::new(TimestampNanosecondArray::from_iter(some(|i| i as i64)))),
        ("zoned", Arc::new(zoned)),
        ("duration", Arc::new(DurationMillisecondArray::from_iter(some(|i| i as i64)))),
        ("text", Arc::new(StringArray::from_iter(some(|i| "é".repeat(i % 5))))),
        ("large_text", Arc::new(LargeStringArray::from_iter(some(|i| "x".repeat(i * 20))))),
        ("binary", Arc::new(BinaryArray::from_iter(some(|i| vec![i as u8; i % 3])))),
        ("large_binary", Arc::new(LargeBinaryArray::from_iter(some(|i| vec![i as u8; i])))),
        ("sixteen", Arc::new(sixteen)),
        ("null", Arc::new(NullArray::new(ROWS))),
    ]
}

fn nested() -> Vec<(&'static str, ArrayRef)> {
    let lengths = (0..ROWS).map(|i| if i % 7 == 3 { 0 } else { i % 4 });
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let count = *offsets.last().unwrap() as usize;
    let numbers =
        Arc::new(Int32Array::from_iter((0..count as i32).map(|i| (i % 5 != 0).then_some(i))));
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let lists = ListArray::new(item.clone(), offsets.clone(), numbers, Some(nulls()));
    let values = Arc::new(Float32Array::from_iter_values((0..ROWS * 3).map(|i| i as f32)));
    let vectors = FixedSizeListArray::new(
        Arc::new(Field::new("item", DataType::Float32, true)),
        3,
        values,
        Some(nulls()),
    );
    let fields: Fields =
        vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into();
    let a = Arc::new(Int32Array::from_iter(some(|i| i as i32)));
    let b = Arc::new(StringArray::from_iter(some(|i| i.to_string())));
    let structs = StructArray::new(fields.clone(), vec![a, b], None);
    let list_of_structs = {
        let many: Vec<_> = (0..count).map(|i| i % ROWS).map(|i| i as u32).collect();
        let values = arrow::compute::take(&structs, &UInt32Array::from(many), None).unwrap();
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        ListArray::new(item, offsets, values, Some(nulls()))
    };
    let dictionary: DictionaryArray<Int32Type> =
        some(|i| ["red", "green", "blue"][i % 3]).collect();
    vec![
        ("lists", Arc::new(lists)),
        ("vectors", Arc::new(vectors)),
        ("structs", Arc::new(structs)),
        ("list_of_structs", Arc::new(list_of_structs)),
        ("dictionary", Arc::new(dictionary)),
    ]
}

fn maps() -> (&'static str, ArrayRef) {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in 0..ROWS {
        for key in 0..i % 3 {
            builder.keys().append_value(format!("k{key}"));
            builder.values().append_option((key != 1).then_some(i as i32));
        }
        builder.append(i % 7 != 3).unwrap();
    }
    ("maps", Arc::new(builder.finish()))
}

fn marked(name: &'static str, array: ArrayRef, extension: &str) -> (Field, ArrayRef) {
    let metadata = HashMap::from([("ARROW:extension:name".to_owned(), extension.to_owned())]);
    (Field::new(name, array.data_type().clone(), true).with_metadata(metadata), array)
}

fn batch(with_maps: bool) -> RecordBatch {
    let mut columns: Vec<(Field, ArrayRef)> = plain()
        .into_iter()
        .chain(nested())
        .chain(with_maps.then(maps))
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .collect();
    let bf16 = FixedSizeBinaryArray::try_from_iter((0..ROWS).map(|i| [i as u8, 0x3f])).unwrap();
    columns.push(marked("bf16", Arc::new(bf16), "lance.bfloat16"));
    let json = StringArray::from_iter(some(|i| format!("{{\"i\":{i}}}")));
    columns.push(marked("json", Arc::new(json), "arrow.json"));
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

#[tokio::test]
async fn every_type_as_lance_takes_it() {
    for version in [
        LanceFileVersion::V2_0,
        LanceFileVersion::V2_1,
        LanceFileVersion::V2_2,
        LanceFileVersion::V2_3,
    ] {
        let place = TablePlace::new();
        let maps = matches!(version, LanceFileVersion::V2_2 | LanceFileVersion::V2_3);
        let written = batch(maps);
        let kind = TableKind { version, stable_row_ids: false };
        let mut dataset = write(&place.uri(), &[written.clone(), written.slice(0, 1)], kind).await;
        dataset.delete("i64 = -50").await.unwrap();
        let table = lake().open(&place.uri()).await.unwrap();
        let columns = all(&table);
        let offsets: Vec<u64> = vec![199, 0, 3, 3, 120, 64];
        let addresses: Vec<_> = [200, 0, 3, 3, 121, 65]
            .map(|at| if at == 200 { RowAddr::new(1, 0) } else { RowAddr::new(0, at) })
            .to_vec();
        let request = ProjectionRequest::from_columns(&columns, dataset.schema());
        let expected = dataset.take(&offsets, request).await.unwrap();
        let got = table.take(&addresses, &columns).await.unwrap();
        assert_eq!(got.schema().fields(), expected.schema().fields(), "{version:?}");
        for (at, column) in columns.iter().enumerate() {
            assert_eq!(got.column(at), expected.column(at), "{version:?} {column}");
        }
        let chunk = table.read_chunk(0, 0..ROWS as u32, &columns).await.unwrap();
        assert_eq!(chunk.schema(), *table.schema());
        for (at, column) in columns.iter().enumerate().filter(|(_, column)| *column != "json") {
            assert_eq!(
                chunk.column(at).as_ref(),
                written.column(at).as_ref(),
                "{version:?} {column}"
            );
        }
    }
}

#[tokio::test]
async fn empty_and_tiny_tables() {
    for rows in [0, 1] {
        let place = TablePlace::new();
        let written = batch(false).slice(0, rows);
        write(
            &place.uri(),
            &[written],
            TableKind { version: LanceFileVersion::V2_1, stable_row_ids: false },
        )
        .await;
        let table = lake().open(&place.uri()).await.unwrap();
        assert_eq!(table.row_count(), rows as u64);
        let addresses: Vec<_> = (0..rows as u32).map(|at| RowAddr::new(0, at)).collect();
        assert_eq!(table.take(&addresses, &all(&table)).await.unwrap().num_rows(), rows);
        assert_eq!(table.search_filter("i64 < 0", 10).await.unwrap().rows, addresses);
    }
}
