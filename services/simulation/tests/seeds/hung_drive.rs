//! Reads that a drive does not answer in time.

use std::time::Duration;

use address::{DriveNo, RowAddr, SECTOR_BYTES, SectorNo};
use bytesize::ByteSize;
use client::fetch::{FetchClient, FetchContext, Flow, Projection};
use io_node::IoConfig;
use ring::sim::{SimConfig, SimDisk};

use crate::arena::{self, Arena, NODE};
use crate::clients::warm;
use crate::slow_table::{client_of, open, until};
use crate::store::Store;
use crate::truth::TABLES;

/// A projection of the third table's first version, and the client that fetches its rows.
#[derive(Clone)]
struct Rows {
    client: FetchClient,
    projection: Projection,
}

impl Rows {
    /// Warms the table, and opens it.
    fn open(arena: &mut Arena) -> Self {
        let (net, version) = (arena.net.clone(), &TABLES[2][0]);
        let failed = arena.run(async move { warm(&net, NODE, version).await });
        assert_eq!(failed.unwrap(), 0, "the table is on the drives");
        let client = client_of(arena);
        let opening = client.clone();
        let projection = arena.run(async move { open(&opening, version, "id").await });
        Self { client, projection }
    }

    /// Fetches rows for a flow. Returns their number.
    fn fetch(&self, flow: u64, addrs: Vec<RowAddr>) -> impl Future<Output = usize> + use<> {
        let Self { client, projection } = self.clone();
        async move {
            let context = FetchContext { flow: Flow::new(flow, 1), ..FetchContext::from(until()) };
            let reply = client.fetch(&projection, addrs, None, context).await.unwrap();
            reply.into_rows().unwrap().num_rows()
        }
    }
}

/// The drive that hangs.
const HUNG: DriveNo = DriveNo(0);

#[test]
fn rows_of_the_other_drive_are_read_once_the_reads_that_hang_are_abandoned() {
    let (drives, tick) = (vec![40 << 20; 2], Duration::from_millis(1));
    let disk = SimDisk::new(SimConfig { drives, tick, ..SimConfig::default() });
    let read_timeout = Duration::from_millis(100);
    let config = IoConfig { read_max: ByteSize::kib(4), read_timeout, ..arena::config() };
    let mut arena = Arena::start(1, config, &disk, Store::new(1));
    // Each row takes more than a third of a sector, and about half of the chunks are on the drive that hangs.
    let table = Rows::open(&mut arena);
    // Once reads of a second flow are queued, the reads in flight are limited to fewer than there are slots.
    assert_eq!(arena.run(table.fetch(1, vec![RowAddr::new(6, 0)])), 1);
    disk.hang(HUNG, true);
    disk.take_reads();
    let rows = || (0..4000).step_by(16);
    let addrs = [6, 7].into_iter().flat_map(|id| rows().map(move |row| RowAddr::new(id, row)));
    let began = arena.now_ms;
    assert_eq!(arena.run(table.fetch(2, addrs.collect())), 500);
    let took = arena.now_ms - began;
    assert!(took < 500, "{took} ms");
    // All reads that the limit allows hung, so no completion could start the reads of the other drive.
    let hung = disk.take_reads().iter().filter(|read| read.drive == HUNG).count();
    assert!((60..=68).contains(&hung), "{hung} reads hung");
}

#[test]
fn an_extent_whose_read_fails_after_it_was_abandoned_is_not_read_again() {
    let (drives, tick) = (vec![40 << 20], Duration::from_millis(1));
    let disk = SimDisk::new(SimConfig { drives, tick, ..SimConfig::default() });
    let config = IoConfig { read_timeout: Duration::from_millis(100), ..arena::config() };
    let mut arena = Arena::start(1, config, &disk, Store::new(1));
    let table = Rows::open(&mut arena);
    let row = || vec![RowAddr::new(6, 0)];
    disk.take_reads();
    assert_eq!(arena.run(table.fetch(1, row())), 1);
    let reads = disk.take_reads();
    let [read] = reads[..] else { panic!("one row took {reads:?}") };
    // The drive tries to read the sector for longer than the node waits, and then gives up.
    disk.break_sector(HUNG, SectorNo(read.offset.0 / SECTOR_BYTES as u64));
    disk.hang(HUNG, true);
    assert_eq!(arena.run(table.fetch(1, row())), 1, "the row comes from the table");
    assert_eq!(disk.take_reads(), [read]);
    disk.hang(HUNG, false);
    arena.run(async { tokio::time::sleep(Duration::from_secs(1)).await });
    assert_eq!(arena.run(table.fetch(1, row())), 1);
    let reads = disk.take_reads();
    assert!(!reads.contains(&read), "the bad sector was read again");
}
