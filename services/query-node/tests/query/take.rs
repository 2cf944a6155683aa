use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use client::query::{OnMissing, TakeRequest};
use lance::Dataset;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use wire::Reason;

use crate::deadlines::large_take;
use crate::keys::with_metrics;
use crate::node::{assert_true, config, names, serve_with, served};
use crate::operate::metric;
use crate::table::{TestTable, address_of, live, rows};

/// The size of the text of the row of [`wide_table`].
const TEXT_BYTES: usize = 128 << 10;

/// The number of rows without a fixed width that the first piece of an answer has. Those of [`wide_table`] are more than
/// the connection and its client hold.
pub const ROWS_FIRST: usize = 256;

/// The memory that a piece of [`ROWS_FIRST`] rows of [`wide_table`] holds at least, of which there are two copies while
/// it is made.
pub const WIDE_PIECE_BYTES: usize = 2 * ROWS_FIRST * TEXT_BYTES;

/// Creates a table of one row with a large text, which can't be compressed much: the size of the data file determines
/// how many rows the first piece has.
pub async fn wide_table() -> TestTable {
    let mut random = StdRng::seed_from_u64(3);
    let letters = (0..TEXT_BYTES).map(|_| char::from(random.random_range(b'a'..=b'z')));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![letters.collect::<String>()]));
    TestTable::of(RecordBatch::try_from_iter([("text", texts)]).unwrap()).await
}

/// Returns a Take of the row of [`wide_table`], `count` times.
pub fn wide_take(count: usize) -> TakeRequest {
    TakeRequest { table: "t".into(), row_addrs: vec![0; count], ..Default::default() }
}

fn take(ids: &[i64], columns: &[&str]) -> TakeRequest {
    TakeRequest {
        table: "t".into(),
        row_addrs: ids.iter().map(|&id| address_of(id).to_u64()).collect(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_come_in_the_order_given_in_messages_of_bounded_size() {
    let (_table, _node, client) = served().await;
    let live: Vec<i64> = live().collect();
    let mut random = StdRng::seed_from_u64(11);
    let ids: Vec<i64> = (0..30_000).map(|_| *live.choose(&mut random).unwrap()).collect();
    let mut parts = client.take(take(&ids, &["vector", "id"])).await.unwrap();
    let (mut batches, mut messages) = (Vec::new(), 0);
    while let Some(mut part) = parts.next().await.unwrap() {
        messages += 1;
        assert!(part.missing.is_empty());
        batches.append(&mut part.batches);
    }
    // 30,000 rows of 328 bytes.
    assert!(messages > 2, "{messages} messages");
    let got = concat_batches(&parts.schema().unwrap(), &batches).unwrap();
    let truth = rows(ids.iter().copied());
    assert_eq!(names(&got), ["vector", "id", "_rowaddr"]);
    assert_true(&got);
    assert_eq!(got["vector"].as_ref(), truth["vector"].as_ref());
    assert_eq!(got["id"].as_ref(), truth["id"].as_ref());
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rows_are_an_error_or_left_out() {
    let (_table, _node, client) = served().await;
    let mut request = take(&[5, 7, 2999, 8], &["id"]);
    // The first address is past the end of its fragment. The fragment of the second one does not exist.
    request.row_addrs.extend([1 << 32 | 1000, 9 << 32]);
    let fault = client.take(request.clone()).await.err().unwrap();
    assert_eq!(fault.reason, Reason::RowNotFound);
    assert!(fault.message.contains("7 (0:7)") && fault.message.contains("1:1000"), "{fault}");
    request.set_on_missing(OnMissing::Skip);
    let taken = client.take(request.clone()).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.missing, [1, 4, 5]);
    let got = concat_batches(&taken.batches[0].schema(), &taken.batches).unwrap();
    assert_eq!(got["id"].as_ref(), rows([5, 2999, 8].into_iter())["id"].as_ref());
    assert_true(&got);
    request.row_addrs = vec![9 << 32];
    let taken = client.take(request).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 0);
    assert_eq!(taken.missing, [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_and_any_order_are_fine_for_random_requests() {
    let (_table, _node, client) = served().await;
    let live: Vec<i64> = live().collect();
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..20 {
        let count = random.random_range(1..60);
        let ids: Vec<i64> = (0..count).map(|_| *live.choose(&mut random).unwrap()).collect();
        let taken = client.take(take(&ids, &["key", "id"])).await.unwrap();
        let taken = taken.collect().await.unwrap();
        let got = concat_batches(&taken.batches[0].schema(), &taken.batches).unwrap();
        let truth = rows(ids.iter().copied());
        assert_eq!(got["key"].as_ref(), truth["key"].as_ref());
        assert_eq!(got["id"].as_ref(), truth["id"].as_ref());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_taken_by_their_positions_as_lance_takes_them() {
    let (table, _node, client) = served().await;
    let dataset = Dataset::open(&table.uri).await.unwrap();
    let count = live().count() as u64;
    let mut random = StdRng::seed_from_u64(7);
    let random = (0..500).map(|_| random.random_range(0..count));
    // The first and the last row, of both fragments, and one row twice.
    let offsets: Vec<u64> = [0, count - 1, 1799, 1800, 5, 5].into_iter().chain(random).collect();
    let projection = dataset.schema().project(&["id"]).unwrap();
    let expected = dataset.take(&offsets, projection).await.unwrap();
    let by = |row_offsets: &[u64]| TakeRequest {
        row_addrs: Vec::new(),
        row_offsets: row_offsets.to_vec(),
        ..take(&[], &["id"])
    };
    let taken = client.take(by(&offsets)).await.unwrap().collect().await.unwrap();
    let got = concat_batches(&taken.batches[0].schema(), &taken.batches).unwrap();
    assert_eq!(got["id"].as_ref(), expected["id"].as_ref());
    assert_true(&got);

    let fault = client.take(by(&[0, count, 9])).await.err().unwrap();
    assert_eq!(fault.reason, Reason::RowNotFound);
    let says = format!("has no row at the offset {count}: it has {count} rows");
    assert!(fault.message.contains(&says), "{fault}");
    let mut some = by(&[u64::MAX, 0, count, 1]);
    some.set_on_missing(OnMissing::Skip);
    let taken = client.take(some).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.missing, [0, 2]);
    let got = concat_batches(&taken.batches[0].schema(), &taken.batches).unwrap();
    assert_eq!(got["id"].as_ref(), rows([0, 1].into_iter())["id"].as_ref());

    let both = TakeRequest { row_addrs: vec![0], ..by(&[0]) };
    let too_many = by(&vec![0; 1_000_001]);
    for (request, says) in [(both, "set beside `row_addrs`"), (too_many, "1000001 offsets")] {
        let fault = client.take(request).await.err().unwrap();
        assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
        assert!(fault.message.contains(says), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_piece_hold_memory_until_they_are_read() {
    let table = wide_table().await;
    let (node, client) = serve_with(with_metrics(config(&[("t", &table)]))).await;
    let mut taken = client.take(wide_take(ROWS_FIRST)).await.unwrap();
    assert!(taken.next().await.unwrap().is_some());
    let held = metric(&node, "bireme_query_traffic_memory_usage_bytes").await;
    assert!(held >= WIDE_PIECE_BYTES as f64, "{held} bytes");
    let rest = taken.collect().await.unwrap();
    assert_eq!(rest.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS_FIRST);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_delay_no_other_call_of_the_same_client() {
    let (_table, _node, client) = served().await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut taken = client.take(large_take("t")).await.unwrap();
        assert!(taken.next().await.unwrap().is_some());
        unread.push(taken);
    }
    // The node sends until the window of each answer is used up.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let client = client.with_timeout(Duration::from_secs(60));
    let taken = client.take(take(&[5, 1], &["id"])).await.unwrap().collect().await.unwrap();
    assert_eq!(taken.batches[0]["id"].as_ref(), rows([5, 1].into_iter())["id"].as_ref());
}
