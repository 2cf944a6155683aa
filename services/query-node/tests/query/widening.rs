//! A search that is widened, because too few candidates pass its filter, keeps its deadline.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_schema::Schema;
use client::query::SearchRequest;
use query_node::QueryConfig;
use tokio::time::timeout;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::reply::Outcome;
use wire::fetch::{Opened, Passing, Reply};
use wire::{Fault, Reason, schema_to_bytes};

use crate::fake_io;
use crate::node::{config, near, serve_with};
use crate::overload::{PATIENCE, Withheld, waiting};
use crate::table::{TestTable, lake, vector};

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_search_between_two_rounds() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let schema = Arc::clone(lake().open(&table.uri).await.unwrap().schema());
    let rounds = Arc::new(AtomicUsize::new(0));
    let (counted, (go, may_answer)) = (Arc::clone(&rounds), channel::<()>());
    let may_answer = Mutex::new(may_answer);
    // The node says that no candidate passes, as soon as it may.
    let io = fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            let fields = open.columns.iter().map(|name| schema.field_with_name(name));
            let fields: Vec<_> = fields.map(|field| field.unwrap().clone()).collect();
            let schema = schema_to_bytes(&pack::wire_schema(&Schema::new(fields))).unwrap();
            vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
        }
        RequestKind::Batches(batches) => {
            let reply = |batch: wire::fetch::Batch| {
                let outcome = match batch.predicate {
                    Some(_) => {
                        counted.fetch_add(1, Relaxed);
                        // The sender is dropped at the end, when nobody is to wait.
                        let _ = tokio::task::block_in_place(|| may_answer.lock().unwrap().recv());
                        Outcome::Passing(Passing::default())
                    }
                    None => Outcome::Error(Fault::new(Reason::UnsupportedType, "no rows").into()),
                };
                ResponseKind::Reply(Reply {
                    id: batch.id,
                    outcome: Some(outcome),
                    ..Default::default()
                })
            };
            batches.batches.into_iter().map(reply).collect()
        }
        _ => Vec::new(),
    })
    .await;
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        search_concurrency: 1,
        search_queue_max: 4,
        timeout: 20 * PATIENCE,
        ..config(&[("t", &table)])
    })
    .await;
    let client = client.with_timeout(10 * PATIENCE);
    let search = || SearchRequest {
        filter: "id >= 0".into(),
        nprobes: 16,
        refine_factor: Some(0),
        ..near(vector(5), 1)
    };
    let time_limit = Duration::from_secs(10);
    let searching = {
        let client = client.clone().with_timeout(time_limit);
        tokio::spawn(async move { client.search(search()).await })
    };
    let asked = async {
        while rounds.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, asked).await.expect("the first candidates are compared");
    // Two scans take the only permit and a place in the queue, so that the next round cannot begin.
    let withheld = Withheld::of(&table);
    let scans = [1, 2].map(|end| {
        let filter = format!("text LIKE '%{end}%'");
        let scan = SearchRequest { table: "t".into(), filter, k: 3, ..Default::default() };
        let client = client.clone();
        tokio::spawn(async move { client.search(scan).await })
    });
    waiting(&client, 1).await;
    go.send(()).unwrap();
    waiting(&client, 2).await;
    let fault = timeout(PATIENCE, searching).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}");
    // The search's place in the queue is free, and the search has asked nothing more.
    waiting(&client, 1).await;
    assert_eq!(rounds.load(Relaxed), 1);
    drop((withheld, go));
    for scan in scans {
        scan.await.unwrap().unwrap();
    }
    // Another search, with more time, asks again.
    client.search(search()).await.unwrap();
    assert_eq!(rounds.load(Relaxed), 2);
}
