//! Checks that each function that Lance and DataFusion register is either allowed or refused in filters.

use lake::LakeError;
use lance_datafusion::exec::{LanceExecutionOptions, get_session_context};

use crate::fixture::{TablePlace, lake, modern_kinds, write_with_history};

#[tokio::test]
async fn every_registered_function_is_allowed_or_refused_by_name() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), modern_kinds()[0]).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let context = get_session_context(&LanceExecutionOptions::default());
    let state = context.state();
    let mut names: Vec<_> =
        state.scalar_functions().keys().chain(state.higher_order_functions().keys()).collect();
    names.sort();
    names.dedup();
    let mut unknown = Vec::new();
    let mut allowed = Vec::new();
    for &name in &names {
        // No function takes 40 arguments, so the error shows whether the function is allowed.
        let filter = format!("{name}({}) = 1", ["id"; 40].join(", "));
        let why = match table.search_filter(&filter, 1).await {
            Err(LakeError::BadFilter { why, .. }) => why,
            other => panic!("{name}: {other:?}"),
        };
        let known = ["takes", "has to be a text in quotes", "has to be a list of values", "joined"];
        if known.iter().any(|it| why.contains(it)) {
            allowed.push(name);
        } else if !why.contains("is not offered in filters") {
            unknown.push(name);
        }
    }
    println!("allowed: {allowed:?}");
    assert!(unknown.is_empty(), "new functions; allow or refuse them in functions.rs: {unknown:?}");
    assert!(allowed.len() > 50, "{allowed:?}");
    // Aggregate and window functions are not allowed in a filter.
    for name in state.aggregate_functions().keys().chain(state.window_functions().keys()) {
        let why = table.search_filter(&format!("{name}(id) = 1"), 1).await.unwrap_err().to_string();
        assert!(why.contains("there is no function"), "{name}: {why}");
    }
}
