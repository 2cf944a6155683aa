//! A core that polls for a while before its thread sleeps (`idle_poll`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::here;

/// Keeps this core's thread asking its sockets and its ring for `span` after a batch came or was answered, for as long as
/// the core lives. Whatever else is ready on the core goes first.
pub async fn poll(span: Duration) {
    if span.is_zero() {
        return;
    }
    let batch_came = Arc::clone(&here().batch_came);
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        let now = events();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() < span {
            tokio::task::yield_now().await;
        } else {
            batch_came.notified().await;
        }
    }
}

/// Batches that came to this core, and those that it answered.
fn events() -> u64 {
    let core = here();
    core.stats.came.get() + core.stats.batches.get()
}
