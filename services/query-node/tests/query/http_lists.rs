//! Tests lists and descriptions for clients of the Lance Namespace specification, and pages of lists.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, MapBuilder, StringBuilder};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::DataType;
use lance::Dataset;
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;
use serde_json::{Value, json};

use crate::http::post;
use crate::node::{serve, served};
use crate::table::{ROWS, TestTable, rows, write};

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_exist_or_not() {
    let (node, _client) = serve(&[]).await;
    for root in ["/v1/namespace/$/exists", "/v1/namespace/%24/exists?delimiter=%24"] {
        let answer = post(&node, root, json!({})).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0), "{root}");
    }
    let (status, code, said) = post(&node, "/v1/namespace/a/exists", json!({})).await.error();
    assert_eq!((status, code), (404, 1), "{said}");
    let get = crate::http::get(&node, "/v1/namespace/$/exists").await;
    assert_eq!(get.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_version_is_described_as_in_the_list() {
    let table = TestTable::plain().await;
    let (node, _client) = serve(&[("t", &table)]).await;
    node.ready().await;
    for path in ["version/list", "version/list/"] {
        let listed = post(&node, &format!("/v1/table/t/{path}"), json!({})).await.json();
        let describe = path.replace("list", "describe");
        for version in listed["versions"].as_array().unwrap() {
            let body = json!({"version": version["version"]});
            let one = post(&node, &format!("/v1/table/t/{describe}"), body).await;
            assert_eq!(one.version, version["version"].as_u64());
            assert_eq!(one.json(), json!({"version": version}), "{path}");
        }
        let latest = post(&node, &format!("/v1/table/t/{describe}"), json!({})).await.json();
        assert_eq!(latest["version"], *listed["versions"].as_array().unwrap().last().unwrap());
    }
    let of_lance = Dataset::open(&table.uri).await.unwrap().versions().await.unwrap();
    let path = "/v1/table/t/version/describe";
    for version in of_lance {
        let body = json!({"version": version.version});
        let described = post(&node, path, body).await.json();
        let millis = described["version"]["timestamp_millis"].as_i64();
        assert_eq!(millis, Some(version.timestamp.timestamp_millis()));
    }
    let (status, code, _) = post(&node, path, json!({"version": 99})).await.error();
    assert_eq!((status, code), (404, 11));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_described_at_the_version_that_a_tag_names() {
    let table = TestTable::plain().await;
    let mut dataset = Dataset::open(&table.uri).await.unwrap();
    let exp = dataset.create_branch("exp", 2, None).await.unwrap();
    // The main branch has no version with this number.
    let of_branch = exp.version().version + 3;
    for id in ROWS..ROWS + 3 {
        write(&format!("{}/tree/exp", table.uri), rows(id..id + 1)).await;
    }
    dataset.tags().create("a", 1).await.unwrap();
    dataset.tags().create("b", ("exp", of_branch)).await.unwrap();
    // A damaged tag matters only to those who name it.
    std::fs::write(format!("{}/_refs/tags/damaged.json", table.uri), "{").unwrap();
    let (node, _client) = serve(&[("t", &table)]).await;
    let path = "/v1/table/t/describe";
    for (tag, version) in [("a", 1), ("b", of_branch)] {
        let described = post(&node, path, json!({ "tag": tag })).await;
        assert_eq!(described.json()["version"], version, "{tag}");
        assert_eq!(described.version, Some(version), "{tag}");
    }
    for tag in ["none", "", "a/b", "..", "é"] {
        let (status, code, said) = post(&node, path, json!({ "tag": tag })).await.error();
        assert_eq!((status, code), (404, 8), "{tag}: {said}");
    }
    for (query, body) in [
        ("", json!({"tag": "a", "version": 1})),
        ("", json!({"tag": "a", "branch": "exp"})),
        ("?branch=exp", json!({"tag": "a"})),
    ] {
        let (status, _, said) = post(&node, &format!("{path}{query}"), body).await.error();
        assert!(status == 400 && said.contains("`tag` is given beside"), "{status}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_for_namespace_clients_have_statistics() {
    let table = TestTable::plain().await;
    let (node, _client) = serve(&[("t", &table)]).await;
    let stats = async |path: &str, body: Value| {
        post(&node, &format!("/v1/table/t/{path}"), body).await.json()["stats"].clone()
    };
    let latest = json!({"num_deleted_rows": ROWS / 10, "num_fragments": 2});
    assert_eq!(stats("describe", json!({"load_detailed_metadata": true})).await, latest);
    assert_eq!(stats("describe?load_detailed_metadata=true", json!({})).await, latest);
    let first = json!({"num_deleted_rows": 0, "num_fragments": 1});
    assert_eq!(stats("describe", json!({"version": 1})).await, first);
    assert_eq!(stats("describe/", json!({})).await, Value::Null);
}

/// Reads a list page by page. Returns the keys of its entries, which the answer's `field` has, and the number of pages.
async fn paged(
    node: &query_node::QueryNode,
    list: &str,
    by_body: bool,
    (limit, more): (usize, &str),
    keys: impl Fn(&Value) -> Vec<String>,
) -> (Vec<String>, usize) {
    let (mut all, mut token, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let (query, body) = match by_body {
            true => {
                let descending = more.contains("true");
                let body = json!({"limit": limit, "page_token": token, "descending": descending});
                (String::new(), body)
            }
            false => {
                let token = token.as_str().unwrap_or_default();
                (format!("?limit={limit}&page_token={token}{more}"), json!({}))
            }
        };
        let answer = post(node, &format!("/v1/table/t/{list}{query}"), body).await.json();
        let page = keys(&answer);
        assert!(page.len() <= limit, "{answer}");
        all.extend(page);
        pages += 1;
        token = answer["page_token"].clone();
        if token.is_null() {
            return (all, pages);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_tags_and_indexes_are_paged() {
    let (table, node, _client) = served().await;
    let dataset = Dataset::open(&table.uri).await.unwrap();
    for tag in ["c", "a", "b"] {
        dataset.tags().create(tag, 2).await.unwrap();
    }
    node.ready().await;
    let latest = dataset.version().version;
    let versions = |answer: &Value| {
        let versions = answer["versions"].as_array().unwrap();
        versions.iter().map(|it| it["version"].to_string()).collect::<Vec<_>>()
    };
    let ascending: Vec<_> = (1..=latest).map(|it| it.to_string()).collect();
    let descending: Vec<_> = ascending.iter().rev().cloned().collect();
    let indexes = |answer: &Value| {
        let indexes = answer["indexes"].as_array().unwrap();
        indexes.iter().map(|it| it["index_name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let tags =
        |answer: &Value| answer["tags"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let names = ["key_scalar", "text_text", "vector_vector"];
    let whole = post(&node, "/v1/table/t/index/list", json!({})).await.json();
    assert_eq!(indexes(&whole), names);
    for by_body in [false, true] {
        for limit in [1, 2, 3, 100] {
            let pages = |of: usize| of.div_ceil(limit);
            let found = paged(&node, "version/list", by_body, (limit, ""), versions).await;
            assert_eq!(found, (ascending.clone(), pages(ascending.len())));
            let order = (limit, "&descending=true");
            let found = paged(&node, "version/list", by_body, order, versions).await;
            assert_eq!(found, (descending.clone(), pages(ascending.len())));
            let found = paged(&node, "tags/list", by_body, (limit, ""), tags).await;
            assert_eq!(found, (["a", "b", "c"].map(str::to_owned).to_vec(), pages(3)));
            let found = paged(&node, "index/list", by_body, (limit, ""), indexes).await;
            assert_eq!(found, (names.map(str::to_owned).to_vec(), pages(3)));
        }
    }
    // LanceDB's clients get all tags in a map that has no place for a token.
    let all = post(&node, "/v1/table/t/tags/list/?limit=1", json!({})).await.json();
    assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    for (path, body, said) in [
        ("version/list?page_token=x", json!({}), "`page_token` is `x`; give a token of a page"),
        ("version/list", json!({"page_token": "x"}), "`page_token` is `x`; give a token of a page"),
        ("index/list?limit=x", json!({}), "`limit` is `x`; give a number"),
        ("index/list", json!({"limit": -1}), "`body` is not the JSON of this call"),
    ] {
        let (status, _, error) = post(&node, &format!("/v1/table/t/{path}"), body).await.error();
        assert!(status == 400 && error.contains(said), "{path}: {status} {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn maps_are_returned_although_lancedbs_descriptions_lack_them() {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    maps.keys().append_value("a");
    maps.values().append_value(1);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![0, 1]));
    let maps: ArrayRef = Arc::new(maps.finish());
    let rows = RecordBatch::try_from_iter([("id", ids), ("maps", maps)]).unwrap();
    let table = TestTable::nowhere();
    let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let data_storage_version = Some(LanceFileVersion::V2_2);
    let params = WriteParams { data_storage_version, ..Default::default() };
    Dataset::write(reader, &table.uri, Some(params)).await.unwrap();
    let (node, _client) = serve(&[("t", &table)]).await;
    for (path, described) in [("describe/", vec!["id"]), ("describe", vec!["id", "maps"])] {
        let answer = post(&node, &format!("/v1/table/t/{path}"), json!({})).await.json();
        let fields = answer["schema"]["fields"].as_array().unwrap().iter();
        let names: Vec<&str> = fields.map(|field| field["name"].as_str().unwrap()).collect();
        assert_eq!(names, described, "{path}");
    }
    for columns in [json!(null), json!(["id", "maps"])] {
        let body = json!({"vector": [], "k": 2, "columns": columns});
        let found = post(&node, "/v1/table/t/query/", body).await.rows();
        assert!(matches!(found["maps"].data_type(), DataType::Map(..)), "{columns}");
        assert_eq!(found["maps"].null_count(), 1, "{columns}");
    }
    let body = json!({"vector": [], "k": 2, "columns": ["id"]});
    assert_eq!(post(&node, "/v1/table/t/query/", body).await.ids(), [0, 1]);
}
