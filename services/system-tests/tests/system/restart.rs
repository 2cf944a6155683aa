//! Tests restarts: a node finds its cached extents again, and never returns wrong bytes.

use std::path::Path;

use address::RowAddr;
use arrow_array::RecordBatch;
use bytesize::ByteSize;
use io_node::inspect::Inspection;
use io_node::{IoConfig, IoNode};
use lance::Dataset;
use telemetry::TelemetryConfig;
use tempfile::TempDir;
use wire::fetch::DescribeResponse;

use crate::cluster::{Io, folder, io_config, lake_of, soon, start_io, stop_io, total};
use crate::types::Maker;

const ROWS: usize = 2000;
const ROWS_PER_FRAGMENT: u32 = 250;

async fn table(folder: &Path) -> (String, RecordBatch) {
    let uri = folder.join("table").to_str().unwrap().to_owned();
    let batch = Maker::new(5, ROWS).all_types();
    let reader = arrow_array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let params = lance::dataset::WriteParams {
        data_storage_version: Some(lance_file::version::LanceFileVersion::V2_2),
        max_rows_per_file: ROWS_PER_FRAGMENT as usize,
        ..Default::default()
    };
    Dataset::write(reader, &uri, Some(params)).await.unwrap();
    (uri, batch)
}

/// The size of a slab that has room for the whole table.
const SLAB: ByteSize = ByteSize::mib(128);

/// Starts a node on the slab in `folder`. Creates the slab if there is none.
async fn start_over(folder: TempDir) -> Io {
    let mut config = io_config(folder.path());
    config.drives[0].size = Some(SLAB);
    Io::with(start_io(config).await, folder)
}

/// Warms a node and stops it. Returns its folder and its description before the stop.
async fn warmed_and_stopped(uri: &str) -> (TempDir, DescribeResponse) {
    let io = start_over(folder()).await;
    io.warm(uri, 1).await;
    let described = io.describe().await;
    let Io { node, folder, .. } = io;
    stop_io(node).await;
    (folder, described)
}

/// Fetches all rows, and checks their ids and texts.
async fn check(io: &Io, uri: &str, truth: &RecordBatch) {
    let projection = io.open(uri, 1, &["id", "text"]).await;
    let addrs = (0..ROWS as u32)
        .map(|row| RowAddr::new(row / ROWS_PER_FRAGMENT, row % ROWS_PER_FRAGMENT))
        .collect();
    let rows =
        io.client.fetch(&projection, addrs, None, soon()).await.unwrap().into_rows().unwrap();
    for column in ["id", "text"] {
        let field = truth.schema().field_with_name(column).unwrap().clone();
        let got = pack::restore(&rows[column], &field).unwrap();
        assert_eq!(&got, &truth[column], "{column}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_rows_are_served_from_the_drive_after_a_restart() {
    let tables = folder();
    let (uri, truth) = table(tables.path()).await;
    let (folder, before) = warmed_and_stopped(&uri).await;

    let slab = Inspection::open(&folder.path().join("slab")).unwrap();
    let extents: usize = slab.segments().iter().map(|segment| segment.extents()).sum();
    assert_eq!(extents as u64, before.extents);
    assert_eq!(slab.verify(|_| {}), []);
    drop(slab);

    let io = start_over(folder).await;
    let after = io.describe().await;
    assert_eq!(after.extents, before.extents);
    // The last journal blocks may have been written after the description.
    assert!(after.drives[0].used_bytes >= before.drives[0].used_bytes);
    check(&io, &uri, &truth).await;
    io.warm(&uri, 1).await;
    let after = io.describe().await;
    assert_eq!((total(&after, |c| c.table_rows), total(&after, |c| c.bad_sectors)), (0, 0));
    assert_eq!(total(&after, |c| c.drive_write_bytes), 0, "no extent is filled again");
    assert!(total(&after, |c| c.drive_reads) > 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_start_does_not_change_the_drives() {
    let tables = folder();
    let (uri, truth) = table(tables.path()).await;
    let (folder, before) = warmed_and_stopped(&uri).await;

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap();
    let telemetry = TelemetryConfig::default;
    let metrics = TelemetryConfig { metrics_listen: Some(taken), ..telemetry() };
    let probes = TelemetryConfig { probes_listen: Some(taken), ..telemetry() };
    // With another segment size, a starting node would divide its slabs anew.
    let mut config = IoConfig { segment: ByteSize::mib(32), ..io_config(folder.path()) };
    config.drives[0].size = Some(SLAB);
    let memory = ByteSize::mib(100);
    for (refused, why) in [
        (IoConfig { memory, ..config.clone() }, "memory"),
        (IoConfig { listen: taken, ..config.clone() }, "in use"),
        (IoConfig { telemetry: metrics, ..config.clone() }, "`telemetry.metrics_listen`"),
        (IoConfig { telemetry: probes, ..config.clone() }, "`telemetry.probes_listen`"),
    ] {
        let start = move || IoNode::start(refused.clone(), lake_of(&refused));
        let error = tokio::task::spawn_blocking(start).await.unwrap().err().unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }

    let io = start_over(folder).await;
    assert_eq!(io.describe().await.extents, before.extents);
    check(&io, &uri, &truth).await;
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_slab_never_returns_wrong_rows() {
    let tables = folder();
    let (uri, truth) = table(tables.path()).await;
    let io = start_over(folder()).await;
    let images = folder();
    // The slab is copied front to back while the node writes to it. This is worse than a power loss: the copy may
    // contain later writes without earlier ones.
    let image = |number: usize| images.path().join(number.to_string());
    let slab = io.folder.path().join("slab");
    let copies = async {
        for number in 0..6 {
            std::fs::create_dir(image(number)).unwrap();
            tokio::fs::copy(&slab, image(number).join("slab")).await.unwrap();
        }
    };
    tokio::join!(copies, io.warm(&uri, 1));
    io.stop().await;
    for number in 0..6 {
        let mut config = io_config(&image(number));
        config.drives[0].size = Some(SLAB);
        let io = Io::with(start_io(config).await, folder());
        check(&io, &uri, &truth).await;
        io.stop().await;
    }
}
