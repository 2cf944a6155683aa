//! `bireme versions`.

use lance::Dataset;
use serde_json::Value;

use crate::text;
use crate::up::Up;

#[test]
fn versions_are_listed_with_their_tags_and_read() {
    let up = Up::start();
    let table = up.folder.path().join("words");
    let tag = async {
        let mut dataset = Dataset::open(text(&table)).await.unwrap();
        let exp = dataset.create_branch("exp", 1, None).await.unwrap();
        dataset.tags().create("first", 1).await.unwrap();
        dataset.tags().create("raw", 1).await.unwrap();
        exp.tags().create("of-exp", ("exp", exp.version().version)).await.unwrap();
        dataset.versions().await.unwrap().len()
    };
    let count = tokio::runtime::Runtime::new().unwrap().block_on(tag);
    let listed = &up.json(&["versions", "words"])[0]["versions"];
    let numbers: Vec<u64> =
        listed.as_array().unwrap().iter().map(|it| it["version"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=count as u64).rev().collect::<Vec<_>>());
    let first = listed.as_array().unwrap().last().unwrap();
    assert_eq!(first["tags"], serde_json::json!(["first", "raw"]));
    assert_eq!(first["metadata"]["total_rows"], "6927");
    assert!(first["created_at"].as_str().unwrap().starts_with("20"), "{first}");
    assert_eq!(listed[0]["tags"], serde_json::json!([]));
    let two = up.json(&["versions", "words", "-n", "2"]);
    assert_eq!(two[0]["versions"], Value::from(listed.as_array().unwrap()[..2].to_vec()));
    let exp = &up.json(&["versions", "words", "--table-branch", "exp"])[0]["versions"];
    assert_eq!(exp[0]["tags"], serde_json::json!(["of-exp"]));
    let tags = &up.json(&["versions", "words", "--tags"])[0]["tags"];
    let tags: Vec<_> = tags.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(tags, ["first", "of-exp", "raw"]);
    let shown = crate::run(&["versions", "words", "--endpoint", &up.endpoint]);
    assert!(shown.lines().last().unwrap().ends_with("6,927  first, raw"), "{shown}");
    let shown = crate::run(&["versions", "words", "--tags", "--endpoint", &up.endpoint]);
    assert!(shown.contains("of-exp  exp"), "{shown}");
    up.names(&["versions", "nope"], 3, "nope");
    up.names(&["versions", "words", "--table-branch", "none"], 3, "none");
    up.names(&["versions", "words", "-n", "0"], 2, "at least 1");
}
