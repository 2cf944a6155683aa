//! A core that polls for a while before its thread sleeps (`idle_poll`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What is wrong with polling for `span`.
pub fn fault(span: Duration) -> Option<&'static str> {
    (span > Duration::from_secs(1)).then_some("must be at most 1s")
}

/// What polling goes by: one of each core, written on its thread alone.
#[derive(Debug, Default)]
pub struct Stirs {
    count: AtomicU64,
    told: Notify,
}

impl Stirs {
    /// Something has come, or was answered.
    pub fn add(&self) {
        self.count.store(self.count() + 1, Ordering::Relaxed);
        self.told.notify_one();
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Keeps this thread's runtime asking for work for `span` after something came or was answered. Whatever else is ready
/// goes first, on the runtime and on the CPU. Ends at once where `span` is 0, else never.
pub async fn poll(span: Duration, stirs: Arc<Stirs>) {
    if !span.is_zero() {
        poll_and(span, &stirs, || ()).await;
    }
}

/// The same for ever; `asked` is called each time.
async fn poll_and(span: Duration, stirs: &Stirs, asked: impl Fn()) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        asked();
        let now = stirs.count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() < span {
            // Who else is ready on this CPU goes first, too, and doesn't wait for the end of a time slice.
            std::thread::yield_now();
            tokio::task::yield_now().await;
        } else {
            stirs.told.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_asks_on_for_the_span_after_each_stir_and_then_sleeps() {
        let (stirs, asked) = (Stirs::default(), Cell::new(0));
        let span = Duration::from_micros(300);
        let polling = poll_and(span, &stirs, || asked.set(asked.get() + 1));
        let turns = async || {
            let before = asked.get();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            asked.get() - before
        };
        let test = async {
            for _ in 0..3 {
                stirs.add();
                assert!(turns().await > 50);
                tokio::time::advance(span / 2).await;
                stirs.add();
                assert!(turns().await > 50);
                tokio::time::advance(span / 2).await;
                assert!(turns().await > 50, "from the last of them on");
                tokio::time::advance(span / 2).await;
                turns().await;
                assert_eq!(turns().await, 0);
            }
        };
        tokio::select! {
            _ = polling => unreachable!("it polls for ever"),
            _ = test => {}
        }
    }

    #[tokio::test]
    async fn no_span_is_no_polling() {
        poll(Duration::ZERO, Arc::default()).await;
    }
}
