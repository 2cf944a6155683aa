//! Tests of look-ups by key.

use std::sync::Arc;

use address::RowAddr;
use arrow::array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray};
use lake::{DuplicateKeys, IndexRequest, LakeError, build_index};

use crate::fixture::{
    PLAIN, STABLE_IDS, TablePlace, address_of, is_deleted, lake, rows, write, write_with_history,
};
use crate::key_texts::KeyTexts;

#[tokio::test]
async fn all_keys_are_found_and_no_others() {
    for kind in [PLAIN, STABLE_IDS] {
        for with_index in [false, true] {
            let place = TablePlace::new();
            write_with_history(&place.uri(), kind).await;
            let lake = lake();
            if with_index {
                let request = IndexRequest::Scalar { column: "name".into() };
                build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
            }
            let table = lake.open(&place.uri()).await.unwrap();
            assert_eq!(table.key_column(), None);
            let keys: Vec<_> = (0..700).map(|id| format!("name-{id}")).collect();
            let found = table.lookup_texts(Some("name"), &keys).await.unwrap();
            for (id, found) in found.into_iter().enumerate() {
                let id = id as i32;
                let there = id < 600 && id % 10 != 0 && !is_deleted(id);
                assert_eq!(found, there.then(|| address_of(id)), "{id}");
            }
            let twice = ["name-5", "x", "name-5"].map(str::to_owned);
            let found = table.lookup_texts(Some("name"), &twice).await.unwrap();
            assert_eq!(found, [Some(address_of(5)), None, Some(address_of(5))]);
            assert_eq!(
                table.lookup_texts(Some("id"), &["401".into()]).await.unwrap(),
                [Some(address_of(401))]
            );
            assert_eq!(table.lookup_texts(Some("id"), &[]).await.unwrap(), []);
        }
    }
}

#[tokio::test]
async fn keys_of_other_types() {
    let place = TablePlace::new();
    let uuids = FixedSizeBinaryArray::try_from_iter((0..50_u8).map(|i| [i; 16])).unwrap();
    let columns: [(&str, ArrayRef); 3] = [
        ("uuid", Arc::new(uuids)),
        ("number", Arc::new(Int64Array::from_iter_values((0..50).map(|i| i << 40)))),
        ("twice", Arc::new(StringArray::from_iter_values((0..50).map(|i| (i / 2).to_string())))),
    ];
    write(&place.uri(), &[RecordBatch::try_from_iter(columns).unwrap()], PLAIN).await;
    let lake = lake();
    for column in ["uuid", "number"] {
        let request = IndexRequest::Key { column: column.into(), replace: true };
        build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
        let table = lake.open(&place.uri()).await.unwrap();
        assert_eq!(table.key_column(), Some(column), "the last one recorded");
    }
    let table = lake.open(&place.uri()).await.unwrap();
    let uuid = "07070707-0707-0707-0707-070707070707".to_owned();
    assert_eq!(
        table.lookup_texts(Some("uuid"), &[uuid]).await.unwrap(),
        [Some(RowAddr::new(0, 7))]
    );
    let number = (3_i64 << 40).to_string();
    assert_eq!(
        table.lookup_texts(None, &[number, "1".into()]).await.unwrap(),
        [Some(RowAddr::new(0, 3)), None]
    );
    let first = table.lookup_texts(Some("twice"), &["4".into(), "5".into()]).await.unwrap();
    assert_eq!(
        first,
        [Some(RowAddr::new(0, 8)), Some(RowAddr::new(0, 10))],
        "the first of several"
    );
    match table.lookup_texts(None, &["x".into()]).await {
        Err(error @ LakeError::BadKey { .. }) => {
            assert_eq!(
                error.to_string(),
                r#""x" can't be a key in column "number": the column holds Int64 values"#
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_key_column_is_recorded_only_on_request() {
    let place = TablePlace::new();
    // Begins with row 1, because row 0 has no name.
    write(&place.uri(), &[rows(1, 10)], PLAIN).await;
    let lake = lake();
    let index = async |column: &str, replace| {
        let request = IndexRequest::Key { column: column.into(), replace };
        build_index(&lake, &place.uri(), &request, |_| ()).await
    };
    index("name", false).await.unwrap();
    index("name", false).await.unwrap();
    let version = lake.latest_version(&place.uri()).await.unwrap();
    match index("id", false).await {
        Err(error @ LakeError::AnotherKey { .. }) => {
            let said = error.to_string();
            assert!(
                said.contains("is \"name\"") && said.contains("--key id --replace-key"),
                "{said}"
            );
        }
        other => panic!("{other:?}"),
    }
    // A column that does not exist is reported as such, not as another key.
    for replace in [false, true] {
        match index("nam", replace).await {
            Err(error @ LakeError::ColumnNotFound { .. }) => {
                let said = error.to_string();
                assert!(said.ends_with(r#"; did you mean "name"?"#), "{said}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lake.latest_version(&place.uri()).await.unwrap(), version, "nothing was built");
    index("id", true).await.unwrap();
    assert_eq!(lake.open(&place.uri()).await.unwrap().key_column(), Some("id"));
}

#[tokio::test]
async fn duplicate_keys_are_counted() {
    let place = TablePlace::new();
    let names = |keys: std::ops::Range<u64>| -> RecordBatch {
        let keys = StringArray::from_iter_values(keys.map(|i| format!("k{i:05}")));
        RecordBatch::try_from_iter_with_nullable([("key", Arc::new(keys) as ArrayRef, true)])
            .unwrap()
    };
    // The duplicates are in different fragments.
    let mut dataset =
        write(&place.uri(), &[names(0..20_000), names(20_000..30_000), names(0..10)], PLAIN).await;
    let lake = lake();
    let request = IndexRequest::Key { column: "key".into(), replace: false };
    let built = build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
    let duplicates = DuplicateKeys { keys: 10, rows: 20, example: "k00000".into() };
    assert_eq!(built.duplicates, Some(duplicates));
    let found = lake.open(&place.uri()).await.unwrap();
    let found = found.lookup_texts(None, &["k00001".into()]).await.unwrap();
    assert_eq!(found, [Some(RowAddr::new(0, 1))], "the first of the duplicates");
    dataset.checkout_latest().await.unwrap();
    dataset.delete("key < 'k00010'").await.unwrap();
    let built = build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
    assert_eq!(built.duplicates, None, "deleted rows have no keys");
    let scalar = IndexRequest::Scalar { column: "key".into() };
    let built = build_index(&lake, &place.uri(), &scalar, |_| ()).await.unwrap();
    assert_eq!(built.duplicates, None, "only keys should be unique");
}

#[tokio::test]
async fn a_key_is_never_null_whoever_records_it() {
    let place = TablePlace::new();
    // 58 of the live rows have no name, id 0 among them.
    let mut dataset = write_with_history(&place.uri(), PLAIN).await;
    let lake = lake();
    let before = lake.latest_version(&place.uri()).await.unwrap();
    let request = IndexRequest::Key { column: "name".into(), replace: false };
    match build_index(&lake, &place.uri(), &request, |_| ()).await {
        Err(error @ LakeError::NullKeys { rows: 58, .. }) => {
            let said = error.to_string();
            assert!(said.contains("is null in 58 rows") && said.contains("--scalar"), "{said}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(lake.latest_version(&place.uri()).await.unwrap(), before, "nothing was built");
    let scalar = IndexRequest::Scalar { column: "name".into() };
    build_index(&lake, &place.uri(), &scalar, |_| ()).await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    let found = table.lookup_texts(Some("name"), &["name-5".into()]).await.unwrap();
    assert_eq!((found[0], table.key_column()), (Some(address_of(5)), None), "as the error advises");
    dataset.checkout_latest().await.unwrap();
    dataset.delete("name IS NULL").await.unwrap();
    build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(table.key_column(), Some("name"), "deleted rows need no keys");
}

#[tokio::test]
async fn without_a_key_column() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    assert_eq!(table.key_column(), None);
    assert!(matches!(
        table.lookup_texts(Some("nope"), &["x".into()]).await,
        Err(LakeError::ColumnNotFound { .. })
    ));
    assert!(matches!(
        table.lookup_texts(Some("vector"), &["x".into()]).await,
        Err(LakeError::BadKey { .. })
    ));
}
