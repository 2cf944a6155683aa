//! Handmade files with impossible metadata. Random damage to files that Lance wrote is tested in
//! `tests/lake/damaged.rs`.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use prost::encoding::encode_varint;

use super::super::mark::unmarked;
use super::*;

fn varint(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(number, &mut bytes);
    bytes
}

fn number(field: u64, number: u64) -> Vec<u8> {
    [varint(field << 3), varint(number)].concat()
}

fn bytes(field: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A schema's fields, each the child of the one before.
fn nested(depth: u64) -> Vec<u8> {
    let field = |id: u64| [number(3, id), number(4, id.wrapping_sub(1))].concat();
    (0..depth).flat_map(|id| bytes(1, &field(id))).collect()
}

fn manifest_of(message: &[u8]) -> Vec<u8> {
    manifest_with(&[], message)
}

/// A manifest with a section of indexes.
fn manifest_with(indexes: &[u8], message: &[u8]) -> Vec<u8> {
    let mut file = indexes.to_vec();
    file.extend((message.len() as u32).to_le_bytes());
    file.extend(message);
    file.extend((indexes.len() as u64).to_le_bytes());
    file.extend([0, 0, 2, 0]);
    file.extend(MAGIC);
    file
}

/// A Lance file with `front` bytes of pages, one column and a schema.
struct TestFile {
    front: usize,
    schema: Vec<u8>,
    column: Vec<u8>,
    globals: u32,
    columns: u32,
}

impl TestFile {
    fn new() -> Self {
        let schema = bytes(1, &nested(1));
        let (front, globals, columns) = (100, 1, 1);
        Self { front, schema, column: page(&[(0, 60), (64, 36)], 10), globals, columns }
    }

    fn written(&self) -> Vec<u8> {
        let mut file = vec![7; self.front];
        file.extend(&self.schema);
        let columns = file.len() as u64;
        file.extend(&self.column);
        let offsets = file.len() as u64;
        for number in [columns, self.column.len() as u64] {
            file.extend(number.to_le_bytes());
        }
        let globals = file.len() as u64;
        for number in [self.front as u64, self.schema.len() as u64, columns, offsets, globals] {
            file.extend(number.to_le_bytes());
        }
        file.extend(self.globals.to_le_bytes());
        file.extend(self.columns.to_le_bytes());
        file.extend([2, 0, 1, 0]);
        file.extend(MAGIC);
        file
    }
}

fn page(buffers: &[(u64, u64)], rows: u64) -> Vec<u8> {
    let offsets: Vec<u8> = buffers.iter().flat_map(|(offset, _)| varint(*offset)).collect();
    let sizes: Vec<u8> = buffers.iter().flat_map(|(_, size)| varint(*size)).collect();
    bytes(2, &[bytes(1, &offsets), bytes(2, &sizes), number(3, rows)].concat())
}

/// A deletion file with an array of offsets, as Lance writes it.
fn array(rows: u32) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![Field::new("row_id", DataType::UInt32, false)]));
    let column = Arc::new(UInt32Array::from_iter_values((0..rows).map(|row| row * 3)));
    let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
    let options = IpcWriteOptions::default();
    let options = options.try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut file, &schema, options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    file
}

/// Reads `file` as Lance does: whole, and its last `tail` bytes.
async fn read(path: &str, file: Vec<u8>, tail: u64) -> Result<(), String> {
    let (inner, path) = (InMemory::new(), Path::from(path));
    let size = file.len() as u64;
    inner.put(&path, file.clone().into()).await.unwrap();
    let store = CheckedStore::new(Arc::new(inner));
    let whole = store.get(&path).await;
    let last = store.get_range(&path, size.saturating_sub(tail)..size).await;
    // Deletions are read whole.
    let is_whole = path.as_ref().contains("_deletions");
    assert!(is_whole || whole.is_ok() == last.is_ok(), "{last:?}");
    match whole {
        Ok(answer) => {
            assert_eq!(answer.bytes().await.unwrap(), file);
            Ok(())
        }
        Err(StoreError::Generic { source, .. }) => {
            let damaged = source.downcast_ref::<Damaged>().expect("its own error");
            Err(unmarked(&damaged.to_string()))
        }
        Err(error) => panic!("{error}"),
    }
}

async fn refused(path: &str, file: Vec<u8>, why: &str) {
    for tail in [48, 1 << 20] {
        let error = read(path, file.clone(), tail).await.unwrap_err();
        assert!(error.starts_with(&format!("{path} is damaged: ")), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn manifests() {
    const PATH: &str = "t/_versions/1.manifest";
    for (depth, fragments) in [(64, 1000), (1, 1 << 20)] {
        let fragments: Vec<u8> = (0..fragments).flat_map(|_| bytes(2, &[])).collect();
        read(PATH, manifest_of(&[nested(depth), fragments].concat()), 48).await.unwrap();
    }
    refused(PATH, manifest_of(&nested(65)), "nests deeper than 64").await;
    refused(PATH, manifest_of(&nested(100_000)), "nests deeper than 64").await;
    let wide: Vec<u8> = (0..40_000).flat_map(|id| bytes(1, &number(3, id))).collect();
    refused(PATH, manifest_of(&wide), "more than 32768 fields").await;
    let empty: Vec<u8> = bytes(2, &[]).repeat((1 << 22) + 1);
    refused(PATH, manifest_of(&empty), "more than 4194304 entries").await;
    let inner = bytes(2, &bytes(2, &[]).repeat((1 << 22) + 1));
    refused(PATH, manifest_of(&inner), "more than 4194304 entries").await;
    refused(PATH, manifest_of(&[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]), "breaks off").await;
    let base = |path: &str, is_root| {
        let base = [number(1, 1), number(3, u64::from(is_root)), bytes(4, path.as_bytes())];
        manifest_of(&bytes(18, &base.concat()))
    };
    for path in ["s3://b/t/_deletions", "s3://b/t/_versions/", "/t/_versions//"] {
        refused(PATH, base(path, false), "has no data files, by its name").await;
        read(PATH, base(path, true), 48).await.unwrap();
    }
    read(PATH, base("s3://b/t/_deletions/x", false), 48).await.unwrap();
    let mut file = manifest_of(&nested(1));
    let at = file.len() - 16;
    file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(PATH, file, "its message is at 18446744073709551615").await;
    let mut file = manifest_of(&nested(1));
    file[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused(PATH, file, "says that it has 4294967295 bytes").await;
}

#[tokio::test]
async fn indexes_in_manifests() {
    const PATH: &str = "t/_versions/1.manifest";
    let manifest = |indexes: &[u8], at: u64| {
        let section = [&(indexes.len() as u32).to_le_bytes(), indexes].concat();
        manifest_with(&section, &number(6, at))
    };
    let indexes = bytes(1, &bytes(10, &[]).repeat(100)).repeat(100);
    // The first read brings the message in part, in whole, or with the section.
    for tail in [20, 30, 1 << 20] {
        read(PATH, manifest(&indexes, 0), tail).await.unwrap();
    }
    let empty = bytes(1, &[]).repeat((1 << 22) + 1);
    refused(PATH, manifest(&empty, 0), "more than 4194304 entries").await;
    let files = bytes(1, &bytes(10, &[]).repeat((1 << 22) + 1));
    refused(PATH, manifest(&files, 0), "more than 4194304 entries").await;
    refused(PATH, manifest(&[0x0a, 5], 0), "breaks off").await;
    refused(PATH, manifest(&indexes, 1 << 40), "its section of indexes is at 1099511627776").await;
    let mut file = manifest(&indexes, 0);
    file[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused(PATH, file, "its section of indexes has no 4294967295 bytes").await;
}

#[tokio::test]
async fn row_ids_in_manifests() {
    const PATH: &str = "t/_versions/1.manifest";
    let segment = |kind, start, end| bytes(kind, &[number(1, start), number(2, end)].concat());
    let manifest = |rows, segments: &[Vec<u8>]| {
        let sequence: Vec<u8> = segments.iter().flat_map(|it| bytes(1, it)).collect();
        manifest_of(&bytes(2, &[bytes(5, &sequence), number(4, rows)].concat()))
    };
    let wide = |id: u64| bytes(3, &bytes(2, &id.to_le_bytes()));
    let based = |base| bytes(1, &[number(1, base), bytes(2, &[0, 0])].concat());
    for segments in [
        vec![segment(1, 5, 105)],
        vec![segment(1, 5, 55), segment(1, 105, 155)],
        // Each byte of a sequence may stand for eight ids that are no row's.
        vec![segment(2, 0, 120)],
        vec![segment(3, 0, 120)],
        vec![bytes(4, &wide(1 << 40)), bytes(5, &based(1 << 40))],
    ] {
        read(PATH, manifest(100, &segments), 48).await.unwrap();
    }
    for kind in 1..=3 {
        let why = "a fragment of 100 rows has ranges of 549755813888 row ids";
        refused(PATH, manifest(100, &[segment(kind, 0, 1 << 39)]), why).await;
        let halves = [segment(kind, 0, 1 << 38), segment(kind, 1 << 38, 1 << 39)];
        refused(PATH, manifest(100, &halves), why).await;
        let parts = [segment(kind, 0, 100), segment(kind, 0, 1 << 39)].concat();
        refused(PATH, manifest(100, &[parts]), "is not one range or array").await;
    }
    let large = [segment(1, 1 << 52, (1 << 52) + 100), bytes(4, &wide(1 << 52))];
    for segment in large.into_iter().chain([bytes(5, &based(1 << 52))]) {
        refused(PATH, manifest(100, &[segment]), "has the row id 45035").await;
    }
    let rows = |fragments| bytes(2, &number(4, u64::from(u32::MAX))).repeat(fragments);
    read(PATH, manifest_of(&rows(256)), 48).await.unwrap();
    refused(PATH, manifest_of(&rows(257)), "more than 1099511627776 rows").await;
}

#[tokio::test]
async fn files_of_data() {
    const PATH: &str = "t/data/a.lance";
    for tail in [48, 1 << 20] {
        read(PATH, TestFile::new().written(), tail).await.unwrap();
    }
    // A Lance file is recognised by its last bytes, not by its name.
    let counts = TestFile { globals: u32::MAX, ..TestFile::new() };
    refused("t/data/anything", counts.written(), "4294967295 global buffers").await;
    refused(
        PATH,
        TestFile { columns: u32::MAX, ..TestFile::new() }.written(),
        "4294967295 columns",
    )
    .await;
    let of = |column| TestFile { column, ..TestFile::new() }.written();
    refused(PATH, of(page(&[(0, 1 << 62)], 10)), "a buffer is at 0, 4611686018427387904 bytes")
        .await;
    refused(PATH, of(page(&[(u64::MAX, 2)], 10)), "a buffer is at 18446744073709551615").await;
    refused(PATH, of(page(&[(0, 100)], 1 << 40)), "1099511627776 rows").await;
    refused(PATH, of(page(&[(0, 100)], 1).repeat(100)), "overlap").await;
    refused(PATH, of([bytes(3, &[0]), page(&[], 1)].concat()), "1 buffers with 0 sizes").await;
    let schema = bytes(1, &nested(100_000));
    refused(PATH, TestFile { schema, ..TestFile::new() }.written(), "nests deeper than 64").await;
    for number in 0..3 {
        let mut file = TestFile::new().written();
        let at = file.len() - 40 + 8 * number;
        file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        refused(PATH, file, "its footer has columns at").await;
    }
}

#[tokio::test]
async fn files_of_deletions() {
    const ARRAY: &str = "t/_deletions/0-1-2.arrow";
    const BITMAP: &str = "t/_deletions/0-1-2.bin";
    read(ARRAY, array(5_000), 48).await.unwrap();
    let good = array(5_000);
    // A compressed buffer begins with its uncompressed length.
    let at = good.windows(8).position(|it| it == 20_000u64.to_le_bytes()).unwrap();
    for length in [1 << 40, i64::MAX, -2] {
        let mut file = good.clone();
        file[at..at + 8].copy_from_slice(&length.to_le_bytes());
        let error = read(ARRAY, file, 48).await.unwrap_err();
        assert!(error.contains("take more than") || error.contains("is negative"), "{error}");
    }
    let mut bitmap = Vec::new();
    (0..100_000).collect::<roaring::RoaringBitmap>().serialize_into(&mut bitmap).unwrap();
    read(BITMAP, bitmap.clone(), 48).await.unwrap();
    bitmap[4..8].copy_from_slice(&65_536u32.to_le_bytes());
    let error = read(BITMAP, bitmap, 48).await.unwrap_err();
    assert!(error.contains("65536 containers"), "{error}");
    for file in [vec![], vec![0; 3]] {
        read(BITMAP, file.clone(), 48).await.unwrap_err();
        read(ARRAY, file, 48).await.unwrap_err();
    }
}
