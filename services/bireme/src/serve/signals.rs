//! SIGINT and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Result};

/// How a shell sees a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

/// Listens for both.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on signals don't end the process. Must be called within a runtime.
    pub fn listen() -> Result<Self> {
        let on = |kind| signal(kind).map_err(|e| CliError::os("signals can't be caught", &e, ""));
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
        })
    }

    /// Waits for one, and says which.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Whoever signals twice doesn't want to wait.
pub async fn exit_at_second_signal(mut signals: Signals) {
    let signal = signals.next().await;
    tracing::warn!(signal, "a second signal: what was still running is dropped");
    std::process::exit(EXIT_INTERRUPTED);
}
