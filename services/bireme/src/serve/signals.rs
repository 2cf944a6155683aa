//! Waits for SIGINT and SIGTERM, on which a node stops. A second signal ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Result};

/// A listener for both signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on, so that the signals do not end the process. Must be called in a runtime.
    pub fn listen() -> Result<Self> {
        let on = |kind| signal(kind).map_err(|e| CliError::os("signals can't be caught", &e, ""));
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        self.received().await.0
    }

    /// Waits for a signal. Returns its name, and the exit code that shells report for a process that it ends.
    async fn received(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}

/// Ends the process at the next signal: a user who sends a second one does not want to wait.
pub async fn exit_at_second_signal(mut signals: Signals) {
    let (signal, exit_code) = signals.received().await;
    tracing::warn!(signal, "second signal: exiting without waiting for running work");
    std::process::exit(exit_code);
}
