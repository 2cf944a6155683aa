//! Tests of exact bytes and offsets of small examples, the index's RAM, and errors.

mod arbitrary;

use std::slice::from_ref;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder, StringBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Int8Array,
    Int16Array, Int64Array, LargeBinaryArray, ListArray, NullArray, StringArray, StructArray,
    make_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef};
use pack::{Assembler, Extent, ExtentIndex, Form, PackError, PackLayout, RowSpan};

fn layout(columns: &[ArrayRef]) -> PackLayout {
    let field = |(i, column): (usize, &ArrayRef)| -> FieldRef {
        Arc::new(Field::new(format!("c{i}"), column.data_type().clone(), true))
    };
    PackLayout::new(&columns.iter().enumerate().map(field).collect::<Vec<_>>()).unwrap()
}

fn encode(columns: &[ArrayRef]) -> Extent {
    layout(columns).encode(columns).unwrap()
}

fn row(extent: &Extent, row: u32) -> &[u8] {
    let RowSpan { offset, len } = extent.index.span(row).unwrap();
    &extent.bytes[offset as usize..][..len as usize]
}

/// Encodes `value` together with a column of true booleans, and returns the bytes of row 0 after the boolean.
fn nested(value: ArrayRef) -> Vec<u8> {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true; value.len()]));
    let extent = encode(&[flags, value]);
    let bytes = row(&extent, 0);
    assert_eq!(bytes[..2], [0b11, 1]);
    bytes[2..].to_vec()
}

#[test]
fn a_row_is_a_bitmap_a_fixed_part_and_a_variable_part() {
    let numbers: ArrayRef = Arc::new(Int16Array::from(vec![Some(7), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), Some("c")]));
    let blobs: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![None, Some(b"xyz")]));
    let extent = encode(&[numbers, texts, blobs]);
    assert_eq!(extent.index.form(), Form::Row);
    // bitmap, i16, end of the text, end of the blob | text | blob
    assert_eq!(row(&extent, 0), [0b011, 7, 0, 13, 0, 0, 0, 13, 0, 0, 0, b'a', b'b']);
    assert_eq!(row(&extent, 1), b"\x06\0\0\x0c\0\0\0\x0f\0\0\0cxyz");
    assert_eq!(extent.index.span(1), Some(RowSpan { offset: 13, len: 15 }));
    assert_eq!((extent.index.sectors(), extent.bytes.len()), (1, 4096));
    assert!(extent.bytes[28..].iter().all(|&byte| byte == 0));
}

#[test]
fn rows_of_constant_width_take_no_ram_each() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
    let triples = vec![Some(vec![Some(1), None, Some(-1)]), None];
    let triples: ArrayRef =
        Arc::new(FixedSizeListArray::from_iter_primitive::<Int8Type, _, _>(triples, 3));
    let extent = encode(&[flags, triples]);
    // bitmap, boolean, the list's bitmap, its items
    assert_eq!(extent.bytes[..12], [0b11, 1, 0b101, 1, 0, 255, 0, 0, 0, 0, 0, 0]);
    assert_eq!(extent.index.span(1), Some(RowSpan { offset: 6, len: 6 }));
    assert_eq!(extent.index.ram_bytes(), size_of::<ExtentIndex>() + 4);
}

#[test]
fn a_row_of_a_vector_pack_is_the_vector_and_nulls_are_in_the_index() {
    let value = |row: usize, i: usize| (row * 10_000 + i) as f32;
    let vectors = arbitrary::vectors(3, 1024, value);
    let extent = encode(from_ref(&vectors));
    assert_eq!((extent.index.form(), extent.index.sectors()), (Form::Plain, 3));
    let expected = (0..3).flat_map(|row| (0..1024).flat_map(move |i| value(row, i).to_le_bytes()));
    assert!(extent.bytes.iter().copied().eq(expected));
    assert!(!extent.index.is_null(1));

    let nulls = Some(vec![true, false, true].into());
    let (item, values) = match vectors.data_type() {
        DataType::FixedSizeList(item, _) => {
            (item.clone(), vectors.to_data().child_data()[0].clone())
        }
        _ => unreachable!(),
    };
    let nullable = FixedSizeListArray::new(item, 1024, make_array(values), nulls);
    let with_null = encode(&[Arc::new(nullable)]);
    assert_eq!((with_null.index.form(), with_null.bytes.len()), (Form::Plain, 3 * 4096));
    assert_eq!([0, 1, 2].map(|row| with_null.index.is_null(row)), [false, true, false]);
    assert!(with_null.bytes[4096..8192].iter().all(|&byte| byte == 0));
    assert_eq!(with_null.bytes[8192..], extent.bytes[8192..]);
}

#[test]
fn a_sector_holds_two_vectors_of_1536_bytes() {
    let extent = encode(&[arbitrary::vectors(5, 384, |row, _| row as f32)]);
    let offsets = [0, 1, 2, 3, 4].map(|row| extent.index.span(row).unwrap().offset);
    assert_eq!(offsets, [0, 1536, 4096, 5632, 8192]);
    assert_eq!(extent.index.sectors(), 3);
    assert_eq!(extent.index.sectors_of(3).map(|s| (s.first, s.count)), Some((1, 1)));
    assert_eq!(extent.index.span(5), None);
}

#[test]
fn vectors_with_null_elements_and_narrow_columns_with_nulls_use_the_row_form() {
    let vectors = vec![Some(vec![Some(1), None]), Some(vec![Some(2), Some(3)])];
    let vectors = FixedSizeListArray::from_iter_primitive::<Int8Type, _, _>(vectors, 2);
    let extent = encode(&[Arc::new(vectors)]);
    assert_eq!(extent.index.form(), Form::Row);
    assert_eq!((row(&extent, 0), row(&extent, 1)), (&[1, 1, 1, 0][..], &[1, 3, 2, 3][..]));

    let narrow: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
    assert_eq!(encode(&[narrow.slice(0, 1)]).index.form(), Form::Plain);
    assert_eq!(encode(from_ref(&narrow)).index.form(), Form::Row);
    assert_eq!(row(&encode(&[narrow]), 0), [1, 5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_blob_is_a_flag_and_the_value() {
    let values: Vec<Option<&[u8]>> = vec![Some(b"ab"), None, Some(b""), Some(&[9; 5000])];
    let extent = encode(&[Arc::new(LargeBinaryArray::from_opt_vec(values))]);
    assert_eq!(extent.index.form(), Form::Value);
    assert_eq!([0, 1, 2].map(|i| row(&extent, i)), [&b"\x01ab"[..], &[0], &[1]]);
    assert_eq!(extent.index.span(0), Some(RowSpan { offset: 0, len: 3 }));
    assert_eq!(extent.index.span(1).map(|span| span.len), Some(1));
    assert_eq!(extent.index.span(3), Some(RowSpan { offset: 5, len: 5001 }));
    assert_eq!(extent.index.span(4), None);
    assert!(!extent.index.is_null(1), "the null is in the row, not in the index");
}

#[test]
fn a_list_has_its_item_count_and_encoding_flags() {
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("ab"), None, Some("c")]);
    // end | 3 items, bitmap | bitmap | ends | items
    let expected = b"\x1e\0\0\0\x03\0\0\x80\x05\x02\0\0\0\x02\0\0\0\x03\0\0\0abc";
    let bytes = nested(Arc::new(texts.finish()));
    assert_eq!(bytes[0], 6 + 4 + 1 + 12 + 3);
    assert_eq!(bytes[4..], expected[4..]);

    let pairs = |second: Option<f32>| {
        let pair = FixedSizeListBuilder::new(Float32Builder::new(), 2);
        let mut pairs = ListBuilder::new(pair);
        for value in [Some(0.0), second] {
            pairs.values().values().append_value(1.0);
            pairs.values().values().append_option(value);
            pairs.values().append(true);
        }
        pairs.append(true);
        nested(Arc::new(pairs.finish()))
    };
    // 2 items in the plain encoding: their floats, one after another.
    let one = 1f32.to_le_bytes();
    let plain = [&[2, 0, 0, 0x40][..], &one, &[0; 4], &one, &one].concat();
    assert_eq!(pairs(Some(1.0))[4..], plain);
    // 2 items with a bitmap each, because one of them has a null.
    let full = [&[2, 0, 0, 0, 0b11][..], &one, &[0; 4], &[0b01], &one, &[0; 4]].concat();
    assert_eq!(pairs(None)[4..], full);
}

#[test]
fn a_struct_is_a_small_row() {
    let number: ArrayRef = Arc::new(Int16Array::from(vec![3]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["hi"]));
    let nothing: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    let field =
        |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let value = StructArray::from(vec![
        (field("n", &number), number),
        (field("t", &text), text),
        (field("u", &nothing), nothing),
    ]);
    let bytes = nested(Arc::new(value));
    assert_eq!(bytes, b"\x13\0\0\0\x03\x03\0\x0d\0\0\0\x0d\0\0\0hi");
}

#[test]
fn the_index_takes_at_most_0_3_percent_plus_two_bytes_for_each_row_of_variable_width() {
    let vectors = encode(&[arbitrary::vectors(4000, 256, |_, i| i as f32)]);
    let constant = size_of::<ExtentIndex>();
    assert!(vectors.index.ram_bytes() - constant <= vectors.bytes.len() * 3 / 1000);

    let texts: StringArray = (0..20_000)
        .map(|i| Some("x".repeat(if i % 1000 == 0 { 70_000 } else { i % 90 })))
        .collect();
    let narrow: ArrayRef = Arc::new(Int16Array::from(vec![1; 20_000]));
    for columns in [vec![Arc::new(texts.clone()) as ArrayRef], vec![narrow, Arc::new(texts)]] {
        let extent = encode(&columns);
        let bases = 20_000 / 16 * 4;
        let bound = extent.bytes.len() * 3 / 1000 + 2 * 20_000 + bases;
        let ram = extent.index.ram_bytes() - constant;
        assert!(ram <= bound, "{ram} of {bound}");
        assert_eq!(ExtentIndex::from_bytes(&extent.index.to_bytes()).unwrap(), extent.index);
    }
}

#[test]
fn columns_that_do_not_match_the_layout_are_refused_by_name() {
    let number: ArrayRef = Arc::new(Int16Array::from(vec![1, 2]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let layout = layout(&[number.clone(), text.clone()]);
    let error = |columns: &[ArrayRef]| layout.encode(columns).unwrap_err().to_string();
    assert_eq!(error(from_ref(&number)), "1 columns given, the pack has 2");
    assert_eq!(error(&[number.clone(), text.slice(1, 1)]), "column c1: 1 rows given, 2 expected");
    assert_eq!(error(&[text.clone(), text]), "column c0: type Utf8 given, Int16 expected");
}

#[test]
fn a_chunk_of_4_gib_is_refused_before_it_is_written() {
    // All 64 columns share one value of 64 MiB, so the test does not allocate the 4 GiB.
    let value: ArrayRef = Arc::new(LargeBinaryArray::from_vec(vec![&vec![0u8; 64 << 20]]));
    let columns = vec![value; 64];
    let error = layout(&columns).encode(&columns).unwrap_err();
    assert!(matches!(error, PackError::TooLarge { rows: 1 }), "{error}");
    let oversized: ArrayRef = Arc::new(NullArray::new(1 << 33));
    let columns = vec![oversized; 2];
    let error = layout(&columns).encode(&columns).unwrap_err();
    assert!(matches!(error, PackError::TooLarge { .. }), "{error}");
}

#[test]
fn an_assembler_refuses_invalid_projections_rows_and_pieces() {
    let numbers: ArrayRef = Arc::new(Int16Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let columns = [numbers.clone(), texts.clone()];
    let (layout_both, extent) = (layout(&columns), encode(&columns));
    let rows = || [(&extent.index, 0), (&extent.index, 1)];
    for projection in [&[2][..], &[0, 0]] {
        let error = Assembler::new(&layout_both, projection, rows()).err().unwrap();
        assert!(matches!(error, PackError::Projection { .. }), "{error}");
    }
    let error = Assembler::new(&layout_both, &[0], [(&extent.index, 2)]).err().unwrap();
    assert!(matches!(error, PackError::NoSuchRow { row: 2, rows: 2 }), "{error}");
    for other in [&[numbers.clone()][..], &[texts], &[numbers.clone(), numbers]] {
        let error = Assembler::new(&layout(other), &[0], rows()).err().unwrap();
        assert!(matches!(error, PackError::CorruptIndex { .. }), "{error}");
    }

    let mut assembler = Assembler::new(&layout_both, &[0, 1], rows()).unwrap();
    let bytes = row(&extent, 0);
    assert!(assembler.put(2, bytes).is_err());
    assert!(assembler.put(0, &bytes[1..]).is_err());
    assert!(assembler.put_piece(0, 1, bytes).is_err());
    assert!(assembler.put_piece(0, usize::MAX, bytes).is_err());
    assembler.put(0, bytes).unwrap();
    assert!(assembler.put(0, bytes).is_err());
    assert!(matches!(assembler.finish(), Err(PackError::Missing { count: 1 })));
}

#[test]
fn errors_of_corrupt_rows_name_column_and_reason() {
    let nothing = NullArray::new(2);
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2]), Arc::new(nothing), None);
    let columns: [ArrayRef; 2] = [Arc::new(lists), Arc::new(StringArray::from(vec!["ab"]))];
    let (layout, extent) = (layout(&columns), encode(&columns));
    // bitmap, end of the list, end of the text | 2 items, bitmap | text
    let good = row(&extent, 0).to_vec();
    assert_eq!(good, b"\x03\x0e\0\0\0\x10\0\0\0\x02\0\0\x80\x03ab");

    let decode = |projection: &[usize], at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let mut assembler = Assembler::new(&layout, projection, [(&extent.index, 0)]).unwrap();
        assembler.put(0, &bytes).and_then(|()| assembler.finish()).map_err(|e| e.to_string())
    };
    let refused =
        |column: &str, reason: &str| Err(format!("column {column}: corrupt row: {reason}"));
    let ends = "ends that descend or pass the row's end";
    assert!(decode(&[0, 1], 0, 3).is_ok());
    // Without the bitmap, 4 bytes could claim 2^30 - 1 items.
    assert_eq!(decode(&[0], 12, 0), refused("c0", "items without bytes or bitmap"));
    assert_eq!(decode(&[0], 9, 9), refused("c0", "shorter than its parts"));
    assert_eq!(decode(&[0], 1, 8), refused("c0", ends));
    assert_eq!(decode(&[1], 1, 8), refused("c1", ends), "a value within the fixed part");
    assert_eq!(decode(&[1], 5, 17), refused("c1", ends));
    assert_eq!(
        decode(&[0], 12, 0xc0),
        refused("c0", "plain items of a type that has no plain form")
    );
}

#[test]
fn a_row_of_variable_width_is_decoded_as_it_arrives_only_if_all_rows_before_it_were() {
    let numbers: ArrayRef = Arc::new(Int16Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let columns = [numbers, texts];
    let (layout, extent) = (layout(&columns), encode(&columns));
    let mut corrupt = row(&extent, 1).to_vec();
    // The end of the text.
    corrupt[3] += 1;
    let assembler =
        || Assembler::new(&layout, &[0, 1], [(&extent.index, 0), (&extent.index, 1)]).unwrap();
    let mut in_order = assembler();
    in_order.put(0, row(&extent, 0)).unwrap();
    assert!(matches!(in_order.put(1, &corrupt), Err(PackError::Corrupt { .. })));
    let mut out_of_order = assembler();
    out_of_order.put(1, &corrupt).unwrap();
    out_of_order.put(0, row(&extent, 0)).unwrap();
    assert!(matches!(out_of_order.finish(), Err(PackError::Corrupt { .. })));
}

#[test]
fn bytes_in_the_slot_of_a_null_are_not_written() {
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    let lists = |hidden: [Option<i8>; 2]| {
        let items: ArrayRef =
            Arc::new(Int8Array::from_iter([Some(1), Some(2)].into_iter().chain(hidden)));
        let nulls = Some(vec![true, false].into());
        let pairs = FixedSizeListArray::new(item.clone(), 2, items, nulls);
        let pair = Arc::new(Field::new("item", pairs.data_type().clone(), true));
        let lists = ListArray::new(pair, OffsetBuffer::from_lengths([2]), Arc::new(pairs), None);
        nested(Arc::new(lists))
    };
    assert_eq!(lists([Some(3), Some(4)]), b"\x0f\0\0\0\x02\0\0\xc0\x01\x01\x02\0\0");
    assert_eq!(lists([Some(3), None]), lists([Some(5), Some(6)]));
}

#[test]
fn pieces_give_the_bytes_of_the_whole_and_too_many_bytes_are_an_error() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3000));
    let texts = (0..3000).map(|row| (row % 7 != 0).then(|| "x".repeat(row % 50)));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(1000), "b".repeat(1000)]));
    let keys = Int8Array::from_iter_values((0..3000).map(|row| (row % 2) as i8));
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let columns_of = [vec![Arc::clone(&numbers)], vec![texts], vec![numbers, dictionary]];
    for columns in columns_of {
        let (layout, whole) = (layout(&columns), encode(&columns));
        let bytes = whole.bytes.len() as u64;
        let pieces = || -> Vec<Vec<ArrayRef>> {
            let parts = [(0, 1), (1, 1999), (2000, 1000)];
            let piece =
                |&(from, len)| columns.iter().map(|it| it.slice(from, len)).collect::<Vec<_>>();
            parts.iter().map(piece).collect()
        };
        let joined = layout.encode_within(pieces(), bytes).unwrap();
        assert_eq!((&joined.bytes, &joined.index), (&whole.bytes, &whole.index));
        let too_long = layout.encode_within(pieces(), bytes - 1).unwrap_err();
        assert!(
            matches!(too_long, PackError::TooLong { rows: 3000, bytes: it, .. } if it <= bytes),
            "{too_long}"
        );
    }
}

#[test]
fn values_of_a_dictionary_are_not_copied_beyond_the_maximum() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(1 << 20)]));
    let piece = || -> ArrayRef {
        let keys = Int8Array::from_iter_values([0; 8]);
        Arc::new(DictionaryArray::new(keys, Arc::clone(&values)))
    };
    // All rows would take 8 GiB.
    let pieces = vec![vec![piece()]; 1 << 10];
    let too_long = layout(&[piece()]).encode_within(pieces, 20 << 20).unwrap_err();
    assert!(matches!(too_long, PackError::TooLong { bytes, .. } if bytes < 32 << 20), "{too_long}");
}
