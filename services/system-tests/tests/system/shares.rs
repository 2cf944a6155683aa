//! Tests guarantees and quotas of tables on a node's drives: during scans of other tables, after a restart, and in
//! Status.

use std::path::Path;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use bytesize::ByteSize;
use io_node::{IoConfig, IoNode, ShareConfig};
use lake::TableUri;
use lance::Dataset;
use wire::fetch::TableUse;

use crate::cluster::{Cluster, Io, folder, io_config, lake_of, start_io, stop_io, total};

/// The number of rows of a fragment. Each fragment is a chunk of a quarter of a MiB.
pub const ROWS_PER_FRAGMENT: u32 = 512;

/// Returns the contents of a row: 480 bytes that no other row has.
fn text(table: &str, row: u32) -> String {
    format!("{table:>6}-{row:08}-").repeat(30)
}

/// Writes a table of `fragments` fragments, and returns its URI.
pub async fn table(folder: &Path, name: &str, fragments: u32) -> String {
    let uri = folder.join(name).to_str().unwrap().to_owned();
    let rows = fragments * ROWS_PER_FRAGMENT;
    let column: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..rows).map(|row| text(name, row))));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let params = lance::dataset::WriteParams {
        data_storage_version: Some(lance_file::version::LanceFileVersion::V2_2),
        max_rows_per_file: ROWS_PER_FRAGMENT as usize,
        ..Default::default()
    };
    Dataset::write(reader, &uri, Some(params)).await.unwrap();
    uri
}

fn share(uri: &str, minimum: u64, maximum: Option<u64>, pinned: bool) -> ShareConfig {
    let maximum = maximum.map(ByteSize::mib);
    ShareConfig { uri: uri.into(), minimum: ByteSize::mib(minimum), maximum, pinned }
}

/// Makes the drive so small that it has 23 segments of a MiB, which hold less than the four tables of the first test.
fn small(config: &mut IoConfig, shares: Vec<ShareConfig>) {
    config.segment = ByteSize::mib(1);
    config.drives[0].size = Some(ByteSize::mib(24));
    config.shares = shares;
}

async fn warm(io: &Io, uri: &str) -> wire::fetch::WarmProgress {
    use futures::TryStreamExt;
    let request =
        wire::fetch::WarmRequest { table_uri: uri.into(), version: 1, ..Default::default() };
    let steps: Vec<_> = io.client.warm(request).await.unwrap().try_collect().await.unwrap();
    steps.last().unwrap().clone()
}

/// Reads and checks every 50th row of a table. Returns how many came from the table itself.
async fn check(io: &Io, uri: &str, name: &str, fragments: u32) -> u64 {
    let projection = io.open(uri, 1, &["text"]).await;
    let before = total(&io.describe().await, |core| core.table_rows);
    let rows: Vec<u32> = (0..fragments * ROWS_PER_FRAGMENT).step_by(50).collect();
    let address = |row: &u32| RowAddr::new(row / ROWS_PER_FRAGMENT, row % ROWS_PER_FRAGMENT);
    let addrs = rows.iter().map(address).collect();
    let soon = crate::cluster::soon();
    let fetched = io.client.fetch(&projection, addrs, None, soon).await.unwrap();
    let fetched = fetched.into_rows().unwrap();
    for (got, &row) in fetched["text"].as_string::<i32>().iter().zip(&rows) {
        assert_eq!(got, Some(text(name, row).as_str()));
    }
    total(&io.describe().await, |core| core.table_rows) - before
}

fn of<'a>(tables: &'a [TableUse], uri: &str) -> &'a TableUse {
    let label = io_node::table_label(&TableUri::parse(uri).unwrap());
    let found = tables.iter().find(|table| table.table == label);
    found.unwrap_or_else(|| panic!("{uri} is not in {tables:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_evicts_nothing_pinned_and_nothing_guaranteed() {
    let tables = folder();
    let pinned = table(tables.path(), "pinned", 12).await;
    let least = table(tables.path(), "least", 14).await;
    let most = table(tables.path(), "most", 40).await;
    let scan = table(tables.path(), "scan", 160).await;
    let shares = || {
        vec![
            share(&pinned, 0, Some(4), true),
            // A URI with a slash at its end names the same table.
            share(&format!("{least}/"), 4, None, false),
            share(&most, 0, Some(3), false),
        ]
    };
    let io = Io::start(|config| small(config, shares())).await;
    for uri in [&pinned, &least, &most, &scan, &most] {
        let done = warm(&io, uri).await;
        assert_eq!((done.extents_failed, done.extents_done), (0, done.extents_total), "{done:?}");
    }
    assert_eq!(check(&io, &pinned, "pinned", 12).await, 0);
    assert_eq!(check(&io, &least, "least", 14).await, 0);
    let rows = check(&io, &most, "most", 40).await;
    assert!(rows > 40 * 10 / 2, "{rows} rows of more than its maximum");
    let described = io.describe().await;
    let [pinned_now, least_now, most_now] =
        [&pinned, &format!("{least}/"), &most].map(|uri| of(&described.tables, uri).clone());
    assert_eq!(
        (pinned_now.extents, pinned_now.pinned, pinned_now.maximum_bytes),
        (12, true, 4 << 20)
    );
    assert_eq!(pinned_now.held_bytes, pinned_now.bytes);
    assert_eq!((least_now.extents, least_now.minimum_bytes), (14, 4 << 20));
    assert_eq!(least_now.held_bytes, least_now.bytes);
    assert!(most_now.bytes <= 3 << 20 && most_now.bytes > 2 << 20, "{most_now:?}");
    assert!(of(&described.tables, &scan).bytes > 4 << 20);
    // Chunks that were just missed are being written, and already count towards their table.
    let extents: u64 = described.tables.iter().map(|table| table.extents).sum();
    assert!(extents.abs_diff(described.extents) <= 2, "{extents} and {}", described.extents);

    // After a restart the tables are recognised by the names of their extents, and held extents are still held.
    let Io { node, folder, .. } = io;
    stop_io(node).await;
    let mut config = io_config(folder.path());
    small(&mut config, shares());
    let io = Io::with(start_io(config).await, folder);
    let found = io.describe().await.tables;
    assert_eq!(of(&found, &pinned).bytes, pinned_now.bytes);
    assert_eq!(of(&found, &pinned).held_bytes, pinned_now.held_bytes);
    // The table `scan` has no share and was not opened, so the node does not know its label.
    assert!(found.iter().any(|table| table.table.is_empty() && table.bytes > 4 << 20), "{found:?}");
    warm(&io, &scan).await;
    assert_eq!(check(&io, &pinned, "pinned", 12).await + check(&io, &least, "least", 14).await, 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_table_is_filled_up_to_its_maximum_and_other_rows_come_from_the_table() {
    let tables = folder();
    let uri = table(tables.path(), "pinned", 20).await;
    let path = Path::new(&uri).to_owned();
    let shares = vec![share(&uri, 0, Some(3), true)];
    let cluster =
        Cluster::start_with(1, &[("pinned", &path)], |io, _| small(io, shares.clone())).await;
    let io = &cluster.io[0];
    let done = warm(io, &uri).await;
    assert!(done.extents_failed > 0 && done.extents_done > 3, "{done:?}");
    assert!(done.last_error.contains("its table is pinned"), "{}", done.last_error);
    let again = warm(io, &uri).await;
    assert_eq!(again.extents_found, done.extents_done, "no extent was evicted for another");
    assert!(check(io, &uri, "pinned", 20).await > 0);
    // The query tier's Status shows the same values.
    let status = cluster.client.status().await.unwrap();
    let shown = of(&status.io_nodes[0].tables, &uri);
    assert_eq!((shown.extents, shown.pinned), (done.extents_done, true));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guarantees_beyond_the_drives_are_refused_at_the_start() {
    let folder = folder();
    let mut config = io_config(folder.path());
    // Guarantees may take two thirds of all segments but four. The drive has 23 segments of a MiB, so that is 12.7 MiB.
    small(&mut config, vec![share("/a", 0, Some(9), true), share("/b", 3, None, false)]);
    config.serve = ["/a", "/b"].map(|uri| lake::UriPrefix::of_config(uri).unwrap()).into();
    // Start the node within this test's runtime: if the start fails there, it must drop the node's own runtimes without
    // waiting for them, because waiting would panic.
    let error = IoNode::start(config.clone(), lake_of(&config)).err().unwrap().to_string();
    assert!(
        error.contains("`shares` promise 13.0 MiB") && error.contains("at most 12.7 MiB"),
        "{error}"
    );
}
