//! Numbers that text can hold and columns can't.

use lake::{IngestMode, IngestOptions, Lake, LakeError, ingest};

use crate::fixture::{Place, lake};
use crate::ingest::write_text;

/// What is said of a file that can't be ingested.
async fn refused(lake: &Lake, place: &Place, name: &str, text: &str, mode: IngestMode) -> String {
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
    let (place, lake) = (Place::new(), lake());
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
    // Words are read as numbers where the table wants numbers.
    for word in ["\"NaN\"", "\"inf\"", "-1e999"] {
        let said = refused(&lake, &place, "b.jsonl", &vectors(word), IngestMode::Append).await;
        assert!(said.starts_with("line 4"), "{word}: {said}");
    }
}

#[tokio::test]
async fn numbers_too_large_for_their_column_are_refused() {
    let (place, lake) = (Place::new(), lake());
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
    let (place, lake) = (Place::new(), lake());
    let path = place.file("a.jsonl");
    write_text(&path, &vectors("1"));
    ingest(&lake, &[path], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let said = refused(&lake, &place, "b.csv", "id,v\n1,\"[1,2]\"\n", IngestMode::Append).await;
    assert!(said.contains("\"v\" is ") && said.contains("CSV can't hold"), "{said}");
}
