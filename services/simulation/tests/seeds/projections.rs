//! Projections for which a node has no memory.

use bytesize::ByteSize;
use client::fetch::TableVersion;
use io_node::IoConfig;
use wire::Reason;

use crate::arena::{self, Arena};
use crate::slow_table::{client_of, disk, open, until};
use crate::store::Store;
use crate::truth::TABLES;

#[test]
fn a_stream_serves_others_when_a_projection_has_no_memory() {
    let config = IoConfig { traffic_memory: ByteSize::mib(4), ..arena::config() };
    let mut arena = Arena::start(1, config, &disk(), Store::new(1));
    let (client, version) = (client_of(&arena), &TABLES[0][0]);
    arena.run(async move {
        // Each column takes at least 128 bytes, and all projections together may take 512 KiB.
        let columns = vec![String::new(); 5_000];
        let table =
            TableVersion { uri: version.uri, branch: "", version: version.version, identity: "" };
        // More often than a stream may have projections.
        for _ in 0..300 {
            let fault = client.open(table, &columns, until()).await.unwrap_err();
            assert_eq!(fault.reason, Reason::Overloaded, "{fault}");
        }
        open(&client, version, "id").await;
        assert_eq!(client.counters().connections, 1, "the stream has not ended");
    });
}
