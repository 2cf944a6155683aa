//! Ingesting faulty files gives one clear error and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int32Array, IntervalYearMonthArray, RecordBatch, RecordBatchIterator, StringArray,
};
use lake::{IngestMode, IngestOptions, LakeError, fault_of, ingest};
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use wire::Reason;

use crate::fixture::{TablePlace, lake, rows};
use crate::ingest::{write_parquet, write_text};

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

/// Tries to create a table from `files`. Checks that no table is left, and returns the error.
async fn fails(place: &TablePlace, files: &[PathBuf], options: &IngestOptions) -> LakeError {
    let error = ingest(&lake(), files, &place.uri(), options, |_| ()).await.unwrap_err();
    println!("{error}");
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains(".rs:"), "{text}");
    assert!(!Path::new(&place.uri()).exists(), "{:?}", files_in(Path::new(&place.uri())));
    error
}

async fn text_fails(name: &str, text: &str) -> String {
    let place = TablePlace::new();
    let path = place.file(name);
    write_text(&path, text);
    let error = fails(&place, std::slice::from_ref(&path), &IngestOptions::default()).await;
    assert!(matches!(&error, LakeError::BadFile { path: at, .. } if *at == path), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn ragged_csv() {
    assert!(
        text_fails("a.csv", "a,b\n1,2\n3\n")
            .await
            .ends_with("a.csv: line 3 has 1 field, the header has 2")
    );
    let late: String = (0..30_000)
        .map(|i| if i == 25_000 { "1,2,3\n".into() } else { format!("{i},x\n") })
        .collect();
    let said = text_fails("a.csv", &format!("a,b\n{late}")).await;
    assert!(said.contains("line 25002 has 3 fields, the header has 2"), "{said}");
    let late: String = (0..30_000)
        .map(|i| if i == 25_000 { "oops,x\n".into() } else { format!("{i},x\n") })
        .collect();
    let said = text_fails("a.csv", &format!("a,b\n{late}")).await;
    assert!(said.contains(r#"line 25002: column "a": can't read 'oops'"#), "{said}");
    assert!(text_fails("a.csv", "a,a\n1,2\n").await.contains("twice"));
    assert!(text_fails("a.csv", "a,\n1,2\n").await.contains("no name"));
}

#[tokio::test]
async fn bad_json() {
    let said = text_fails("a.jsonl", "{\"a\":1}\n\n{\"a\":\n").await;
    assert!(
        said.ends_with("line 3 isn't a JSON object: EOF while parsing a value (character 5)"),
        "{said}"
    );
    let said = text_fails("a.jsonl", "{\"a\":1}\n[1]\n").await;
    assert!(said.ends_with("line 2 isn't a JSON object, but another value"), "{said}");
    let late = |bad: &str| -> String {
        let line = |i| if i == 25_000 { format!("{bad}\n") } else { format!("{{\"a\":{i}}}\n") };
        (0..30_000).map(line).collect()
    };
    let said = text_fails("a.jsonl", &late("{\"a\":\"x\"}")).await;
    assert!(said.contains(r#"line 25001: column "a": can't read "x" as Int64 (types "#), "{said}");
    let said = text_fails("a.jsonl", &late("{\"b\":1}")).await;
    assert!(said.contains(r#"line 25001: column "b" is not among the columns"#), "{said}");
    let said = text_fails("a.jsonl", &late("{\"a\":")).await;
    assert!(said.contains("line 25001: "), "{said}");
}

#[tokio::test]
async fn files_that_lie() {
    assert!(text_fails("a.parquet", "a,b\n1,2\n").await.contains("not what its name says"));
    assert!(text_fails("a.arrow", "a,b\n1,2\n").await.contains("not what its name says"));
    assert!(text_fails("a.parquet", "PAR1 garbage PAR1").await.contains("a.parquet: "));
    assert!(text_fails("a.arrow", "ARROW1\0\0 garbage").await.contains("a.arrow: "));
    let place = TablePlace::new();
    let error = fails(&place, &[place.file("none.csv")], &IngestOptions::default()).await;
    assert!(matches!(error, LakeError::BadFile { .. }));
    let error = fails(&place, &[], &IngestOptions::default()).await;
    assert!(matches!(error, LakeError::BadQuery { .. }));
}

#[tokio::test]
async fn files_that_disagree() {
    let place = TablePlace::new();
    let (a, b, c) = (place.file("a.parquet"), place.file("b.parquet"), place.file("c.csv"));
    write_parquet(&a, &[rows(0, 10)]);
    let other =
        RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["x"])) as ArrayRef)])
            .unwrap();
    write_parquet(&b, &[other]);
    write_text(&c, "id,name,text,extra\n1,a,b,c\n");
    for (second, column) in [(&b, "id"), (&c, "extra")] {
        match fails(&place, &[a.clone(), second.clone()], &IngestOptions::default()).await {
            LakeError::SchemaMismatch { path, column: at, .. } => {
                assert_eq!((&path, at.as_str()), (second, column))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_table_that_is_there_is_left_alone() {
    let place = TablePlace::new();
    let lake = lake();
    let (a, b) = (place.file("a.parquet"), place.file("b.csv"));
    write_parquet(&a, &[rows(0, 10)]);
    let append = IngestOptions { mode: IngestMode::Append, ..Default::default() };
    let error =
        ingest(&lake, std::slice::from_ref(&a), &place.uri(), &append, |_| ()).await.unwrap_err();
    assert!(matches!(error, LakeError::TableNotFound { .. }));
    ingest(&lake, std::slice::from_ref(&a), &place.uri(), &IngestOptions::default(), |_| ())
        .await
        .unwrap();
    let before = files_in(Path::new(&place.uri()));
    let error =
        ingest(&lake, std::slice::from_ref(&a), &place.uri(), &IngestOptions::default(), |_| ())
            .await
            .unwrap_err();
    assert!(error.to_string().contains("--mode append"), "{error}");
    assert!(matches!(error, LakeError::TableExists { .. }));
    // The ingest fails in the middle, after thousands of good rows.
    let late: String =
        (0..60_000).map(|i| if i == 50_000 { "x\n".into() } else { format!("{i}\n") }).collect();
    write_text(&b, &format!("id\n{late}"));
    for mode in [IngestMode::Append, IngestMode::Overwrite] {
        let options = IngestOptions { mode, max_rows_per_file: 10_000, ..Default::default() };
        let error = ingest(&lake, std::slice::from_ref(&b), &place.uri(), &options, |_| ())
            .await
            .unwrap_err();
        println!("{error}");
        assert!(matches!(error, LakeError::BadFile { .. }), "{error:?}");
        assert_eq!(files_in(Path::new(&place.uri())), before, "{mode}");
    }
    assert_eq!(lake.open(&place.uri()).await.unwrap().row_count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_another_writer_replaces_meanwhile_is_left_alone() {
    let place = TablePlace::new();
    let lake = lake();
    let file = place.file("a.parquet");
    write_parquet(&file, &[rows(0, 10)]);
    let files = std::slice::from_ref(&file);
    ingest(&lake, files, &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let (uri, runtime) = (place.uri(), tokio::runtime::Handle::current());
    let replace = move |_| {
        let others = RecordBatchIterator::new([Ok(rows(0, 3))], rows(0, 3).schema());
        let params = WriteParams { mode: WriteMode::Overwrite, ..Default::default() };
        runtime.block_on(Dataset::write(others, &uri, Some(params))).unwrap();
    };
    let append = IngestOptions { mode: IngestMode::Append, ..Default::default() };
    let error = ingest(&lake, files, &place.uri(), &append, replace).await.unwrap_err();
    let fault = fault_of(&error);
    assert_eq!(fault.reason, Reason::Conflict, "{fault}");
    let said = format!("another writer changed {} at the same time, so the change", place.uri());
    assert!(fault.message.starts_with(&said), "{fault}");
    assert_eq!(lake.open(&place.uri()).await.unwrap().row_count(), 3);
}

#[tokio::test]
async fn keys_must_be_there_and_not_null() {
    let place = TablePlace::new();
    let path = place.file("a.parquet");
    write_parquet(&path, &[rows(0, 100)]);
    let key = |column: &str| IngestOptions { key: Some(column.into()), ..Default::default() };
    assert!(matches!(
        fails(&place, std::slice::from_ref(&path), &key("nope")).await,
        LakeError::ColumnNotFound { .. }
    ));
    let error = fails(&place, &[path], &key("name")).await;
    assert!(error.to_string().ends_with(r#"row 1: the key column "name" is null"#), "{error}");
}

#[tokio::test]
async fn types_that_lance_lacks() {
    let place = TablePlace::new();
    let path = place.file("a.arrow");
    let months = Arc::new(IntervalYearMonthArray::from(vec![1, 2])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("i", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef),
        ("months", months),
    ])
    .unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(
        std::fs::File::create(&path).unwrap(),
        &batch.schema(),
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    match fails(&place, &[path], &IngestOptions::default()).await {
        LakeError::UnsupportedType { column, .. } => assert_eq!(column, "months"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_written() {
    let place = TablePlace::new();
    let path = place.file("a.parquet");
    write_parquet(&path, &[rows(0, 10)]);
    // Put a file where the folder should be.
    write_text(&place.file("table"), "in the way");
    let error = ingest(&lake(), &[path], &place.uri(), &IngestOptions::default(), |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, LakeError::BadUri { .. }), "{error:?}");
    assert!(error.to_string().ends_with("a part of the path is a file, not a folder"), "{error}");
    let error = ingest(&lake(), &[place.file("a.parquet")], "/proc/t", &Default::default(), |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, LakeError::StoreRefuses { .. }), "{error:?}");
    assert!(error.to_string().starts_with("/proc/t: the folder can't be made here"), "{error}");
}

#[tokio::test]
async fn names_that_lance_reserves() {
    for name in ["_rowid", "_rowaddr"] {
        let place = TablePlace::new();
        let path = place.file("a.csv");
        write_text(&path, &format!("a,{name}\n1,2\n"));
        let error = fails(&place, &[path], &IngestOptions::default()).await;
        assert!(matches!(&error, LakeError::ReservedColumn { column } if column == name));
    }
}
