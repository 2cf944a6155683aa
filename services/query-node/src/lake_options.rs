//! The options with which a query node opens tables.

use bytesize::ByteSize;
use lake::{AlsoReads, LakeOptions, TableUri};

use crate::config::QueryConfig;
use crate::memory::metadata_cache_bytes;

impl QueryConfig {
    /// Returns the options for the [`lake::Lake`] with which this node is started.
    pub fn lake_options(&self) -> LakeOptions {
        let bytes = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let also_reads = self.tables.values().filter_map(|table| {
            // `validate` reports a URI that is invalid.
            let uri = TableUri::of_config(&table.uri).ok()?;
            Some(AlsoReads { table: uri, prefixes: table.also_reads.clone() })
        });
        LakeOptions {
            storage: self.storage.clone(),
            also_reads: also_reads.collect(),
            index_cache_bytes: bytes(self.index_cache),
            metadata_cache_bytes: metadata_cache_bytes(self) as usize,
            store: self.store,
            ..Default::default()
        }
    }
}
