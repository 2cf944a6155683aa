//! Sums over all cores.

use telemetry::Buckets;

use super::stats::CoreSnapshot;

/// Sums up a counter of all cores.
pub fn sum(cores: &[CoreSnapshot], count: impl Fn(&CoreSnapshot) -> u64) -> u64 {
    cores.iter().map(count).sum()
}

/// Merges the histograms of all cores or drives.
pub fn together<'a>(all: impl Iterator<Item = &'a Buckets>) -> Buckets {
    all.fold(Buckets::default(), |mut sum, buckets| {
        sum.add(buckets);
        sum
    })
}

/// Returns the durations of batches, from arrival to reply.
pub fn batch_times(cores: &[CoreSnapshot]) -> Buckets {
    together(cores.iter().map(|core| &core.histograms.batch))
}

/// Returns the durations of reads, from submission to completion, over all drives.
pub fn read_times(cores: &[CoreSnapshot]) -> Buckets {
    together(cores.iter().flat_map(|core| &core.histograms.reads))
}

/// Returns the bytes of the directory: each core's replica, and the data that they share.
pub fn directory_bytes(cores: &[CoreSnapshot]) -> u64 {
    let shared_bytes = cores.first().map_or(0, |core| core.directory_shared_bytes as u64);
    sum(cores, |core| core.replica_bytes as u64) + shared_bytes
}
