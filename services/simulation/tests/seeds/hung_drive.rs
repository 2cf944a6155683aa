//! Reads of a drive that works beside one that hangs, while several flows are active.

use std::time::Duration;

use address::{DriveNo, RowAddr};
use bytesize::ByteSize;
use client::fetch::{FetchContext, Flow};
use io_node::IoConfig;
use ring::sim::{SimConfig, SimDisk};

use crate::arena::{self, Arena, NODE};
use crate::clients::warm;
use crate::slow_table::{client_of, open, until};
use crate::store::Store;
use crate::truth::TABLES;

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
    let (net, version) = (arena.net.clone(), &TABLES[2][0]);
    let failed = arena.run(async move { warm(&net, NODE, version).await });
    assert_eq!(failed.unwrap(), 0, "the table is on the drives");
    let client = client_of(&arena);
    let opening = client.clone();
    let projection = arena.run(async move { open(&opening, version, "id").await });
    let fetch = |flow, addrs: Vec<RowAddr>| {
        let (client, projection) = (client.clone(), projection.clone());
        async move {
            let context = FetchContext { flow: Flow::new(flow, 1), ..FetchContext::from(until()) };
            let reply = client.fetch(&projection, addrs, None, context).await.unwrap();
            reply.into_rows().unwrap().num_rows()
        }
    };
    // Once reads of a second flow are queued, the reads in flight are limited to fewer than there are slots.
    assert_eq!(arena.run(fetch(1, vec![RowAddr::new(6, 0)])), 1);
    disk.hang(HUNG, true);
    disk.take_reads();
    let rows = || (0..4000).step_by(16);
    let addrs = [6, 7].into_iter().flat_map(|id| rows().map(move |row| RowAddr::new(id, row)));
    let began = arena.now_ms;
    assert_eq!(arena.run(fetch(2, addrs.collect())), 500);
    let took = arena.now_ms - began;
    assert!(took < 500, "{took} ms");
    // All reads that the limit allows hung, so no completion could start the reads of the other drive.
    let hung = disk.take_reads().iter().filter(|read| read.drive == HUNG).count();
    assert!((60..=68).contains(&hung), "{hung} reads hung");
}
