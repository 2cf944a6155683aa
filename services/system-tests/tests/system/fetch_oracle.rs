//! Compares rows from a real I/O node with Lance's own `take`: every type, in many orders, from the table and from the
//! drive, with io_uring and with pread.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, UInt64Array};
use arrow_schema::{Field, Schema};
use client::fetch::TableVersion;
use lance::Dataset;
use lance::dataset::{NewColumnTransform, ProjectionRequest, TakeBuilder, WriteParams};
use lance_file::version::LanceFileVersion;
use pack::restore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::{ENGINES, Io, folder, soon, total};
use crate::types::Maker;

const ROWS_PER_FRAGMENT: usize = 90;

/// Writes a table of `fragments` fragments with every type. If there are several, also deletes rows and adds a column
/// of nulls.
async fn write(uri: &str, fragments: usize, stable_row_ids: bool) -> Dataset {
    let batch = Maker::new(7, fragments * ROWS_PER_FRAGMENT).all_types();
    let params = WriteParams {
        max_rows_per_file: ROWS_PER_FRAGMENT,
        enable_stable_row_ids: stable_row_ids,
        data_storage_version: Some(LanceFileVersion::V2_2),
        ..Default::default()
    };
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let mut dataset = Dataset::write(reader, uri, Some(params)).await.unwrap();
    if fragments > 1 {
        dataset.delete("id % 7 = 3").await.unwrap();
        let added = Field::new("added", arrow_schema::DataType::Int64, true);
        let added = NewColumnTransform::AllNulls(Arc::new(Schema::new(vec![added])));
        dataset.add_columns(added, None, None).await.unwrap();
    }
    dataset
}

/// Returns the rows that Lance's own `take` returns.
async fn oracle(dataset: &Dataset, addrs: &[u64], columns: &[&str]) -> RecordBatch {
    let projection = ProjectionRequest::from_columns(columns, dataset.schema());
    let dataset = Arc::new(dataset.clone());
    let plan = projection.into_projection_plan(Arc::clone(&dataset)).unwrap();
    TakeBuilder::try_new_from_addresses(dataset, addrs.to_vec(), Arc::new(plan))
        .unwrap()
        .execute()
        .await
        .unwrap()
}

/// Returns lists of addresses of existing rows, in many orders and sizes.
fn lists(live: &[u64], rng: &mut StdRng) -> Vec<Vec<u64>> {
    let some = |rng: &mut StdRng, n: usize| -> Vec<u64> {
        (0..n).map(|_| live[rng.random_range(0..live.len())]).collect()
    };
    let mut reversed = live.to_vec();
    reversed.reverse();
    vec![
        live.to_vec(),
        reversed,
        some(rng, 1),
        some(rng, 40),
        some(rng, 400),
        vec![live[live.len() / 2]; 30],
        live[..live.len().min(20)].to_vec(),
    ]
}

fn live_rows(dataset: &Dataset, fragments: usize) -> Vec<u64> {
    let deleted = |id: usize| fragments > 1 && id % 7 == 3;
    let fragment_ids: Vec<_> = dataset.get_fragments().iter().map(|f| f.id() as u32).collect();
    (0..fragments * ROWS_PER_FRAGMENT)
        .filter(|&id| !deleted(id))
        .map(|id| {
            let fragment = fragment_ids[id / ROWS_PER_FRAGMENT];
            RowAddr::new(fragment, (id % ROWS_PER_FRAGMENT) as u32).to_u64()
        })
        .collect()
}

async fn check(io: &Io, dataset: &Dataset, addrs: &[u64], columns: &[&str], context: &str) {
    let uri = dataset.uri();
    let projection = io.open(uri, dataset.version().version, columns).await;
    let asked: Vec<_> = addrs.iter().map(|&a| RowAddr::from_u64(a)).collect();
    let reply = io.client.fetch(&projection, asked, None, soon()).await.unwrap();
    assert!(reply.missing.is_empty(), "{context}");
    let rows = reply.into_rows().unwrap();
    let non_blobs: Vec<_> = columns.iter().copied().filter(|c| *c != "blob").collect();
    let expected = oracle(dataset, addrs, &non_blobs).await;
    for column in non_blobs {
        let got = rows.column_by_name(column).unwrap();
        let wanted = expected.column_by_name(column).unwrap();
        let field = expected.schema().field_with_name(column).unwrap().clone();
        let got = restore(got, &field).unwrap();
        assert_eq!(&got, wanted, "{context}: column {column}");
    }
}

fn columns_of(dataset: &Dataset) -> Vec<String> {
    dataset.schema().fields.iter().map(|f| f.name.clone()).collect()
}

async fn check_all(io: &Io, dataset: &Dataset, fragments: usize, context: &str) {
    let mut rng = StdRng::seed_from_u64(11);
    let live = live_rows(dataset, fragments);
    let columns = columns_of(dataset);
    let all: Vec<_> = columns.iter().map(String::as_str).collect();
    for (at, addrs) in lists(&live, &mut rng).into_iter().enumerate() {
        check(io, dataset, &addrs, &all, &format!("{context}, list {at}, all columns")).await;
        let from = rng.random_range(0..all.len() - 3);
        let some = [all[from + 2], all[from], all[from + 1]];
        check(io, dataset, &addrs, &some, &format!("{context}, list {at}, {some:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_equals_lances_own_take() {
    for (fragments, stable_row_ids) in [(8, false), (8, true), (1, false)] {
        let folder = folder();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let dataset = write(&uri, fragments, stable_row_ids).await;
        let version = dataset.version().version;
        for engine in ENGINES {
            let io = Io::start(|config| config.engine = engine).await;
            let context = format!("{fragments} fragments, stable {stable_row_ids}, {engine:?}");
            check_all(&io, &dataset, fragments, &format!("{context}, cold")).await;
            io.warm(&uri, version).await;
            let before = io.describe().await;
            check_all(&io, &dataset, fragments, &format!("{context}, warm")).await;
            let after = io.describe().await;
            let table_rows = |d| total(d, |c| c.table_rows);
            assert_eq!(table_rows(&before), table_rows(&after), "{context}: all from the drive");
            assert!(total(&after, |c| c.drive_reads) > total(&before, |c| c.drive_reads));
            assert_eq!(total(&after, |c| c.bad_sectors), 0);
            io.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_returned_with_their_contents() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let source = Maker::new(7, 3 * ROWS_PER_FRAGMENT).all_types();
    let dataset = write(&uri, 3, false).await;
    let io = Io::start(|_| {}).await;
    let live = live_rows(&dataset, 3);
    let ids = |addr: u64| {
        let addr = RowAddr::from_u64(addr);
        u64::from(addr.fragment()) * ROWS_PER_FRAGMENT as u64 + u64::from(addr.offset())
    };
    let ids = UInt64Array::from_iter_values(live.iter().map(|&a| ids(a)));
    let expected = arrow_select::take::take(source.column_by_name("blob").unwrap(), &ids, None);
    let expected: ArrayRef = expected.unwrap();
    for warm in [false, true] {
        if warm {
            io.warm(&uri, dataset.version().version).await;
        }
        let projection = io.open(&uri, dataset.version().version, &["blob"]).await;
        let asked = live.iter().map(|&a| RowAddr::from_u64(a)).collect();
        let reply = io.client.fetch(&projection, asked, None, soon()).await.unwrap();
        assert_eq!(reply.into_rows().unwrap().column(0), &expected, "warm {warm}");
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_addresses_are_reported_and_left_out() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let dataset = write(&uri, 2, false).await;
    let io = Io::start(|_| {}).await;
    let version = dataset.version().version;
    for warm in [false, true] {
        if warm {
            io.warm(&uri, version).await;
        }
        let projection = io.open(&uri, version, &["id"]).await;
        let first = dataset.get_fragments()[0].id() as u32;
        // Row 3 is deleted. Row 5000 and fragment 99 never existed.
        let asked = [(first, 1), (first, 3), (first, 5000), (99, 0), (first, 4)];
        let asked = asked.map(|(f, o)| RowAddr::new(f, o)).to_vec();
        let reply = io.client.fetch(&projection, asked, None, soon()).await.unwrap();
        assert_eq!(reply.missing, [1, 2, 3]);
        let expected = Int64Array::from(vec![1, 4]);
        assert_eq!(reply.into_rows().unwrap().column(0).as_ref(), &expected);
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_shares_extents_and_an_overwritten_table_does_not() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let mut dataset = write(&uri, 1, false).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, dataset.version().version).await;
    let filled = io.describe().await.extents;
    dataset.delete("id = 5").await.unwrap();
    io.warm(&uri, dataset.version().version).await;
    assert_eq!(io.describe().await.extents, filled, "a deletion does not cause fills");

    let batch = Maker::new(8, ROWS_PER_FRAGMENT).all_types();
    let schema = batch.schema();
    let params = WriteParams {
        mode: lance::dataset::WriteMode::Overwrite,
        data_storage_version: Some(LanceFileVersion::V2_2),
        ..Default::default()
    };
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let dataset = Dataset::write(reader, &uri, Some(params)).await.unwrap();
    let live = live_rows(&dataset, 1);
    check(&io, &dataset, &live, &["text", "vector_f32"], "overwritten").await;
    io.warm(&uri, dataset.version().version).await;
    check(&io, &dataset, &live, &["text", "vector_f32"], "overwritten, warm").await;
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_table_with_the_same_name_is_not_mistaken_for_the_old_one() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let lake = lake::Lake::new(lake::LakeOptions::default());
    let io = Io::start(|_| {}).await;
    let mut identities = Vec::new();
    for seed in [7, 8] {
        let batch = Maker::new(seed, ROWS_PER_FRAGMENT).all_types();
        let expected = batch["text"].clone();
        let params = WriteParams {
            data_storage_version: Some(LanceFileVersion::V2_2),
            ..Default::default()
        };
        let schema = batch.schema();
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        Dataset::write(reader, &uri, Some(params)).await.unwrap();
        let identity = lake.open_version(&uri, 1).await.unwrap().identity();
        let table = TableVersion { uri: &uri, branch: "", version: 1, identity: &identity };
        let projection = io.client.open(table, &["text".into()], soon()).await.unwrap();
        let addrs: Vec<_> = (0..ROWS_PER_FRAGMENT as u32).map(|o| RowAddr::new(0, o)).collect();
        let rows = io.client.fetch(&projection, addrs, None, soon()).await.unwrap();
        assert_eq!(rows.into_rows().unwrap().column(0), &expected, "seed {seed}");
        io.warm(&uri, 1).await;
        identities.push(identity);
        if seed == 7 {
            std::fs::remove_dir_all(&uri).unwrap();
        }
    }
    assert_ne!(identities[0], identities[1]);
    let gone = TableVersion { uri: &uri, branch: "", version: 1, identity: "another" };
    let fault = io.client.open(gone, &["id".into()], soon()).await.unwrap_err();
    assert_eq!(fault.reason, wire::Reason::VersionNotFound, "{fault}");
    io.stop().await;
}
