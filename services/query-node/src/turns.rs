//! Bounds the searches and table reads that run at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::error::{QueryError, Result};
use crate::terms::Terms;

/// As many at the same time as there are permits; a bounded number waits, in order.
///
/// A search keeps its permit while it waits for index partitions that aren't cached: they are read
/// within Lance's search.
pub struct Turns {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
    background: Handle,
}

impl Turns {
    /// `concurrency` run, `waiting_max` wait. `background` has threads for what would keep a core
    /// from its connections.
    pub fn new(concurrency: usize, waiting_max: usize, background: Handle) -> Self {
        let permits = Arc::new(Semaphore::new(concurrency));
        Self { permits, waiting: AtomicUsize::new(0), waiting_max, background }
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs `work` on this core when its turn comes; work past its deadline isn't begun.
    ///
    /// # Errors
    /// [`QueryError::Overloaded`] when too many wait, [`QueryError::DeadlinePassed`].
    pub async fn here<T>(
        &self,
        during: &'static str,
        terms: Terms,
        work: BoxFuture<'_, Result<T>>,
    ) -> Result<T> {
        let _permit = self.permit(during, terms).await?;
        terms.bound(during, work).await
    }

    /// The same in the background: for what Lance plans, which may take milliseconds of CPU.
    ///
    /// # Errors
    /// As [`here`](Self::here).
    pub async fn in_background<T: Send + 'static>(
        &self,
        during: &'static str,
        terms: Terms,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let permit = self.permit(during, terms).await?;
        // Dropped with the set when the caller goes.
        let mut task = JoinSet::new();
        let work = async move {
            let done = work.await;
            drop(permit);
            done
        };
        task.spawn_on(work, &self.background);
        let done = async {
            match task.join_next().await {
                Some(Ok(done)) => done,
                Some(Err(error)) => Err(QueryError::Server(error.to_string())),
                None => Err(QueryError::Server("a task is gone".into())),
            }
        };
        terms.bound(during, done.boxed()).await
    }

    async fn permit(&self, during: &'static str, terms: Terms) -> Result<OwnedSemaphorePermit> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _place = Place::take(self)?;
                let turn = async { Ok(Arc::clone(&self.permits).acquire_owned().await) };
                // Never closed.
                let closed =
                    |closed: tokio::sync::AcquireError| QueryError::Server(closed.to_string());
                terms.bound(during, turn.boxed()).await?.map_err(closed)?
            }
        };
        terms.check(during)?;
        Ok(permit)
    }
}

/// A place in the queue, given up when dropped.
struct Place<'a>(&'a Turns);

impl<'a> Place<'a> {
    fn take(turns: &'a Turns) -> Result<Self> {
        let waiting = turns.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(turns);
        match waiting < turns.waiting_max {
            true => Ok(place),
            false => Err(QueryError::Overloaded { waiting }),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_over_the_queue_is_refused_and_what_waits_too_long_is_dropped() {
        let turns = Turns::new(1, 1, Handle::current());
        let soon = Terms::after(Duration::from_millis(50));
        let late = Terms::after(Duration::from_millis(250));
        let endless = std::future::pending::<Result<()>>().boxed();
        let (running, waiting, refused) = tokio::join!(
            turns.in_background("search", late, endless),
            turns.here("search", soon, async { Ok(1) }.boxed()),
            turns.in_background("search", soon, async { Ok(2) }.boxed()),
        );
        assert!(matches!(running, Err(QueryError::DeadlinePassed { .. })));
        assert!(matches!(waiting, Err(QueryError::DeadlinePassed { during: "search" })));
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })));
        assert_eq!(turns.waiting(), 0);
        let later = Terms::after(Duration::from_secs(10));
        assert_eq!(turns.here("search", later, async { Ok(3) }.boxed()).await.unwrap(), 3);
        let work = async { Ok(4) }.boxed();
        assert_eq!(turns.in_background("search", later, work).await.unwrap(), 4);
    }
}
