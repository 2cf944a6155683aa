//! Attempts to learn of hidden columns and rows: through names, filters, orders, expressions, errors and lists.

use client::query::{
    By, CountRequest, GetRequest, LookupOpen, SearchRequest, TakeRequest, Text, TextKind, TextMatch,
};
use lake::Metric;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use wire::Reason;
use wire::query::OrderBy;

use super::{
    Served, assert_same, by_filter, found, get_of, is_shown, rows_of, with_columns, without_added,
};
use crate::access::secret;
use crate::http::post_with;
use crate::node::{ids, near, text_of};
use crate::table::{ROWS, TestTable, address_of, is_live, key, rows, text, vector};

/// Every way to name a column gives a hidden one the error of one that does not exist, with the same suggestions.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_column_does_not_exist() {
    for is_indexed in [false, true] {
        let served = Served::new(is_indexed).await;
        let base = SearchRequest { columns: vec!["id".into()], ..near(vector(31), 5) };
        let columns = |name: &str| vec!["id".to_owned(), name.to_owned()];
        let order = |name: &str| vec![OrderBy { column: name.into(), ..Default::default() }];
        // `tog` and `keyy` are near a hidden and a shown name, `TAG` differs in case.
        for name in ["tag", "TAG", "`tag`", "tag.x", "tog", "keyy", "ID", "_rowid"] {
            let filter = by_filter(&format!("{name} = 'tag-1'"));
            let context = format!("{name}, indexed: {is_indexed}");
            let mut searches = vec![
                SearchRequest { columns: columns(name), ..base.clone() },
                SearchRequest { vector_column: name.into(), ..base.clone() },
                SearchRequest { order_by: order(name), ..base.clone() },
                SearchRequest {
                    by: None,
                    filter: "id < 9".into(),
                    order_by: order(name),
                    ..base.clone()
                },
                SearchRequest {
                    by: Some(By::Like(key(1))),
                    key_column: name.into(),
                    ..base.clone()
                },
                SearchRequest { filter: filter.filter.clone(), ..base.clone() },
                SearchRequest { filter: filter.filter.clone(), filter_after: true, ..base.clone() },
                SearchRequest {
                    by: Some(By::Text(Text {
                        words: "oak".into(),
                        column: name.into(),
                        ..Default::default()
                    })),
                    ..base.clone()
                },
                filter,
            ];
            let filters = [
                format!("id < 9 AND {name} IS NULL"),
                format!("{name} = 7"),
                format!("{name} LIKE 'tag%'"),
                format!("id < 9 OR {name} IN ('tag-0')"),
                format!("NOT ({name} > 'tag-0')"),
                format!("length({name}) > 1"),
                format!("CAST({name} AS STRING) = 'x'"),
                name.to_owned(),
            ];
            searches.extend(filters.iter().map(|filter| by_filter(filter)));
            for request in searches {
                // A filter that the oracle accepts may still be refused under the grant.
                let context = format!("{context}: {request:?}");
                let oracle = found(&served.oracle, &request).await;
                let part = found(&served.part, &request).await;
                let is_refused = part.as_ref().is_err_and(|it| it.message.contains("single rows"));
                assert!(!is_refused || oracle.is_ok(), "{context}: {part:?}, {oracle:?}");
                if !is_refused {
                    assert_same(part, oracle, &context);
                }
            }
            let get = GetRequest { columns: columns(name), ..get_of("key", vec![key(31)]) };
            for get in [get, get_of(name, vec!["tag-1".into()])] {
                let part = served.part.get(get.clone()).await.map(rows_of);
                assert_same(part, served.oracle.get(get).await.map(rows_of), &context);
            }
            let take = TakeRequest {
                table: "t".into(),
                row_addrs: vec![0],
                columns: columns(name),
                ..Default::default()
            };
            let taken = async |client: &client::query::QueryClient, addr: u64| {
                let take = TakeRequest { row_addrs: vec![addr], ..take.clone() };
                let taken = client.take(take).await?.collect().await?;
                Ok(taken.batches.iter().map(without_added).collect::<Vec<_>>())
            };
            let shown = address_of(1).to_u64();
            assert_same(taken(&served.part, shown).await, taken(&served.oracle, 0).await, &context);
            let open = LookupOpen {
                table: "t".into(),
                columns: columns(name),
                key_column: "key".into(),
                ..Default::default()
            };
            let opened = async |client: &client::query::QueryClient, open: LookupOpen| {
                client.lookups().await?.open(open).await.map(|lookup| lookup.schema())
            };
            for open in
                [open.clone(), LookupOpen { columns: vec![], key_column: name.into(), ..open }]
            {
                let part = opened(&served.part, open.clone()).await;
                assert_same(part, opened(&served.oracle, open).await, &context);
            }
        }
    }
}

/// A hidden column is neither the key, nor the column of vectors or texts that is searched if none is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_column_is_not_chosen() {
    for columns in [["id", "text"], ["id", "key"], ["id", "vector"]] {
        let table = TestTable::indexed(Default::default(), Metric::L2).await;
        let ids = (0..ROWS).filter(|&id| is_live(id));
        let oracle = TestTable::of(with_columns(&rows(ids), &columns)).await;
        let part = format!("columns = {columns:?}");
        let served = Served::serving(&part, table, oracle, false).await;
        let text = |words: &str| Text { words: words.into(), ..Default::default() };
        let automatic = TextKind::Match(TextMatch {
            words: "oak".into(),
            fuzziness_auto: true,
            ..Default::default()
        });
        let of =
            |by| SearchRequest { by: Some(by), columns: vec!["id".into()], ..near(vector(1), 3) };
        let like = SearchRequest { key_column: String::new(), ..of(By::Like(key(1))) };
        let named = SearchRequest { vector_column: "vector".into(), ..near(vector(1), 3) };
        let mut searches = vec![like, named];
        // The oracle has no index of texts, so a column that is shown may be searched by its index.
        if !columns.contains(&"text") {
            searches.push(of(By::Text(text("oak"))));
            searches.push(of(By::Text(text_of(automatic))));
        }
        if !columns.contains(&"vector") {
            searches.push(of(near(vector(1), 3).by.unwrap()));
        }
        for request in searches {
            let oracle = found(&served.oracle, &request).await;
            let is_known = columns.contains(&"vector") && !request.vector_column.is_empty();
            assert_eq!(oracle.is_ok(), is_known, "{oracle:?}");
            let context = format!("{columns:?}: {request:?}");
            let part = found(&served.part, &request).await.map(|(rows, _)| rows.num_rows());
            assert_same(part, oracle.map(|(rows, _)| rows.num_rows()), &context);
        }
        let described = served.part.describe("t", 0).await.unwrap().response;
        let is_key_shown = columns.contains(&"key");
        assert_eq!(described.key_column, if is_key_shown { "key" } else { "" });
        let indexed: Vec<&str> =
            described.indexes.iter().flat_map(|it| &it.columns).map(String::as_str).collect();
        assert!(indexed.iter().all(|column| columns.contains(column)), "{indexed:?}");
        if !is_key_shown {
            let get = get_of("", vec![key(1)]);
            let part = served.part.get(get.clone()).await.map(rows_of);
            assert_same(part, served.oracle.get(get).await.map(rows_of), "no key");
        }
    }
}

/// Filters that try to leave the condition on rows, or to make an error tell what hidden rows contain.
#[tokio::test(flavor = "multi_thread")]
async fn no_filter_finds_a_hidden_row() {
    let served = Served::new(false).await;
    let escapes = [
        "true) OR (true",
        "id = 1) OR (id >= 0",
        "id = 1) OR (tag = 'tag-0'",
        "id = 1 -- ",
        "id = 1 /* ",
        "id = 1; id = 0",
        "id = 1 OR id = 0",
        "id >= 0 OR true",
        "true",
        "id >= 0 OR NOT id >= 0",
        "NOT (id IS NULL)",
        "id IS NOT NULL OR id IS NULL",
        "id NOT IN (1)",
        "1 / (id - 80) > 0",
        "id >= 0 AND 1 / (id - 80) > 0",
        "CASE WHEN id = 80 THEN 1 / (id - 80) > 0 ELSE true END",
        "CAST(key AS INT) > 0",
        "CAST(substr(key, 5) AS INT) >= 0",
        "id = (SELECT 80)",
        "EXISTS (SELECT 1)",
        "id IN (SELECT id FROM t)",
        "_rowid >= 0",
        "_rowaddr >= 0",
        "_rowoffset >= 0",
        "id >= now()",
        "",
        " ",
    ];
    for filter in escapes {
        let filter = filter.to_owned();
        for (is_after, by) in
            [(false, near(vector(31), 1).by), (true, near(vector(31), 1).by), (false, None)]
        {
            let columns = vec!["id".to_owned()];
            let request = SearchRequest {
                by,
                columns,
                k: 9_000,
                exact: false,
                filter: filter.clone(),
                filter_after: is_after,
                ..by_filter("")
            };
            match served.part.search(request).await {
                Ok(found) => assert!(ids(&found.rows).into_iter().all(is_shown), "{filter}"),
                Err(fault) => {
                    let is_by = matches!(fault.reason, Reason::BadFilter | Reason::BadArgument);
                    assert!(is_by && !fault.to_string().contains("tag-1"), "{filter}: {fault}");
                }
            }
        }
        let count =
            CountRequest { table: "t".into(), filter: filter.clone(), ..Default::default() };
        if let Ok(counted) = served.part.count(count).await {
            assert!(counted.rows <= super::shown().count() as u64, "{filter}");
        }
    }
    // Errors of evaluation depend on values, so no filter that may fail is evaluated: the rows with the values 80, which
    // is hidden, and -1, which no row has, can't be told apart.
    let said = async |number: i64| {
        let filter = format!("1 / (id - {number}) > 0");
        let fault = served.part.search(by_filter(&filter)).await.unwrap_err();
        fault.message.replace(&number.to_string(), "N")
    };
    let (hidden, absent) = (said(80).await, said(777_777).await);
    assert_eq!(hidden, absent);
    assert!(
        hidden.contains("a filter must be one that can be evaluated for single rows"),
        "{hidden}"
    );
}

/// A filter made at random of comparisons with shown columns.
fn random_filter(random: &mut StdRng, depth: u32) -> String {
    if depth > 0 && random.random_bool(0.6) {
        let (one, other) = (random_filter(random, depth - 1), random_filter(random, depth - 1));
        return match random.random_range(0..4) {
            0 => format!("({one}) AND ({other})"),
            1 => format!("{one} OR {other}"),
            2 => format!("NOT ({one})"),
            _ => format!("({one} AND {other})"),
        };
    }
    let (id, key_of): (i64, String) =
        (random.random_range(-5..3_005), key(random.random_range(0..3_000)));
    match random.random_range(0..9) {
        0 => format!("id = {id}"),
        1 => format!("id < {id}"),
        2 => format!("id >= {id}"),
        3 => format!("id IN ({id}, {}, 31)", id + 1),
        4 => format!("id BETWEEN {id} AND {}", id + 300),
        5 => format!("key = '{key_of}'"),
        6 => format!("key > '{key_of}'"),
        7 => format!("text != '{}'", text(id.abs())),
        _ => "text IS NULL".to_owned(),
    }
}

/// Filters of any form find the rows that they find in a table without the hidden rows.
#[tokio::test(flavor = "multi_thread")]
async fn random_filters_find_what_they_find_in_the_oracle() {
    let seed = 20_261_126;
    for is_indexed in [false, true] {
        let served = Served::new(is_indexed).await;
        let mut random = StdRng::seed_from_u64(seed);
        for number in 0..120 {
            let filter = random_filter(&mut random, 4);
            let context = format!("seed {seed}, filter {number}: {filter}");
            let near = SearchRequest { columns: vec!["id".into()], ..near(vector(31), 9) };
            let exact = SearchRequest { exact: true, filter: filter.clone(), ..near };
            let is_after = random.random_bool(0.5);
            let after = SearchRequest { filter_after: is_after, ..exact.clone() };
            for request in [SearchRequest { k: 9_000, ..by_filter(&filter) }, exact, after] {
                let oracle = found(&served.oracle, &request).await;
                assert_same(found(&served.part, &request).await, oracle, &context);
            }
            let count = CountRequest { table: "t".into(), filter, ..Default::default() };
            let part = served.part.count(count.clone()).await.map(|it| it.rows);
            assert_same(part, served.oracle.count(count).await.map(|it| it.rows), &context);
        }
    }
}

/// Plain HTTP has expressions, positions and lists of rows besides what gRPC has.
#[tokio::test(flavor = "multi_thread")]
async fn plain_http_shows_the_part() {
    let served = Served::new(false).await;
    let headers = [("x-api-key", secret("one"))];
    let post = async |path: &str, body| {
        post_with(&served.node, &format!("/v1/table/t/{path}/"), body, &headers).await
    };
    let oracle = async |path: &str, body| {
        post_with(&served.oracle_node, &format!("/v1/table/t/{path}/"), body, &[]).await
    };
    for body in [
        json!({ "k": 9_000, "vector": [], "columns": ["id", "key"] }),
        json!({ "k": 7, "offset": 30, "vector": [], "columns": ["id"] }),
        json!({ "k": 9_000, "vector": [], "filter": "id < 900" }),
        json!({ "k": 9_000, "vector": [], "filter": "false", "columns": ["id"] }),
        json!({ "k": 9_000, "vector": [], "columns": { "twice": "id * 2", "id": "id" } }),
        json!({ "k": 10, "vector": vector(31), "bypass_vector_index": true, "columns": ["id"] }),
        json!({ "k": 10, "vector": vector(31), "bypass_vector_index": true, "filter": "id < 900", "prefilter": false }),
    ] {
        let (part, oracle) =
            (post("query", body.clone()).await, oracle("query", body.clone()).await);
        assert_eq!(part.rows(), oracle.rows(), "{body}");
    }
    for body in [
        json!({ "k": 10, "vector": [], "columns": ["id", "tag"] }),
        json!({ "k": 10, "vector": [], "columns": { "t": "tag" } }),
        json!({ "k": 10, "vector": [], "columns": { "t": "upper(tag)" } }),
        json!({ "k": 10, "vector": [], "columns": { "t": "CASE WHEN tag = 'x' THEN 1 ELSE 2 END" } }),
        json!({ "k": 10, "vector": [], "filter": "tag = 'tag-1'" }),
        json!({ "k": 10, "vector": [], "columns": ["id"], "order_by": [{ "column_name": "tag" }] }),
    ] {
        let (part, oracle) =
            (post("query", body.clone()).await, oracle("query", body.clone()).await);
        assert!(!part.status.is_success(), "{body}");
        assert_eq!(part.error(), oracle.error(), "{body}");
    }
    // Positions count hidden rows. Lists of rows could tell which ids exist.
    for body in [
        json!({ "k": 10, "vector": [], "columns": ["id", "_rowoffset"] }),
        json!({ "k": 10, "vector": [], "columns": { "at": "_rowoffset + 1" } }),
        json!({ "k": 10, "vector": [], "filter": "_rowoffset IN (0, 1)" }),
        json!({ "k": 1, "vector": [], "filter": "_rowid IN (0, 1)" }),
        json!({ "k": 10, "vector": [], "filter": "_rowid >= 0" }),
    ] {
        let part = post("query", body.clone()).await;
        assert_eq!(part.status, 400, "{body}: {:?}", String::from_utf8_lossy(&part.body));
    }
    let count = json!({ "predicate": "id < 900" });
    assert_eq!(
        post("count_rows", count.clone()).await.json(),
        oracle("count_rows", count).await.json()
    );
    assert_eq!(post("count_rows", json!({})).await.json(), super::shown().count());
    let described = post("describe", json!({})).await.json();
    assert_eq!(described["schema"], oracle("describe", json!({})).await.json()["schema"]);
    // A Namespace client, whose paths end without a slash, gets no statistics: they count hidden rows.
    let described = post_with(&served.node, "/v1/table/t/describe", json!({}), &headers).await;
    assert!(described.status.is_success() && described.json().get("stats").is_none());
    let exists = post("exists", json!({})).await;
    assert!(exists.status.is_success());
}
