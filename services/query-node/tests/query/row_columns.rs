//! Filters that name what a row has without being stored: its address, its id and its position.

use arrow_array::RecordBatchIterator;
use client::query::{CountRequest, SearchRequest};
use lance::Dataset;
use lance::dataset::WriteParams;
use wire::{Fault, Reason};

use crate::node::{addresses, near, serve, words};
use crate::table::{FIRST, ROWS, TestTable, address_of, is_live, live, rows, text, vector};

fn with(mut request: SearchRequest, table: &str, filter: &str) -> SearchRequest {
    request.table = table.into();
    request.filter = filter.into();
    request
}

fn by_filter(k: u32) -> SearchRequest {
    SearchRequest { k, ..Default::default() }
}

#[track_caller]
fn assert_refused(fault: Fault, says: &str) {
    assert_eq!(fault.reason, Reason::BadFilter, "{fault}");
    assert!(fault.message.contains(says), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_search_may_compare_addresses_and_ids() {
    let indexed = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let plain = TestTable::plain().await;
    let (_node, client) = serve(&[("indexed", &indexed), ("plain", &plain)]).await;
    // The rows 2010 to 2039 are in the second fragment.
    let (first, end) = (address_of(2010).to_u64(), address_of(2040).to_u64());
    let wanted = || live().filter(|id| (2010..2040).contains(id)).map(|id| address_of(id).to_u64());
    for column in ["_rowaddr", "_rowid"] {
        let filter = format!("{column} >= {first} AND {column} < {end} AND id != 2011");
        let expected: Vec<_> = wanted().filter(|it| *it != address_of(2011).to_u64()).collect();
        for table in ["indexed", "plain"] {
            let searched = async |request| {
                let found = client.search(with(request, table, &filter)).await.unwrap();
                let mut found = addresses(&found.rows);
                found.sort_unstable();
                found
            };
            let exact = SearchRequest { exact: true, ..near(vector(1), 100) };
            assert_eq!(searched(exact).await, expected, "{table} {column}");
            let all = SearchRequest { nprobes: 16, ..near(vector(1), 100) };
            assert_eq!(searched(all).await, expected, "{table} {column}");
            assert_eq!(searched(by_filter(100)).await, expected, "{table} {column}");
            let after = SearchRequest { filter_after: true, ..near(vector(2012), 1) };
            assert_eq!(searched(after).await, [address_of(2012).to_u64()], "{table} {column}");
            let count =
                CountRequest { table: table.into(), filter: filter.clone(), ..Default::default() };
            assert_eq!(client.count(count).await.unwrap().rows, expected.len() as u64);
        }
        let found = client.search(with(words("oak", 100), "indexed", &filter)).await.unwrap();
        let mut found = addresses(&found.rows);
        found.sort_unstable();
        let is_oak =
            |id: &i64| (2010..2040).contains(id) && *id != 2011 && text(*id).contains("oak");
        let oaks: Vec<_> = live().filter(is_oak).map(|id| address_of(id).to_u64()).collect();
        assert_eq!(found, oaks, "{column}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_on_positions_is_refused_with_a_sentence() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    for request in [near(vector(1), 5), words("oak", 5), by_filter(5)] {
        for filter in ["_rowoffset < 9", "id > 3 AND NOT (_rowoffset IN (1, 2))"] {
            let fault = client.search(with(request.clone(), "t", filter)).await.unwrap_err();
            assert_refused(fault, "a filter can't compare `_rowoffset`; compare `_rowaddr`");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_rows_with_stable_ids_are_addresses_and_compared_where_lance_reads_them() {
    let table = TestTable::nowhere();
    let batch = rows(0..ROWS);
    let params = WriteParams {
        enable_stable_row_ids: true,
        max_rows_per_file: FIRST as usize,
        ..Default::default()
    };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::write(reader, &table.uri, Some(params)).await.unwrap();
    table.delete("id % 10 = 7").await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let expected: Vec<_> =
        (2010..2020).filter(|id| is_live(*id)).map(|id| address_of(id).to_u64()).collect();
    let (first, end) = (expected[0], address_of(2020).to_u64());
    for column in ["_rowaddr", "_rowid"] {
        let filter = format!("{column} >= {first} AND {column} < {end} AND id > 10");
        let found = client.search(with(by_filter(20), "t", &filter)).await.unwrap();
        assert_eq!(addresses(&found.rows), expected, "{column}");
        let count =
            CountRequest { table: "t".into(), filter: filter.clone(), ..Default::default() };
        assert_eq!(client.count(count).await.unwrap().rows, expected.len() as u64, "{column}");
        let after = SearchRequest { filter_after: true, ..near(vector(2012), 1) };
        let found = client.search(with(after, "t", &filter)).await.unwrap();
        assert_eq!(addresses(&found.rows), [address_of(2012).to_u64()], "{column}");
        let fault = client.search(with(near(vector(1), 5), "t", &filter)).await.unwrap_err();
        assert_refused(fault, "the table has stable row ids");
    }
}
