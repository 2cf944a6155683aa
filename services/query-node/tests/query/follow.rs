use client::query::SearchRequest;
use wire::Reason;

use crate::node::{config, ids, serve, serve_with};
use crate::table::{ROWS, TestTable};

fn last_rows(version: u64) -> SearchRequest {
    let filter = format!("id >= {}", ROWS - 2);
    SearchRequest { table: "t".into(), version, filter, k: 10, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_versions_are_followed_and_old_ones_stay() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&[("t", &table)]).await;
    let before = client.search(last_rows(0)).await.unwrap();
    assert_eq!(ids(&before.rows), [ROWS - 2, ROWS - 1]);
    table.append(ROWS..ROWS + 3).await;
    node.refresh().await;
    let after = client.search(last_rows(0)).await.unwrap();
    assert_eq!(after.version, before.version + 1);
    assert_eq!(ids(&after.rows).len(), 5);
    let old = client.search(last_rows(before.version)).await.unwrap();
    assert_eq!((old.version, old.rows), (before.version, before.rows));
    let fault = client.search(last_rows(after.version + 1)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::VersionNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_created_anew_does_not_keep_versions_of_the_old_one() {
    let table = TestTable::nowhere();
    table.append(0..ROWS).await;
    table.append(ROWS..ROWS + 5).await;
    let (node, client) = serve(&[("t", &table)]).await;
    // This version is not the latest one, so the node keeps it beside the latest one.
    let first = client.search(last_rows(1)).await.unwrap();
    assert_eq!(ids(&first.rows), [ROWS - 2, ROWS - 1]);

    // The new table has the same version with other rows, and a latest version that is higher than the old one's.
    std::fs::remove_dir_all(&table.uri).unwrap();
    table.append(0..ROWS - 1).await;
    table.append(ROWS..ROWS + 1).await;
    table.append(ROWS + 1..ROWS + 2).await;
    node.refresh().await;
    let latest = client.search(last_rows(0)).await.unwrap();
    assert_eq!((latest.version, ids(&latest.rows)), (3, vec![ROWS - 2, ROWS, ROWS + 1]));
    assert_eq!(ids(&client.search(last_rows(1)).await.unwrap().rows), [ROWS - 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_interval_is_kept_without_being_asked() {
    let table = TestTable::plain().await;
    let mut config = config(&[("t", &table)]);
    config.refresh_interval = std::time::Duration::from_millis(50);
    let (_node, client) = serve_with(config).await;
    let before = client.search(last_rows(0)).await.unwrap().version;
    table.append(ROWS..ROWS + 1).await;
    for _ in 0..200 {
        if client.search(last_rows(0)).await.unwrap().version == before + 1 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("version {} was not seen", before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_version_stays() {
    let table = TestTable::plain().await;
    let mut config = config(&[("t", &table)]);
    // Version 1 has only the first fragment.
    config.tables.get_mut("t").unwrap().version = Some(1);
    let (node, client) = serve_with(config).await;
    node.refresh().await;
    let answer = client.search(last_rows(0)).await.unwrap();
    assert_eq!((answer.version, answer.rows.num_rows()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_opened_is_listed_with_why_and_tried_again() {
    let (absent, there) = (TestTable::nowhere(), TestTable::plain().await);
    let (node, client) = serve(&[("absent", &absent), ("t", &there)]).await;
    node.refresh().await;
    let tables = client.tables().await.unwrap();
    assert_eq!((tables[0].name.as_str(), tables[0].version), ("absent", 0));
    let error = &tables[0].error;
    assert!(error.starts_with("no table at <absent>") && !error.contains(&absent.uri), "{error}");
    assert_eq!((tables[1].rows, tables[1].error.as_str()), (2700, ""));
    let request = SearchRequest { table: "absent".into(), ..last_rows(0) };
    let fault = client.search(request.clone()).await.unwrap_err();
    assert_eq!(fault.reason, Reason::TableNotFound);
    absent.fill().await;
    assert_eq!(ids(&client.search(request).await.unwrap().rows).len(), 2);
    assert_eq!(client.tables().await.unwrap()[0].error, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_removed_while_it_is_served_is_unavailable_until_it_is_back() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&[("t", &table)]).await;
    node.refresh().await;
    let errors = async || {
        let listed = client.tables().await.unwrap().remove(0).error;
        let described = client.describe("t", 0).await.unwrap().response.error;
        let status = client.status().await.unwrap().tables.remove(0).error;
        [listed, described, status]
    };
    assert_eq!(errors().await, ["", "", ""]);
    std::fs::remove_dir_all(&table.uri).unwrap();
    node.refresh().await;
    for error in errors().await {
        assert!(error.contains("no table at <t>") && !error.contains(&table.uri), "{error}");
    }
    assert_eq!(client.tables().await.unwrap()[0].rows, 2700);
    table.fill().await;
    node.refresh().await;
    assert_eq!(errors().await, ["", "", ""]);
}
