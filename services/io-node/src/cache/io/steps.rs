//! The filler's steps that are under way. Each ends in an event for the books, even if it panics.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::cache::books::Event;

/// The filler's steps that are under way. The books rely on each of them ending in an event.
#[derive(Default)]
pub struct Steps(JoinSet<Event>);

impl Steps {
    /// Starts a step that is called `what` in the log. If the step panics, which is a defect, it ends in the event that
    /// `instead` returns, usually a failure.
    pub fn spawn(
        &mut self,
        what: &'static str,
        work: impl Future<Output = Event> + Send + 'static,
        instead: impl FnOnce() -> Event + Send + 'static,
    ) {
        self.0.spawn(guarded(what, work, instead));
    }

    /// Starts a step on another runtime's threads.
    pub fn spawn_on(
        &mut self,
        threads: &Handle,
        what: &'static str,
        work: impl Future<Output = Event> + Send + 'static,
        instead: impl FnOnce() -> Event + Send + 'static,
    ) {
        self.0.spawn_on(guarded(what, work, instead), threads);
    }

    /// Waits for the next step's event; `None` if there are no steps.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.0.join_next().await? {
                Ok(event) => return Some(event),
                // The node is shutting down.
                Err(error) if error.is_cancelled() => tracing::debug!(%error, "a step is given up"),
                // `instead` panicked, although it only moves values.
                Err(error) => tracing::error!(%error, "a step of a fill is lost"),
            }
        }
    }
}

async fn guarded(
    what: &'static str,
    work: impl Future<Output = Event> + Send + 'static,
    instead: impl FnOnce() -> Event + Send + 'static,
) -> Event {
    let work = async move {
        defect::strike(what);
        work.await
    };
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(what, "a step of a fill panicked, which is a defect; it counts as failed");
        instead()
    })
}

/// Does nothing. In tests, the other `defect` module takes the place of this one.
#[cfg(not(test))]
mod defect {
    pub(super) const fn strike(_: &str) {}
}

/// Makes steps panic as a test has planned.
#[cfg(test)]
pub mod defect {
    use std::cell::RefCell;

    thread_local! {
        static NEXT: RefCell<Option<(&'static str, u32)>> = const { RefCell::new(None) };
    }

    /// Makes the next `times` steps of that name panic, in fillers on this thread.
    pub fn plan(what: &'static str, times: u32) {
        NEXT.set(Some((what, times)));
    }

    /// The number of planned panics that are left.
    pub fn left() -> u32 {
        NEXT.with_borrow(|next| next.map_or(0, |(_, times)| times))
    }

    pub(super) fn strike(step: &'static str) {
        let strikes = NEXT.with_borrow_mut(|next| match next {
            Some((what, times)) if *what == step && *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        });
        assert!(!strikes, "a defect, as planned");
    }
}
