//! A core that polls for a while before its thread sleeps (`idle_poll`).

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::here;

/// What polling goes by.
#[derive(Default)]
pub struct Stirs {
    count: Cell<u64>,
    told: Arc<Notify>,
}

impl Stirs {
    /// A batch has come, or was answered.
    pub fn add(&self) {
        self.count.set(self.count.get() + 1);
        self.told.notify_one();
    }
}

/// Keeps this core's thread asking its sockets and its ring for `span` after a batch came or was answered, for as long as
/// the core lives. Whatever else is ready on the core goes first.
pub async fn poll(span: Duration) {
    if !span.is_zero() {
        let told = Arc::clone(&here().stirs.told);
        poll_by(span, told, || here().stirs.count.get()).await;
    }
}

async fn poll_by(span: Duration, told: Arc<Notify>, stirs: impl Fn() -> u64) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        let now = stirs();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() < span {
            tokio::task::yield_now().await;
        } else {
            told.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_asks_on_for_the_span_after_each_batch_and_then_sleeps() {
        let (stirs, asked) = (Rc::new(Stirs::default()), Rc::new(Cell::new(0)));
        let span = Duration::from_micros(300);
        let (watched, asks) = (Rc::clone(&stirs), Rc::clone(&asked));
        let polling = poll_by(span, Arc::clone(&stirs.told), move || {
            asks.set(asks.get() + 1);
            watched.count.get()
        });
        let turns = async || {
            let before = asked.get();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            asked.get() - before
        };
        let local = tokio::task::LocalSet::new();
        local.spawn_local(polling);
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
        local.run_until(test).await;
    }
}
