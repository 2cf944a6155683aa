//! The progress of the start warms, the fills of `warm_at_start`. Describe and metrics report it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use wire::fetch::StartWarm;

use crate::config::StartWarmConfig;

/// The progress of the start warms. All threads can read it.
pub struct StartWarms {
    /// The progress of each warm, in the configuration's order.
    warms: Mutex<Vec<StartWarm>>,
    /// Whether the node no longer waits for the warms.
    ready: watch::Sender<bool>,
}

impl StartWarms {
    /// Creates the progress of the configured warms. If there are none, the node does not wait.
    pub fn new(configs: &[StartWarmConfig]) -> Self {
        let warm = |config: &StartWarmConfig| StartWarm {
            table: config.label(),
            version: config.version,
            ..Default::default()
        };
        let warms = configs.iter().map(warm).collect();
        Self { warms: Mutex::new(warms), ready: watch::Sender::new(configs.is_empty()) }
    }

    /// Returns a receiver whose value becomes true when the node no longer waits for the warms.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Ends the node's wait for the warms.
    pub fn end(&self) {
        // Kept for receivers that come later, too; `send` would drop it if there is none.
        self.ready.send_replace(true);
    }

    /// Returns the progress of each warm.
    pub fn warms(&self) -> Vec<StartWarm> {
        self.locked().clone()
    }

    /// Locks the progress, to read or change it.
    pub fn locked(&self) -> MutexGuard<'_, Vec<StartWarm>> {
        self.warms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of extents that are not filled yet, or could not be filled. Tables that were not opened yet
    /// are not counted.
    pub fn extents_left(&self) -> u64 {
        let warms = self.locked();
        let progress = warms.iter().filter_map(|warm| warm.progress.as_ref());
        progress.map(|it| it.extents_total - it.extents_done).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_warms_is_known_to_those_who_ask_later() {
        let uri = "s3://bucket/words".to_owned();
        let config = StartWarmConfig { uri, version: 0, columns: Vec::new() };
        let warms = StartWarms::new(&[config]);
        assert!(!*warms.ready().borrow());
        warms.end();
        assert!(*warms.ready().borrow());
    }
}
