//! Waits for SIGINT and SIGTERM, on which a node stops. A second signal ends the process at once, and so does the first
//! one while the node starts.

use std::future::{Future, pending};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::{CliError, Result};
use crate::exit::Exit;

/// A listener for both signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Receives once stdin ends. `None` if that does not count as a signal, or has been received.
    end_of_stdin: Option<oneshot::Receiver<()>>,
}

impl Signals {
    /// Listens from now on, so that the signals do not end the process. Must be called in a runtime.
    pub fn listen() -> Result<Self> {
        let on = |kind| signal(kind).map_err(|e| CliError::os("signals can't be caught", &e, ""));
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            end_of_stdin: None,
        })
    }

    /// Counts the end of stdin as a signal too. If another process holds the other end of a pipe, this shows that the
    /// other process has ended, however it ended.
    pub fn and_end_of_stdin(self) -> Self {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            // An error means that there is no stdin to read any more.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = sender.send(());
        });
        Self { end_of_stdin: Some(receiver), ..self }
    }

    /// Waits for a signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        self.received().await.0
    }

    /// Awaits `work`, but drops it at the first signal.
    ///
    /// # Errors
    /// That of `work`, or the error of a command that a signal has ended.
    pub async fn unless_stopped<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            (signal, exit) = self.received() => Err(CliError::stopped(signal, exit)),
        }
    }

    /// Waits for a signal. Returns its name, and how the process exits if it ends because of the signal.
    async fn received(&mut self) -> (&'static str, Exit) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", Exit::Interrupted),
            _ = self.terminate.recv() => ("SIGTERM", Exit::Terminated),
            () = received_once(&mut self.end_of_stdin) => ("the end of stdin", Exit::Terminated),
        }
    }
}

/// Waits for the message of `receiver`, and never again for it.
async fn received_once(receiver: &mut Option<oneshot::Receiver<()>>) {
    let Some(message) = receiver else { return pending().await };
    // An error means that the thread that sends has ended, as it does after it has sent.
    let _ = message.await;
    *receiver = None;
}

/// Ends the process at the next signal: a user who sends a second one does not want to wait. The end of stdin is not
/// one: who stops a whole group of processes sends a signal to each, and the others end meanwhile.
pub async fn exit_at_second_signal(mut signals: Signals) {
    signals.end_of_stdin = None;
    let (signal, exit) = signals.received().await;
    tracing::warn!(signal, "second signal: exiting without waiting for running work");
    std::process::exit(exit.number().into());
}
