//! Waits for SIGINT and SIGTERM, on which a node stops. A second signal ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Result};

/// The exit code that shells report for an interrupted process.
const EXIT_INTERRUPTED: i32 = 130;

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
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Ends the process at the next signal: a user who sends a second one does not want to wait.
pub async fn exit_at_second_signal(mut signals: Signals) {
    let signal = signals.next().await;
    tracing::warn!(signal, "second signal: exiting without waiting for running work");
    std::process::exit(EXIT_INTERRUPTED);
}
