//! Logs when a node's first stream is connected, and when its last one is lost or the first attempt to connect fails.
//! The other streams and further attempts are logged at the level `debug` only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use endpoint::Endpoint;
use tracing::{debug, info, warn};
use wire::Fault;

/// The number of connected streams to a node. It is shared by the streams, and by clients of the same node that should
/// log a loss only once. The value is [`LOST`] if no stream is connected and the loss was logged.
#[derive(Debug, Default)]
pub struct Outage(AtomicUsize);

const LOST: usize = usize::MAX;

impl Outage {
    /// Logs that a stream broke (and is no longer counted) or could not be connected. Returns whether it logged the
    /// loss of the node. It does so if no stream is connected and the loss was not logged before.
    pub(super) fn report(&self, endpoint: &Endpoint, fault: &Fault) -> bool {
        let is_news = self.0.compare_exchange(0, LOST, Ordering::Relaxed, Ordering::Relaxed);
        match is_news.is_ok() {
            true => warn!(%endpoint, "{fault}; trying again until it answers"),
            false => debug!(%endpoint, "{fault}"),
        }
        is_news.is_ok()
    }

    /// Counts a new stream. Returns whether it is the only connected one.
    fn add(&self) -> bool {
        let added = |count| Some(if count == LOST { 1 } else { count + 1 });
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        matches!(before, Ok(0 | LOST))
    }
}

/// Counts a connected stream until it is dropped. The drop logs nothing: dropping a client does not mean that the node
/// is lost.
pub(super) struct Connected(Arc<Outage>);

impl Connected {
    /// Counts a new stream to `node`, and logs it.
    pub(super) fn to(outage: &Arc<Outage>, endpoint: &Endpoint, node: &str) -> Self {
        match outage.add() {
            true => info!(%endpoint, node, "connected"),
            false => debug!(%endpoint, node, "one more stream is connected"),
        }
        Self(Arc::clone(outage))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // The value is not `LOST` while this stream is counted.
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use wire::Reason;

    use super::*;

    /// The streams of a node. The methods return whether the event would be logged above the level `debug`.
    #[derive(Default)]
    struct Streams {
        outage: Arc<Outage>,
        connected: Vec<Connected>,
    }

    impl Streams {
        fn connect(&mut self) -> bool {
            let is_first = self.outage.add();
            self.connected.push(Connected(Arc::clone(&self.outage)));
            is_first
        }

        fn fail(&self) -> bool {
            let fault = Fault::new(Reason::NodeUnavailable, "x");
            self.outage.report(&"127.0.0.1:9".parse().unwrap(), &fault)
        }

        fn lose(&mut self) -> bool {
            self.connected.pop();
            self.fail()
        }
    }

    #[test]
    fn a_node_is_found_by_the_first_stream_and_lost_with_the_last() {
        let mut node = Streams::default();
        assert_eq!([node.connect(), node.connect()], [true, false]);
        assert_eq!([node.lose(), node.lose(), node.fail()], [false, true, false]);
        assert_eq!([node.connect(), node.lose(), node.connect()], [true; 3]);
    }

    #[test]
    fn a_stream_that_is_back_before_another_breaks_is_no_news() {
        let mut node = Streams::default();
        assert_eq!([node.connect(), node.connect()], [true, false]);
        for _ in 0..2 {
            assert_eq!([node.lose(), node.connect()], [false, false]);
        }
    }

    #[test]
    fn a_node_that_was_never_reachable_is_lost_once() {
        let mut node = Streams::default();
        assert_eq!([node.fail(), node.fail(), node.connect()], [true, false, true]);
        assert!(!node.fail(), "one that can't be connected, while another is");
        assert!(node.lose());
    }

    #[test]
    fn a_client_that_is_dropped_has_lost_nothing() {
        let mut node = Streams::default();
        assert_eq!([node.connect(), node.connect()], [true, false]);
        node.connected.pop();
        assert!(!node.fail(), "the other client's is connected");
        node.connected.pop();
        assert!(node.fail(), "the node was not lost before");
    }
}
