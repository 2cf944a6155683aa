//! A node is logged when it is found and when it is lost, by the first of its streams that notices; what every
//! further attempt comes to is of interest to nobody but a debugger.

use std::sync::atomic::{AtomicU8, Ordering};

use tracing::{debug, info, warn};
use wire::Fault;

use crate::endpoint::Endpoint;

/// Whether the node is out of reach; shared by its streams, and by clients of the same node that are to tell of it
/// once.
#[derive(Debug, Default)]
pub struct Outage(AtomicU8);

// What was told last; nothing at first.
const FOUND: u8 = 1;
const LOST: u8 = 2;

impl Outage {
    /// A stream broke, or could not be connected. Whether this is news.
    pub(super) fn begin(&self, endpoint: &Endpoint, fault: &Fault) -> bool {
        let is_news = self.0.swap(LOST, Ordering::Relaxed) != LOST;
        match is_news {
            true => warn!(%endpoint, "{fault}; trying again until it answers"),
            false => debug!(%endpoint, "{fault}"),
        }
        is_news
    }

    /// A stream is connected to `node`. Whether this is news.
    pub(super) fn end(&self, endpoint: &Endpoint, node: &str) -> bool {
        let is_news = self.0.swap(FOUND, Ordering::Relaxed) != FOUND;
        match is_news {
            true => info!(%endpoint, node, "connected"),
            false => debug!(%endpoint, node, "one more stream is connected"),
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use wire::Reason;

    use super::*;

    #[test]
    fn each_outage_is_news_once() {
        let (endpoint, outage) = ("127.0.0.1:9".parse().unwrap(), Outage::default());
        let fault = Fault::new(Reason::NodeUnavailable, "x");
        let begin = || outage.begin(&endpoint, &fault);
        let end = || outage.end(&endpoint, "io-0");
        assert_eq!([begin(), begin(), begin()], [true, false, false]);
        assert_eq!([end(), end()], [true, false]);
        assert_eq!([begin(), begin()], [true, false]);
        assert_eq!([end(), begin(), end()], [true; 3]);
    }

    #[test]
    fn that_a_node_is_there_is_news_once() {
        let (endpoint, outage) = ("127.0.0.1:9".parse().unwrap(), Outage::default());
        assert_eq!([(); 3].map(|()| outage.end(&endpoint, "io-0")), [true, false, false]);
    }
}
