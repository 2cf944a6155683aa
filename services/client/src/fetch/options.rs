//! Settings of a [`FetchClient`](super::FetchClient).

use std::sync::Arc;
use std::time::Duration;

use wire::{Fault, Reason, Spares};

use super::outage::Outage;
use crate::network::Network;

/// HTTP/2 allows windows up to this.
const WINDOW_BYTES_LIMIT: u32 = (1 << 31) - 1;

/// How one I/O node is talked to. Every maximum is per stream.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Streams, each on an HTTP/2 connection of its own: the node deals connections to its cores,
    /// and one connection carries at most 2 to 3 GB/s.
    pub streams: usize,
    /// Batches that may wait for credit; one more is refused with `OVERLOADED`.
    pub queue_batches_max: usize,
    /// Projections kept open; the one least recently used is closed for a new one.
    pub projections_max: usize,
    /// HTTP/2 window of a stream, in bytes: what may be on its timeline without an acknowledgement.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of a connection, in bytes; at least the stream's.
    pub connection_window_bytes: u32,
    /// Longest time until a stream is connected and welcomed.
    pub connect_timeout: Duration,
    /// After so long without a frame the node is asked for a sign of life.
    pub keep_alive_interval: Duration,
    /// Without a sign of life for so long the connection counts as broken.
    pub keep_alive_timeout: Duration,
    /// Pause after the first failed attempt to connect; doubles with each further one.
    pub backoff_min: Duration,
    /// Longest pause between attempts to connect.
    pub backoff_max: Duration,
    /// Seed of the pauses' jitter, so that a simulation repeats itself.
    pub jitter_seed: u64,
    /// Where the memory of large replies comes from, and goes to once their rows are dropped. Clients of
    /// one core may share it, which bounds what is kept for all of them.
    pub spares: Arc<Spares>,
    /// What connections are made over.
    pub network: Network,
    /// Where the streams that are connected count, for clients of one node, one a core, that are to tell once that it
    /// was found, or lost; left out, this client's own.
    pub outage: Option<Arc<Outage>>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            streams: 2,
            queue_batches_max: 1024,
            projections_max: 256,
            stream_window_bytes: 8 << 20,
            connection_window_bytes: 16 << 20,
            connect_timeout: Duration::from_secs(2),
            // A node that is cut off says nothing: so long do requests wait for it that have time.
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            jitter_seed: rand::random(),
            spares: Arc::default(),
            network: Network::Tcp,
            outage: None,
        }
    }
}

impl FetchOptions {
    /// Whether the maxima agree with each other.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let bad = |why: &str| Err(Fault::new(Reason::BadArgument, format!("fetch options: {why}")));
        if self.streams == 0 || self.queue_batches_max == 0 || self.projections_max == 0 {
            return bad("streams, queue_batches_max and projections_max must be at least 1");
        }
        if self.connection_window_bytes < self.stream_window_bytes {
            return bad("connection_window_bytes must be at least stream_window_bytes");
        }
        if self.stream_window_bytes < 65_535 || self.connection_window_bytes > WINDOW_BYTES_LIMIT {
            return bad("windows must be from 64 KiB to 2 GiB");
        }
        if self.backoff_min.is_zero() || self.backoff_max < self.backoff_min {
            return bad("backoff_min must be above 0, and backoff_max at least as long");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_must_agree() {
        assert_eq!(FetchOptions::default().check(), Ok(()));
        for bad in [
            FetchOptions { streams: 0, ..Default::default() },
            FetchOptions { connection_window_bytes: 1 << 20, ..Default::default() },
            FetchOptions { stream_window_bytes: 1, ..Default::default() },
            FetchOptions { backoff_max: Duration::ZERO, ..Default::default() },
        ] {
            assert_eq!(bad.check().unwrap_err().reason, Reason::BadArgument);
        }
    }
}
