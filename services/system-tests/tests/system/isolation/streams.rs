//! A stream ends when a new policy takes away its caller's right to it.

use std::time::Duration;

use access_model::{May, Policy, Verdict, Who};
use client::query::{TakeRequest, WarmRequest};
use futures::StreamExt;
use lance::dataset::WriteMode;
use wire::{Fault, Reason};

use super::troubles::Reachable;
use super::{Served, tables};
use crate::cluster::folder;

/// The number of fragments that are added to the table to warm. Each has a chunk of its own.
const FRAGMENTS: i64 = 6;

/// The number of rows of the table to take from.
const ROWS: i64 = 20_000;

/// The number of rows to take: enough for dozens of messages, of which HTTP/2 buffers about ten.
const TAKEN: usize = 1_000_000;

fn assert_lost(fault: &Fault, table: &str) {
    assert_eq!(fault.reason, Reason::TableNotFound, "{fault}");
    let Verdict::Unknown(said) = left().verdict(Who::Key(0), table, May::Read) else { panic!() };
    assert_eq!(fault.message, said);
}

/// Returns the new policy. It allows the caller only a table other than those that its streams use.
fn left() -> Policy {
    Policy::of("key:one", "larux", &[May::Read, May::Warm])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_and_a_warm_end_once_the_policy_no_longer_allows_them() {
    let folder = folder();
    let tables = tables(folder.path()).await;
    let [table, warmed, ..] = &tables[..] else { panic!("there are more tables") };
    for fragment in 0..FRAGMENTS {
        warmed.write(1000 * fragment..1000 * (fragment + 1), WriteMode::Append).await;
    }
    table.write(0..ROWS, WriteMode::Overwrite).await;
    let rows = table.version(*table.versions().last().unwrap()).await;
    let io = Reachable::start(0, 0).await;
    let (served, file) = Served::start(folder.path(), std::slice::from_ref(&io)).await;
    served.node.ready().await;
    let client = served.client(Who::Key(0)).await;
    let take = TakeRequest {
        table: table.name.into(),
        row_addrs: rows.keys().copied().cycle().take(TAKEN).collect(),
        columns: vec!["id".into(), "text".into()],
        ..Default::default()
    };
    let mut parts = client.take(take).await.unwrap();
    parts.next().await.unwrap().unwrap();
    // At one byte per second, the Warm does not end on its own.
    let warm = WarmRequest { table: warmed.name.into(), bytes_per_s: 1, ..Default::default() };
    let mut steps = client.warm(warm).await.unwrap();

    file.write(left());
    file.read_by(&served.node).await;
    let fault = loop {
        match parts.next().await {
            Ok(Some(part)) => drop(part),
            Ok(None) => panic!("all rows were sent"),
            Err(fault) => break fault,
        }
    };
    assert_lost(&fault, table.name);
    let fault = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match steps.next().await {
                Some(Ok(step)) => assert!(step.extents_done < step.extents_total, "{step:?}"),
                Some(Err(fault)) => break fault,
                None => panic!("the Warm ended without a fault"),
            }
        }
    });
    assert_lost(&fault.await.expect("the Warm goes on"), warmed.name);
    served.node.shutdown(Duration::from_secs(10)).await.unwrap();
    io.stop().await;
}
