//! Polling: a core's thread stays awake for a while after activity (the setting `idle_poll`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Returns what is wrong with `span` as the time to poll for, or `None` if it is valid.
pub fn fault(span: Duration) -> Option<&'static str> {
    (span > Duration::from_secs(1)).then_some("must be at most 1s")
}

/// Counts the messages that a core receives and answers. Each core has one, and only its thread adds to it.
#[derive(Debug, Default)]
pub struct ActivityCounter {
    count: AtomicU64,
    changed: Notify,
}

impl ActivityCounter {
    /// Counts a message that was received or answered.
    pub fn add(&self) {
        self.count.store(self.count() + 1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Keeps this thread's runtime polling for `span` after each activity. Other ready tasks and threads go first.
/// Returns at once if `span` is 0, otherwise never.
pub async fn poll(span: Duration, activity: Arc<ActivityCounter>) {
    if !span.is_zero() {
        poll_and(span, &activity, || ()).await;
    }
}

/// Polls forever, and calls `polled` each time.
async fn poll_and(span: Duration, activity: &ActivityCounter, polled: impl Fn()) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        polled();
        let now = activity.count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() < span {
            // Let other threads that are ready on this CPU run now, not at the end of a time slice.
            std::thread::yield_now();
            tokio::task::yield_now().await;
        } else {
            activity.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_polls_for_the_span_after_each_activity_and_then_sleeps() {
        let (activity, polls) = (ActivityCounter::default(), Cell::new(0));
        let span = Duration::from_micros(300);
        let polling = poll_and(span, &activity, || polls.set(polls.get() + 1));
        let polls_made = async || {
            let before = polls.get();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            polls.get() - before
        };
        let test = async {
            for _ in 0..3 {
                activity.add();
                assert!(polls_made().await > 50);
                tokio::time::advance(span / 2).await;
                activity.add();
                assert!(polls_made().await > 50);
                tokio::time::advance(span / 2).await;
                assert!(polls_made().await > 50, "the span begins with the last activity");
                tokio::time::advance(span / 2).await;
                polls_made().await;
                assert_eq!(polls_made().await, 0);
            }
        };
        tokio::select! {
            _ = polling => unreachable!("it polls for ever"),
            _ = test => {}
        }
    }

    #[tokio::test]
    async fn a_span_of_0_disables_polling() {
        poll(Duration::ZERO, Arc::default()).await;
    }
}
