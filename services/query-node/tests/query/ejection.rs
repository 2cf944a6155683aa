//! An I/O node that is connected but keeps failing is ejected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::query::{QueryClient, SearchRequest, TakeRequest};
use lake::Metric;
use query_node::{IoNodeConfig, QueryConfig};
use wire::fetch::Opened;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::query::MemberState;
use wire::{Fault, Reason};

use crate::fake_io;
use crate::node::{assert_true, config, near, serve_with};
use crate::table::{TestTable, address_of, vector};

/// Serves a node that answers every open with an internal error, and counts the opens.
pub async fn failing() -> (IoNodeConfig, Arc<AtomicUsize>) {
    let opens = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&opens);
    let io = fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            counted.fetch_add(1, Ordering::SeqCst);
            let error = Some(Fault::new(Reason::Internal, "a defect").into());
            vec![ResponseKind::Opened(Opened { handle: open.handle, error, ..Default::default() })]
        }
        _ => Vec::new(),
    });
    (io.await, opens)
}

/// Takes ten rows of `t`, and checks them.
async fn take(client: &QueryClient) {
    let row_addrs = (0..10).map(|id| address_of(id * 5 + 1).to_u64()).collect();
    let request = TakeRequest { table: "t".into(), row_addrs, ..Default::default() };
    let rows = client.take(request).await.unwrap().collect().await.unwrap();
    rows.batches.iter().for_each(assert_true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_keeps_failing_is_ejected_and_the_table_answers() {
    let (io, opens) = failing().await;
    let table = TestTable::plain().await;
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        ejection_failures: 3,
        ejection_time: Duration::from_secs(3600),
        ejection_time_max: Duration::from_secs(3600),
        ..config(&[("t", &table)])
    })
    .await;
    for taken in 1..=6 {
        take(&client).await;
        assert_eq!(opens.load(Ordering::SeqCst), taken.min(3));
        let status = client.status().await.unwrap();
        let expected = if taken < 3 { MemberState::Ready } else { MemberState::Ejected };
        assert_eq!(status.io_nodes[0].state(), expected);
        assert_eq!(status.membership.unwrap().ejections, u64::from(taken >= 3));
        assert_eq!(status.fallback_rows, 10 * taken as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_ejection_a_search_without_candidates_leaves_the_try_to_the_next_request() {
    let (io, opens) = failing().await;
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let ejection_time = Duration::from_secs(2);
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        ejection_failures: 1,
        ejection_time,
        ejection_time_max: ejection_time,
        ..config(&[("t", &table)])
    })
    .await;
    // No row passes the filter, so there is nothing to score. Once the index is open, the search takes milliseconds.
    let search = || SearchRequest { filter: "id < 0".into(), ..near(vector(5), 3) };
    assert_eq!(client.search(search()).await.unwrap().rows.num_rows(), 0);
    take(&client).await;
    assert_eq!(opens.load(Ordering::SeqCst), 1);
    tokio::time::sleep(ejection_time).await;
    assert_eq!(client.search(search()).await.unwrap().rows.num_rows(), 0);
    assert_eq!(opens.load(Ordering::SeqCst), 1);
    take(&client).await;
    assert_eq!(opens.load(Ordering::SeqCst), 2, "the Take tries the node");
}
