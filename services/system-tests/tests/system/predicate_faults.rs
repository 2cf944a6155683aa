//! Tests filters that an I/O node does not evaluate: because it is older than predicates, or because it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lance::Dataset;
use lance_index::IndexType;
use wire::fetch::reply::Outcome;
use wire::{Fault, Reason};

use crate::cluster::{Cluster, Io, folder};
use crate::predicates::{CASES, build_scalar, check_after, is_live, listed, search, write};
use crate::relay::relay;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_predicates_returns_rows_for_which_the_query_node_evaluates_them() {
    let folder = folder();
    let uri = folder.path().join("table");
    Box::pin(write(uri.to_str().unwrap(), false)).await;
    // With this index, only rows with `id >= 6000` are candidates for the filter of the last case.
    build_scalar(uri.to_str().unwrap(), "id", IndexType::BTree).await;
    let io = Io::start(|_| {}).await;
    let version = Dataset::open(uri.to_str().unwrap()).await.unwrap().version().version;
    io.warm(uri.to_str().unwrap(), version).await;
    let (asked, passing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, noted) = (Arc::clone(&asked), Arc::clone(&passing));
    // A node of revision 1 ignores the field that it does not know.
    let older = relay(
        &io,
        1,
        move |batch| {
            let predicate = batch.predicate.take();
            counted.fetch_add(usize::from(predicate.is_some()), Relaxed);
            None
        },
        move |reply| {
            let is_passing = matches!(reply.outcome, Some(Outcome::Passing(_)));
            noted.fetch_add(usize::from(is_passing), Relaxed);
        },
    )
    .await;
    let cluster = Cluster::over(vec![io], vec![older], &[("t", &uri)]).await;
    for (seed, (filter, plain, passes)) in (0..).zip(CASES) {
        let before = asked.load(Relaxed);
        let near = search(&cluster, filter, seed, 5, false).await;
        let details = &near.details;
        assert!(details.iter().any(|it| it.starts_with("filter: ")), "`{filter}`: {details:?}");
        assert!(asked.load(Relaxed) > before, "`{filter}`: {details:?}");
        let is_narrowed = details.iter().any(|it| it.contains("scalar indexes leave"));
        assert_eq!(is_narrowed, filter.starts_with("id >= "), "`{filter}`: {details:?}");
        assert!(near.ids.iter().all(|id| passes(*id) && is_live(*id)), "`{filter}`");
        assert_eq!((near.ids, near.distances), listed(&cluster, plain, seed).await, "`{filter}`");
        check_after(&cluster, filter, seed, passes, filter).await;
    }
    assert_eq!(passing.load(Relaxed), 0, "the node has evaluated no predicate");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_the_rows_if_the_nodes_refuse_to_evaluate_the_filter() {
    let folder = folder();
    let uri = folder.path().join("table");
    Box::pin(write(uri.to_str().unwrap(), true)).await;
    let io = Io::start(|_| {}).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let busy = relay(
        &io,
        2,
        move |batch| {
            batch.predicate.as_ref()?;
            counted.fetch_add(1, Relaxed);
            Some(Fault::new(Reason::Overloaded, "the queue of core 0 is full"))
        },
        |_| {},
    )
    .await;
    let cluster = Cluster::over(vec![io], vec![busy], &[("t", &uri)]).await;
    let (filter, plain, passes) = CASES[0];
    let near = search(&cluster, filter, 2, 5, false).await;
    let why =
        "because the filter could not be evaluated for candidates: the queue of core 0 is full";
    let by_scan = near.details.iter().find(|it| it.contains("by a scan"));
    assert!(by_scan.is_some_and(|it| it.contains(why)), "{:?}", near.details);
    assert_eq!(refused.load(Relaxed), 1, "the query node does not try again");
    assert_eq!((near.ids, near.distances), listed(&cluster, plain, 2).await);
    // The query node has cached the list of rows that pass, so it asks no node. With `filter_after` and another filter,
    // it asks about the rows that were found.
    search(&cluster, filter, 3, 5, false).await;
    assert_eq!(refused.load(Relaxed), 1);
    let after = search(&cluster, "size > 501", 4, 50, true).await;
    assert_eq!(refused.load(Relaxed), 2);
    let all = search(&cluster, "", 4, 50, false).await;
    let is_larger = |id: &i64| passes(*id) && crate::predicates::size(*id) != Some(501);
    let expected: Vec<_> = all.ids.into_iter().filter(is_larger).collect();
    assert_eq!(after.ids, expected);
    cluster.stop().await;
}
