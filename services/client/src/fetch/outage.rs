//! A node that is out of reach is logged when it is lost, by the first of its streams that notices;
//! what every further attempt fails with is of interest to nobody but a debugger.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{debug, info, warn};
use wire::Fault;

use crate::endpoint::Endpoint;

/// Whether the node is out of reach; shared by its streams.
#[derive(Debug, Default)]
pub(super) struct Outage(AtomicBool);

impl Outage {
    /// A stream broke, or could not be connected. Whether this is news.
    pub fn begin(&self, endpoint: &Endpoint, fault: &Fault) -> bool {
        let is_news = !self.0.swap(true, Ordering::Relaxed);
        match is_news {
            true => warn!(%endpoint, "{fault}; trying again until it answers"),
            false => debug!(%endpoint, "{fault}"),
        }
        is_news
    }

    /// A stream is connected to `node`.
    pub fn end(&self, endpoint: &Endpoint, node: &str) {
        self.0.store(false, Ordering::Relaxed);
        info!(%endpoint, node, "connected");
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
        assert_eq!([begin(), begin(), begin()], [true, false, false]);
        outage.end(&endpoint, "io-0");
        assert_eq!([begin(), begin()], [true, false]);
    }
}
