//! Settings of a [`FetchClient`](super::FetchClient).

use std::sync::Arc;
use std::time::Duration;

use peers::Prover;
use wire::{BufferPool, Fault, Reason};

use super::outage::Outage;
use crate::network::Network;
use crate::transport::WINDOW_BYTES_LIMIT;

/// Settings of the client of one I/O node. Every maximum is per stream.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Number of streams, each on its own HTTP/2 connection. The node distributes connections over its cores, and one
    /// connection carries at most 2 to 3 GB/s.
    pub streams: usize,
    /// Maximum number of batches that wait to be sent; further ones are refused with `OVERLOADED`.
    pub queue_batches_max: usize,
    /// Maximum number of open projections; the least recently used one is closed for a new one.
    pub projections_max: usize,
    /// HTTP/2 window of a stream: the bytes that may be in transit without an acknowledgement.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of a connection, in bytes; at least the stream's.
    pub connection_window_bytes: u32,
    /// Maximum time for a stream to be connected and welcomed.
    pub connect_timeout: Duration,
    /// Time without a frame after which an HTTP/2 ping is sent.
    pub keep_alive_interval: Duration,
    /// Time without an answer to a ping after which the connection counts as broken.
    pub keep_alive_timeout: Duration,
    /// Pause after the first failed attempt to connect. It doubles with each further one.
    pub backoff_min: Duration,
    /// Maximum pause between attempts to connect.
    pub backoff_max: Duration,
    /// Seed of the pauses' jitter, so that a simulation is reproducible.
    pub jitter_seed: u64,
    /// The memory of large replies, which is reused once their rows are dropped. Clients of one core may share it,
    /// which bounds the memory kept for all of them.
    pub buffers: Arc<BufferPool>,
    /// The network that connections use.
    pub network: Network,
    /// Proves to the node that this side knows the secret of both tiers. Nothing is accepted from a node that does not
    /// prove the same. With `None`, neither side proves anything.
    pub prover: Option<Arc<Prover>>,
    /// Counts the node's connected streams. The clients of one node on several cores may share this counter, so that
    /// the loss of the node and its return are logged once, not by each client. `None` counts only this client's
    /// streams.
    pub outage: Option<Arc<Outage>>,
}

impl Default for FetchOptions {
    #[expect(clippy::disallowed_methods, reason = "a simulation sets `jitter_seed`")]
    fn default() -> Self {
        Self {
            streams: 2,
            queue_batches_max: 1024,
            projections_max: 256,
            stream_window_bytes: 8 << 20,
            connection_window_bytes: 16 << 20,
            connect_timeout: Duration::from_secs(2),
            // A node that is cut off is noticed after the sum of these two times. Until then its requests wait, if
            // their deadlines allow.
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            jitter_seed: rand::random(),
            buffers: Arc::default(),
            network: Network::Tcp,
            prover: None,
            outage: None,
        }
    }
}

impl FetchOptions {
    /// Checks that the values are in range and agree with each other.
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
