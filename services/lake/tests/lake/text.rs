//! Tests of full-text search.

use lake::{IndexRequest, LakeError, TextExpr, TextMatch, TextQuery, build_index};

use crate::fixture::{
    PLAIN, STABLE_IDS, TablePlace, address_of, is_deleted, lake, rows, write, write_with_history,
};

fn query(words: &str, k: usize) -> TextQuery {
    TextQuery { query: TextExpr::words(words), k, ..Default::default() }
}

fn on(column: &str, words: &str) -> TextExpr {
    TextExpr::Match(TextMatch {
        column: Some(column.into()),
        words: words.into(),
        ..Default::default()
    })
}

#[tokio::test]
async fn words_find_their_rows() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let lake = lake();
        let table = lake.open(&place.uri()).await.unwrap();
        match table.search_text(&query("oak", 5)).await {
            Err(error @ LakeError::NoTextIndex { .. }) => {
                let said = error.to_string();
                let searched = format!("version {} of {} has no", table.version(), place.uri());
                assert!(said.starts_with(&searched), "{said}");
                assert!(said.contains(r#"its text columns are "name", "text"; "#), "{said}");
                assert!(
                    said.contains(&format!("--table {} --text COLUMN`", place.uri())),
                    "{said}"
                );
            }
            other => panic!("{other:?}"),
        }
        let request = IndexRequest::Text { column: "text".into(), positions: false };
        build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
        let table = lake.open(&place.uri()).await.unwrap();
        table.prewarm().await.unwrap();
        let hits = table.search_text(&query("number 123", 3)).await.unwrap().hits;
        assert_eq!(hits[0].addr, address_of(123));
        assert!(hits[0].score > hits[1].score);
        let oaks: Vec<_> =
            (0..600).filter(|id| id % 5 == 0 && !is_deleted(*id)).map(address_of).collect();
        let hits = table.search_text(&query("OAKS", 1000)).await.unwrap().hits;
        let mut found: Vec<_> = hits.iter().map(|hit| hit.addr).collect();
        found.sort();
        assert_eq!(found, oaks, "stems and case");
        let some = TextQuery {
            filter: Some("id < 50".into()),
            query: on("text", "oak"),
            ..query("oak", 1000)
        };
        let mut found: Vec<_> =
            table.search_text(&some).await.unwrap().hits.iter().map(|hit| hit.addr).collect();
        found.sort();
        assert_eq!(
            found,
            (0..50)
                .filter(|id| id % 5 == 0 && !is_deleted(*id))
                .map(address_of)
                .collect::<Vec<_>>()
        );
        assert_eq!(table.search_text(&query("spruce", 5)).await.unwrap().hits, []);
        assert_eq!(table.search_text(&query("oak", 7)).await.unwrap().hits.len(), 7);
    }
}

#[tokio::test]
async fn an_index_is_advised_on_a_text_column_rather_than_on_keys() {
    let place = TablePlace::new();
    // Begins with row 1, because row 0 has no name.
    write(&place.uri(), &[rows(1, 10)], PLAIN).await;
    let lake = lake();
    let key = IndexRequest::Key { column: "name".into(), replace: false };
    build_index(&lake, &place.uri(), &key, |_| ()).await.unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    let said = table.search_text(&query("oak", 5)).await.unwrap_err().to_string();
    assert!(said.contains(&format!("--table {} --text text`", place.uri())), "{said}");
}

#[tokio::test]
async fn invalid_searches_are_refused() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), PLAIN).await;
    let lake = lake();
    build_index(
        &lake,
        &place.uri(),
        &IndexRequest::Text { column: "text".into(), positions: false },
        |_| (),
    )
    .await
    .unwrap();
    let table = lake.open(&place.uri()).await.unwrap();
    assert!(matches!(table.search_text(&query("oak", 0)).await, Err(LakeError::BadQuery { .. })));
    assert_eq!(table.search_text(&query(" ,", 5)).await.unwrap().hits, [], "it has no words");
    let on = |column: &str| TextQuery { query: on(column, "oak"), ..query("oak", 5) };
    assert!(matches!(table.search_text(&on("nope")).await, Err(LakeError::ColumnNotFound { .. })));
    match table.search_text(&on("name")).await {
        Err(error @ LakeError::NoIndex { .. }) => {
            let searched = format!("no full-text index in version {}: build", table.version());
            assert!(error.to_string().contains(&searched), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(table.search_text(&on("id")).await, Err(LakeError::UnsupportedType { .. })));
    let bad = IndexRequest::Text { column: "id".into(), positions: false };
    assert!(matches!(
        build_index(&lake, &place.uri(), &bad, |_| ()).await,
        Err(LakeError::UnsupportedType { .. })
    ));
}
