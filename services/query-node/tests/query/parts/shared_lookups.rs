//! Look-ups that share work with others on their core: only requests that see the same part may share it.

use client::query::{GetRequest, LookupOpen, QueryClient};
use futures::future::{BoxFuture, FutureExt, join_all};

use super::{get_of, guarded, is_shown, lookup_of, rows_of};
use crate::access::secret;
use crate::keys::with_metrics;
use crate::lookups::{of_rows, text_keys};
use crate::node::{ids, serve_with};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, key};

/// Gets, and batches of Lookup streams, of callers who see a part and of those who see the whole table, all at the same
/// time on one core.
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_different_parts_share_no_look_up() {
    let table = TestTable::plain().await;
    let (_folder, config) = guarded(&table, super::PART);
    let mut config = with_metrics(config);
    config.cores = 1;
    let (node, anonymous) = serve_with(config).await;
    node.ready().await;
    let with_key = |name: &str| anonymous.clone().with_token(&secret(name)).unwrap();
    let columns = vec!["id".to_owned()];
    let open = LookupOpen { table: "t".into(), columns: columns.clone(), ..Default::default() };
    let open = LookupOpen { key_column: "key".into(), ..open };
    for (name, sees) in [("one", is_shown as fn(i64) -> bool), ("two", is_live)] {
        let gotten =
            rows_of(with_key(name).get(get_of("key", (0..9).map(key).collect())).await.unwrap());
        assert_eq!(ids(&gotten.0), (0..9).filter(|&id| sees(id)).collect::<Vec<_>>());
    }
    let clients: Vec<QueryClient> = ["one", "two"].map(with_key).into();
    let lookups = join_all(clients.iter().map(|client| lookup_of(client, open.clone()))).await;
    let requests = (0..600_i64).map(|number| -> BoxFuture<'_, ()> {
        let at = (number % 2) as usize;
        let sees = [is_shown, is_live][at];
        let wanted: Vec<i64> = (0..5).map(|it| (number * 37 + it * 101) % (ROWS + 50)).collect();
        let keys: Vec<String> = wanted.iter().copied().map(key).collect();
        let there = move |id: &i64| *id < ROWS && sees(*id);
        let (client, lookup, columns) = (&clients[at], &lookups[at], columns.clone());
        async move {
            let (found, not_found) = match number % 4 {
                0 | 1 => {
                    let request = GetRequest { columns, ..get_of("key", keys) };
                    let (rows, not_found) = rows_of(client.get(request).await.unwrap());
                    (ids(&rows), not_found)
                }
                _ => {
                    let answer = lookup.get(text_keys(&keys)).await.unwrap();
                    (ids(&of_rows(answer.rows)), answer.not_found)
                }
            };
            let expected: Vec<i64> = wanted.iter().copied().filter(there).collect();
            assert_eq!(found, expected, "request {number}");
            let absent = (0..).zip(&wanted).filter(|(_, id)| !there(id)).map(|(at, _)| at);
            assert_eq!(not_found, absent.collect::<Vec<u32>>(), "request {number}");
        }
        .boxed()
    });
    join_all(requests).await;
    let gathered = metric(&node, "bireme_query_gathered_total").await;
    assert!(gathered > 50.0, "only {gathered} of 600 requests shared work");
}
