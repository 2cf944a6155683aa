//! Tests grants that show a part of a table through both tiers: I/O nodes read and filter the rows, and know no grants.
//! Answers are compared with a plain computation over the rows that the grant shows. `services/query-node/tests/query`
//! compares all calls with those of a table that has nothing else.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use client::query::{
    CountRequest, GetRequest, GottenRows, QueryClient, SearchRequest, TakeRequest,
};
use lance_index::IndexType;
use query_node::AccessConfig;
use wire::query::{OnMissing, Vector, search_request::By};

use crate::cluster::{Cluster, folder};
use crate::predicates::{ROWS, address, build_scalar, is_live, name, size, vector, write};

/// Returns whether the grant shows the row. It shows the columns `id` and `vector`.
fn is_shown(id: i64) -> bool {
    is_live(id) && size(id).is_some_and(|size| size > 500) && id % 4 != 1
}

fn policy() -> String {
    let digest = access::digest_of_key(KEY.as_bytes());
    format!(
        "[keys.k]\nsha256 = [\"{digest}\"]\n[[grants]]\nname = \"some\"\nwho = [\"key:k\"]\ntables = [\"t\"]\n\
         may = [\"read\"]\ncolumns = [\"id\", \"vector\"]\nrows = \"size > 500 AND NOT name = '{}'\"\n",
        name(1)
    )
}

const KEY: &str = "a key that nobody guesses";

fn ids(rows: &RecordBatch) -> Vec<i64> {
    rows["id"].as_primitive::<Int64Type>().values().to_vec()
}

/// Returns the ids of the `k` rows of `shown` that are nearest to the vector of `seed`, nearest first.
fn nearest(seed: i64, k: usize, shown: impl Fn(i64) -> bool) -> Vec<i64> {
    let query = vector(seed);
    let distance =
        |id: i64| -> f32 { vector(id).iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum() };
    let mut rows: Vec<(f32, i64)> =
        (0..ROWS).filter(|&id| shown(id)).map(|id| (distance(id), id)).collect();
    rows.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    rows.truncate(k);
    rows.into_iter().map(|(_, id)| id).collect()
}

async fn check(client: &QueryClient, context: &str) {
    let hidden = (0..ROWS).find(|&id| is_live(id) && !is_shown(id)).unwrap();
    for seed in [hidden, 4_000, ROWS - 5] {
        let base = SearchRequest {
            table: "t".into(),
            by: Some(By::Vector(Vector { values: vector(seed) })),
            columns: vec!["id".into()],
            k: 20,
            // All partitions and candidates, so that the index misses no row.
            nprobes: 8,
            refine_factor: Some(1000),
            ..Default::default()
        };
        let exact = SearchRequest { exact: true, nprobes: 0, refine_factor: None, ..base.clone() };
        let few = SearchRequest { filter: "id < 6000".into(), ..base.clone() };
        let after =
            SearchRequest { filter: "id < 6000".into(), filter_after: true, ..base.clone() };
        let is_few = |id| is_shown(id) && id < 6_000;
        let all = nearest(seed, 20, is_shown);
        let left = all.iter().copied().filter(|&id| id < 6_000).collect();
        for (request, wanted) in
            [(base, all.clone()), (exact, all), (few, nearest(seed, 20, is_few)), (after, left)]
        {
            let said = format!("{context}, seed {seed}: {:?}", (&request.filter, request.exact));
            assert_eq!(ids(&client.search(request).await.unwrap().rows), wanted, "{said}");
        }
    }
    let take = TakeRequest {
        table: "t".into(),
        row_addrs: (0..ROWS).map(|id| address(id).to_u64()).collect(),
        on_missing: OnMissing::Skip.into(),
        columns: vec!["id".into()],
        ..Default::default()
    };
    let shown: Vec<i64> = (0..ROWS).filter(|&id| is_shown(id)).collect();
    let taken = client.take(take).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches.iter().flat_map(ids).collect::<Vec<_>>(), shown, "{context}");
    let hidden = (0..ROWS as u32).filter(|&id| !is_shown(i64::from(id)));
    assert_eq!(taken.missing, hidden.collect::<Vec<_>>(), "{context}");
    let get = GetRequest {
        table: "t".into(),
        key_column: "id".into(),
        keys: (0..100).map(|id| id.to_string()).collect(),
        ..Default::default()
    };
    let GottenRows::Arrow(rows) = client.get(get).await.unwrap().rows else { panic!("{context}") };
    assert_eq!(ids(&rows), (0..100).filter(|&id| is_shown(id)).collect::<Vec<_>>(), "{context}");
    let count = CountRequest { table: "t".into(), ..Default::default() };
    assert_eq!(client.count(count).await.unwrap().rows, shown.len() as u64, "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_tiers_answer_with_the_shown_rows_alone() {
    let folder = folder();
    let policy_file = folder.path().join("access.toml");
    std::fs::write(&policy_file, policy()).unwrap();
    for (stable_row_ids, scalar) in [
        (false, None),
        (true, None),
        (false, Some(IndexType::Bitmap)),
        (true, Some(IndexType::Bitmap)),
    ] {
        let uri = folder.path().join(format!("t-{stable_row_ids}-{}", scalar.is_some()));
        write(uri.to_str().unwrap(), stable_row_ids).await;
        if let Some(kind) = scalar {
            // The index answers a part of the grant's condition.
            build_scalar(uri.to_str().unwrap(), "name", kind).await;
        }
        let tables = [("t", uri.as_path())];
        let cluster = Cluster::start_with(2, &tables, |_, query| {
            query.access = Some(AccessConfig::Policy(policy_file.clone()));
        });
        let cluster = cluster.await;
        let client = cluster.client.clone().with_token(KEY).unwrap();
        let context = format!("stable row ids: {stable_row_ids}, indexed: {}", scalar.is_some());
        Box::pin(check(&client, &format!("{context}, cold"))).await;
        let version = client.describe("t", 0).await.unwrap().response.version;
        for io in &cluster.io {
            io.warm(uri.to_str().unwrap(), version).await;
        }
        Box::pin(check(&client, &format!("{context}, warm"))).await;
        cluster.stop().await;
    }
}
