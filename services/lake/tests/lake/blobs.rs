//! Blobs are read with their contents, however they are stored.

use std::collections::HashMap;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, LargeBinaryArray, RecordBatch, StructArray,
};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use lake::LakeError;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance_file::version::LanceFileVersion;

use crate::fixture::{TableKind, TablePlace, lake, names, write};

const ROWS: usize = 60;

/// Returns the contents of the blob in `row`: null, empty, small, or above the thresholds for storing blobs inline and
/// packed.
fn contents(row: usize) -> Option<Vec<u8>> {
    match row % 6 {
        0 => None,
        1 => Some(vec![]),
        2 => Some(vec![row as u8; 100]),
        3 => Some(vec![row as u8; 100_000]),
        4 if row == 4 => Some(vec![row as u8; 5 << 20]),
        _ => Some(vec![row as u8; 3000 + row]),
    }
}

fn ids() -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(0..ROWS as i32))
}

fn v1() -> RecordBatch {
    let metadata = HashMap::from([
        ("lance-encoding:blob".to_owned(), "true".to_owned()),
        ("mine".into(), "kept".into()),
    ]);
    let field = Field::new("blob", DataType::LargeBinary, true).with_metadata(metadata);
    let blobs = LargeBinaryArray::from_iter((0..ROWS).map(contents));
    let schema = Schema::new(vec![Field::new("id", DataType::Int32, false), field]);
    RecordBatch::try_new(Arc::new(schema), vec![ids(), Arc::new(blobs)]).unwrap()
}

fn v2_array() -> ArrayRef {
    let mut blobs = BlobArrayBuilder::new(ROWS);
    for row in 0..ROWS {
        match contents(row) {
            None => blobs.push_null().unwrap(),
            Some(bytes) if bytes.is_empty() => blobs.push_empty().unwrap(),
            Some(bytes) => blobs.push_bytes(bytes).unwrap(),
        }
    }
    blobs.finish().unwrap()
}

fn v2() -> RecordBatch {
    let schema =
        Schema::new(vec![Field::new("id", DataType::Int32, false), blob_field("blob", true)]);
    RecordBatch::try_new(Arc::new(schema), vec![ids(), v2_array()]).unwrap()
}

fn nested_v2() -> RecordBatch {
    let fields: Fields =
        vec![Field::new("n", DataType::Int32, true), blob_field("blob", true)].into();
    let inner = StructArray::new(fields.clone(), vec![ids(), v2_array()], None);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("s", DataType::Struct(fields), true),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![ids(), Arc::new(inner)]).unwrap()
}

fn check(blobs: &LargeBinaryArray, rows: impl Iterator<Item = usize>) {
    for (at, row) in rows.enumerate() {
        let expected = contents(row);
        assert_eq!(blobs.is_valid(at).then(|| blobs.value(at)), expected.as_deref(), "row {row}");
    }
}

#[tokio::test]
async fn contents_of_both_kinds() {
    let cases = [
        (v1(), LanceFileVersion::V2_0, false),
        (v1(), LanceFileVersion::V2_1, true),
        (v2(), LanceFileVersion::V2_2, false),
        (v2(), LanceFileVersion::V2_2, true),
    ];
    for (batch, version, stable_row_ids) in cases {
        let place = TablePlace::new();
        let kind = TableKind { version, stable_row_ids };
        let mut dataset = write(&place.uri(), &[batch.clone(), batch], kind).await;
        dataset.delete("id = 10").await.unwrap();
        let table = lake().open(&place.uri()).await.unwrap();
        assert!(table.is_blob("blob").unwrap() && !table.is_blob("id").unwrap());
        let field = table.schema().field_with_name("blob").unwrap().clone();
        assert_eq!(field.data_type(), &DataType::LargeBinary);
        if version != LanceFileVersion::V2_2 {
            assert_eq!(field.metadata()["mine"], "kept");
        }
        for fragment in [0, 1] {
            let chunk = table.read_chunk(fragment, 5..60, &names(&["blob", "id"])).await.unwrap();
            assert_eq!(chunk.schema().field(0), &field);
            assert_eq!(chunk.num_rows(), 55);
            let blobs = chunk.column(0).as_binary::<i64>();
            check(&blobs.slice(0, 5), 5..10);
            check(&blobs.slice(6, 49), 11..60);
        }
        let rows = [59, 4, 4, 0, 1, 33, 12];
        let addresses: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| RowAddr::new(at as u32 % 2, *row as u32))
            .collect();
        let taken = table.take(&addresses, &names(&["id", "blob"])).await.unwrap();
        check(taken.column(1).as_binary::<i64>(), rows.into_iter());
        let only = table.take(&addresses, &names(&["id"])).await.unwrap();
        assert_eq!(only.column(0), taken.column(0));
    }
}

#[tokio::test]
async fn descriptors_are_those_of_lances_own_scan() {
    for (batch, version) in [
        (v1(), LanceFileVersion::V2_1),
        (v2(), LanceFileVersion::V2_2),
        (nested_v2(), LanceFileVersion::V2_2),
    ] {
        let place = TablePlace::new();
        let kind = TableKind { version, stable_row_ids: true };
        let mut dataset = write(&place.uri(), &[batch.clone(), batch], kind).await;
        dataset.delete("id = 10").await.unwrap();
        let table = lake().open(&place.uri()).await.unwrap();
        let name = table.schema().field(1).name().clone();
        assert!(table.has_blobs(&name).unwrap() && !table.has_blobs("id").unwrap());
        let scanned = dataset.scan().with_row_address().try_into_batch().await.unwrap();
        let addresses = scanned["_rowaddr"].as_primitive::<arrow::datatypes::UInt64Type>();
        let addresses = addresses.values().iter().map(|&addr| RowAddr::from_u64(addr));
        let addresses: Vec<_> = addresses.collect();
        let columns = [name.clone(), "id".to_owned()];
        let found = table.descriptors(&addresses, &columns).await.unwrap();
        assert_eq!(found.schema(), table.descriptor_schema(&columns).unwrap());
        assert_eq!(found[name.as_str()].data_type(), scanned[name.as_str()].data_type());
        assert!(found[name.as_str()].as_ref() == scanned[name.as_str()].as_ref(), "{version:?}");
        assert!(found["id"].as_ref() == scanned["id"].as_ref());
        let lance = Schema::from(dataset.schema());
        let reported = table.lance_schema().unwrap();
        assert_eq!(reported.field(1).data_type(), lance.field(1).data_type());
        assert_eq!(reported.field(1).metadata(), lance.field(1).metadata());
    }
}

#[tokio::test]
async fn ranges_of_blobs() {
    for (batch, version) in [(v1(), LanceFileVersion::V2_1), (v2(), LanceFileVersion::V2_2)] {
        let place = TablePlace::new();
        let kind = TableKind { version, stable_row_ids: false };
        let mut dataset = write(&place.uri(), &[batch], kind).await;
        dataset.delete("id = 10").await.unwrap();
        let table = lake().open(&place.uri()).await.unwrap();
        let rows = [4, 0, 3, 4, 1, 2];
        let addresses = rows.map(|row| RowAddr::new(0, row));
        let blobs = table.blobs("blob", &addresses).await.unwrap();
        for (row, blob) in rows.into_iter().zip(blobs) {
            let expected = contents(row as usize);
            assert_eq!(
                blob.as_ref().map(|it| it.size()),
                expected.as_ref().map(|it| it.len() as u64)
            );
            let (Some(blob), Some(expected)) = (blob, expected) else { continue };
            for range in
                [0..expected.len(), 10..20, expected.len().saturating_sub(3)..expected.len()]
            {
                let range = range.start.min(expected.len())..range.end.min(expected.len());
                let read = blob.read(range.start as u64..range.end as u64).await.unwrap();
                assert_eq!(read, expected[range]);
            }
        }
        let gone = table.blobs("blob", &[RowAddr::new(0, 10)]).await.err().unwrap();
        assert!(matches!(gone, LakeError::RowNotFound { .. }), "{gone}");
        let other = table.blobs("id", &[RowAddr::new(0, 1)]).await.err().unwrap();
        assert!(other.to_string().contains("holds no blobs"), "{other}");
    }
}

#[tokio::test]
async fn nested_blobs() {
    let place = TablePlace::new();
    write(
        &place.uri(),
        &[nested_v2()],
        TableKind { version: LanceFileVersion::V2_2, stable_row_ids: false },
    )
    .await;
    let table = lake().open(&place.uri()).await.unwrap();
    let chunk = table.read_chunk(0, 0..60, &names(&["s"])).await.unwrap();
    check(chunk.column(0).as_struct().column_by_name("blob").unwrap().as_binary(), 0..60);
    let taken =
        table.take(&[RowAddr::new(0, 9), RowAddr::new(0, 3)], &names(&["s"])).await.unwrap();
    check(
        taken.column(0).as_struct().column_by_name("blob").unwrap().as_binary(),
        [9, 3].into_iter(),
    );
}
