//! Tests of filtered search, with and without a scalar index.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use lake::{IndexRequest, LakeError, OrderBy, build_index};

use crate::fixture::{
    PLAIN, TablePlace, address_of, is_deleted, lake, modern_kinds, write, write_with_history,
};

#[tokio::test]
async fn filters_return_the_right_rows() {
    for &kind in modern_kinds() {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let lake = lake();
        let expected: Vec<_> = (100..400).filter(|id| !is_deleted(*id)).map(address_of).collect();
        for with_index in [false, true] {
            if with_index {
                let request = IndexRequest::Scalar { column: "id".into() };
                let summary = build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
                assert_eq!((summary.name.as_str(), summary.kind.as_str()), ("id_scalar", "BTree"));
                build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
            }
            let table = lake.open(&place.uri()).await.unwrap();
            assert_eq!(
                table.indexes().await.unwrap().len(),
                usize::from(with_index),
                "replaced, not doubled"
            );
            let filter = "id >= 100 AND id < 400";
            assert_eq!(
                table.search_filter(filter, 1000).await.unwrap().rows,
                expected,
                "{kind:?} {with_index}"
            );
            assert_eq!(table.search_filter(filter, 12).await.unwrap().rows.len(), 12);
            assert_eq!(table.search_filter(filter, 0).await.unwrap().rows, []);
            let null = table.search_filter("added IS NULL AND id < 510", 1000).await.unwrap().rows;
            assert_eq!(
                null,
                (500..510).filter(|id| !is_deleted(*id)).map(address_of).collect::<Vec<_>>()
            );
            assert_eq!(table.search_filter("id = 57", 10).await.unwrap().rows, [], "deleted");
            for bad in ["", "id", "id = ", "foo(id) = 1", "nope > 1"] {
                match table.search_filter(bad, 10).await {
                    Err(LakeError::BadFilter { filter, .. }) => assert_eq!(filter, bad),
                    other => panic!("{bad}: {other:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn errors_of_filters_do_not_show_the_parsers_wrapping() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), modern_kinds()[0]).await;
    let table = lake().open(&place.uri()).await.unwrap();
    for (filter, expected) in [
        ("id = = 3", "expected an expression, found =; write it like"),
        ("id > 3 AND", "expected an expression, found its end; write it like"),
        ("nam = 'x'", r#"no column "nam": the table has "#),
        ("nam = 'x'", r#"did you mean "name"?"#),
        ("name = blau", "; text needs single quotes: 'blau'"),
        ("_distance < 0.5", "`lower_bound` and `upper_bound` limit it (LanceDB: `distance_range`)"),
        ("_score > 2", "no filter can use it: compare it in these rows"),
        ("id = 'abc'", "'abc' can't be compared with a column of type "),
        ("foo(id) = 1", "there is no function `foo`"),
    ] {
        let said = table.search_filter(filter, 1).await.unwrap_err().to_string();
        assert!(said.starts_with(&format!("bad filter `{filter}`: ")), "{said}");
        assert!(said.contains(expected), "{said}");
        for raw in ["SELECT", "sql parser", "Schema error", "Error "] {
            assert!(!said.contains(raw), "{said}");
        }
    }
}

#[tokio::test]
async fn filters_on_columns_with_unusable_names_are_refused() {
    let place = TablePlace::new();
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let columns = ["id", "back`tick", ""].map(|name| (name, Arc::clone(&values)));
    write(&place.uri(), &[RecordBatch::try_from_iter(columns).unwrap()], PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    for (column, filter) in
        [("\"back`tick\"", "`back``tick` = 1"), ("\"\"", "id = 1 AND NOT (`` = 2)")]
    {
        let expected = format!("a filter can't use column {column}, because its name");
        let errors = [
            table.search_filter(filter, 1).await.unwrap_err(),
            table.count_filter(filter).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, LakeError::BadFilter { .. }), "{error:?}");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
    let by = OrderBy { column: "back`tick".into(), is_descending: false, nulls_first: false };
    let said = table.scan_ordered(None, &[by], 1).await.unwrap_err().to_string();
    assert!(said.ends_with("can't be used here; rename the column"), "{said}");
}
