//! Tests that an ingest refuses values that their column can't hold, above all numbers in text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, UInt64Type};
use lake::{IngestMode, IngestOptions, Lake, LakeError, ingest};

use crate::fixture::{TablePlace, lake};
use crate::ingest::{write_ipc_file, write_parquet, write_text};

/// Ingests a file that is refused, and returns the error's text after the file's name.
async fn refused(
    lake: &Lake,
    place: &TablePlace,
    name: &str,
    text: &str,
    mode: IngestMode,
) -> String {
    let path = place.file(name);
    write_text(&path, text);
    let options = IngestOptions { mode, ..Default::default() };
    let error = ingest(lake, std::slice::from_ref(&path), &place.uri(), &options, |_| ())
        .await
        .unwrap_err();
    assert!(matches!(&error, LakeError::BadFile { path: at, .. } if *at == path), "{error:?}");
    error.to_string().split_once(&format!("{name}: ")).unwrap().1.to_owned()
}

fn vectors(third: &str) -> String {
    let line = |number: &str| format!("{{\"id\": 1, \"v\": [0.5, {number}, 0, 0, 0, 0, 0, 1]}}\n");
    [line("0.25"), "\n".to_owned(), line("1e38"), line(third), line("2")].concat()
}

#[tokio::test]
async fn vectors_hold_finite_numbers() {
    let (place, lake) = (TablePlace::new(), lake());
    let said = refused(&lake, &place, "a.jsonl", &vectors("1e39"), IngestMode::Create).await;
    assert_eq!(
        said,
        "line 4: column \"v\": number 2 of the vector, 1e+39, is not finite as Float32; mend it, or \
         write null for the whole vector"
    );
    assert!(!std::path::Path::new(&place.uri()).exists());
    let said = refused(&lake, &place, "a.jsonl", &vectors("NaN"), IngestMode::Create).await;
    assert!(said.starts_with("line 4 isn't a JSON object: "), "{said}");
    let path = place.file("good.jsonl");
    write_text(&path, &vectors("-3e38"));
    ingest(&lake, &[path], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    // Strings are parsed as numbers if the table's column has numbers.
    for word in ["\"NaN\"", "\"inf\"", "-1e999"] {
        let said = refused(&lake, &place, "b.jsonl", &vectors(word), IngestMode::Append).await;
        assert!(said.starts_with("line 4"), "{word}: {said}");
    }
}

#[tokio::test]
async fn numbers_too_large_for_their_column_are_refused() {
    let (place, lake) = (TablePlace::new(), lake());
    let said = refused(&lake, &place, "a.csv", "x,y\n1.5,2\n1e309,3\n", IngestMode::Create).await;
    assert_eq!(
        said,
        "line 3: column \"x\": 1e309 is too large for Float64; mend it, or write inf if it is \
         meant to be infinite"
    );
    let rows = (0..20_000).map(|i| if i % 3 == 0 { "-inf,1.5\n" } else { "1.5,Infinity\n" });
    let text: String = std::iter::once("x,y\n1.5,1.5\n").chain(rows).collect();
    let paths = [place.file("first.csv"), place.file("b.csv")];
    write_text(&paths[0], "x,y\n1.5,1.5\n");
    write_text(&paths[1], &text);
    ingest(&lake, &paths, &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let late = text + "0.5,-1e400\n";
    let said = refused(&lake, &place, "c.csv", &late, IngestMode::Append).await;
    assert!(said.starts_with("line 20003: column \"y\": -1e400 is too large"), "{said}");
}

#[tokio::test]
async fn csv_holds_no_lists() {
    let (place, lake) = (TablePlace::new(), lake());
    let path = place.file("a.jsonl");
    write_text(&path, &vectors("1"));
    ingest(&lake, &[path], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let said = refused(&lake, &place, "b.csv", "id,v\n1,\"[1,2]\"\n", IngestMode::Append).await;
    assert!(said.contains("\"v\" is ") && said.contains("CSV can't hold"), "{said}");
}

#[tokio::test]
async fn whole_numbers_beyond_int64_keep_their_digits_or_are_refused() {
    let (place, lake) = (TablePlace::new(), lake());
    let large = [u64::MAX, 1 << 63, 7];
    let line = |number: &u64| format!("{{\"id\": {number}, \"x\": 1.5}}\n");
    let path = place.file("large.jsonl");
    write_text(&path, &large.iter().map(line).collect::<String>());
    ingest(&lake, &[path], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(*table.schema().field_with_name("id").unwrap().data_type(), DataType::UInt64);
    let addresses: Vec<_> = (0..3).map(|row| address::RowAddr::new(0, row)).collect();
    let rows = table.take(&addresses, &["id".to_owned()]).await.unwrap();
    assert_eq!(rows.column(0).as_primitive::<UInt64Type>().values(), &large);
    let other = TablePlace::new();
    let mixed = "{\"id\": -1}\n{\"id\": 18446744073709551615}\n";
    let said = refused(&lake, &other, "mixed.jsonl", mixed, IngestMode::Create).await;
    assert_eq!(
        said,
        "column \"id\" has -1 and numbers beyond 9223372036854775807, for which there is no type; write them as text"
    );
    // The earlier rows set the column's type, so the error names the line of the row that does not fit.
    let lines = "{\"id\": 1}\n".repeat(2000) + "{\"id\": 9223372036854775808}\n";
    let said = refused(&lake, &other, "late.jsonl", &lines, IngestMode::Create).await;
    assert!(said.starts_with("line 2001: ") && said.contains("9223372036854775808"), "{said}");
}

#[tokio::test]
async fn vectors_of_parquet_and_arrow_files_hold_finite_numbers_too() {
    let (place, lake) = (TablePlace::new(), lake());
    let vectors = |numbers: Vec<f32>, nulls: Vec<bool>| {
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let values = Arc::new(Float32Array::from(numbers));
        let vectors = FixedSizeListArray::new(item, 2, values, Some(nulls.into()));
        // Numbers outside vectors need not be finite, because NaN may be meant there.
        let scores: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN; vectors.len()]));
        let vectors: ArrayRef = Arc::new(vectors);
        RecordBatch::try_from_iter_with_nullable([("v", vectors, true), ("score", scores, true)])
            .unwrap()
    };
    let bad = vectors(vec![1.0, 2.0, 3.0, f32::NAN], vec![true, true]);
    let infinite = vectors(vec![f32::NEG_INFINITY, 2.0], vec![true]);
    // Values in the place of a null vector are ignored.
    let good = vectors(vec![1.0, 2.0, f32::NAN, f32::NAN], vec![true, false]);
    for (name, write) in [
        ("a.parquet", write_parquet as fn(&std::path::Path, &[RecordBatch])),
        ("a.arrow", write_ipc_file),
    ] {
        let place_of = |batches: &[RecordBatch]| {
            let path = place.file(name);
            write(&path, batches);
            path
        };
        for (batches, said) in [
            (vec![good.clone(), bad.clone()], "row 4: column \"v\": number 2 of the vector"),
            (vec![infinite.clone()], "row 1: column \"v\": number 1 of the vector"),
        ] {
            let path = place_of(&batches);
            let options = IngestOptions::default();
            let error = ingest(&lake, &[path], &place.uri(), &options, |_| ()).await.unwrap_err();
            assert!(matches!(error, LakeError::BadFile { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(said) && text.contains("write null"), "{text}");
        }
        let fresh = TablePlace::new();
        let path = place_of(std::slice::from_ref(&good));
        ingest(&lake, &[path], &fresh.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    }
}
