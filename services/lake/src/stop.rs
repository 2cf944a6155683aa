//! Interrupts long work cleanly.

use std::future::Future;

use tokio::sync::watch;

use crate::error::{LakeError, Result};

/// Interrupts the ingests and index builds of a [`Lake`](crate::Lake): they remove the files that they have written,
/// commit nothing, and fail with [`LakeError::Interrupted`]. A commit in progress is completed. Clones share their
/// state; a stop that has been pulled stays pulled.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Interrupts the work.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the stop is pulled.
    pub(crate) async fn pulled(&self) {
        // The channel can't be closed: its sender is `self`.
        let _ = self.0.subscribe().wait_for(|pulled| *pulled).await;
    }

    /// Awaits `work` on the table at `uri`, or drops it when the stop is pulled, so `work` must not commit. Errors:
    /// `Interrupted`, and those of `work`.
    pub async fn unless<T>(&self, uri: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.pulled() => Err(LakeError::Interrupted { uri: uri.to_owned() }),
            done = work => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_ends_when_any_clone_is_pulled() {
        let stop = Stop::default();
        assert_eq!(stop.unless("t", async { Ok(7) }).await.unwrap(), 7);
        let clone = stop.clone();
        let work = stop.unless("t", async {
            clone.pull();
            std::future::pending::<Result<()>>().await
        });
        assert!(matches!(work.await, Err(LakeError::Interrupted { .. })));
        let late = stop.unless("t", async { Ok(()) }).await;
        assert!(matches!(late, Err(LakeError::Interrupted { .. })), "before it begins");
    }
}
