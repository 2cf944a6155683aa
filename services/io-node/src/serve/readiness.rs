//! The node's health: whether it reports serving.

use tokio::sync::watch;

use crate::config::IoConfig;

/// The state of a node's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadinessState {
    /// The node answers requests, but is not ready yet.
    Starting,
    /// The node's health reports serving.
    Ready,
    /// The node is stopping.
    Ended,
}

/// The node's readiness, which its cores and probes read.
pub struct Readiness(watch::Sender<ReadinessState>);

impl Readiness {
    /// Returns the readiness of a new node. The node is ready at once, unless `config` makes it wait.
    pub fn new(config: &IoConfig) -> Self {
        let waits = !config.warm_at_start.is_empty() || config.hit_ratio_at_start > 0.0;
        let state = if waits { ReadinessState::Starting } else { ReadinessState::Ready };
        Self(watch::Sender::new(state))
    }

    /// Subscribes to the state.
    pub fn states(&self) -> watch::Receiver<ReadinessState> {
        self.0.subscribe()
    }

    /// Returns whether the node is ready.
    pub fn is_ready(&self) -> bool {
        *self.0.borrow() == ReadinessState::Ready
    }

    /// Records that the node stops. It does not become ready again.
    pub fn end(&self) {
        self.0.send_replace(ReadinessState::Ended);
    }

    /// Makes the node ready, unless it stops.
    pub fn begin(&self) {
        self.0.send_if_modified(|state| {
            let begins = *state == ReadinessState::Starting;
            if begins {
                *state = ReadinessState::Ready;
            }
            begins
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_ends_is_not_ready_again() {
        let config = IoConfig { hit_ratio_at_start: 0.5, ..Default::default() };
        let readiness = Readiness::new(&config);
        assert!(!readiness.is_ready());
        readiness.begin();
        assert!(readiness.is_ready());
        readiness.end();
        readiness.begin();
        assert!(!readiness.is_ready());
        assert!(Readiness::new(&IoConfig::default()).is_ready());
    }
}
