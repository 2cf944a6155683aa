//! Bounds what runs at the same time on the query node's cores.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::deadline::Deadline;
use crate::error::{QueryError, Result};

/// As many searches at the same time as there are permits; a bounded number waits, in order.
///
/// A search keeps its permit while it waits for index partitions that aren't cached: they are read
/// within Lance's search.
pub struct Cores {
    permits: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Cores {
    /// `concurrency` searches run, `waiting_max` wait.
    pub fn new(concurrency: usize, waiting_max: usize) -> Self {
        Self { permits: Semaphore::new(concurrency), waiting: AtomicUsize::new(0), waiting_max }
    }

    /// Searches waiting now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs `work` when its turn comes; work past its deadline isn't begun.
    ///
    /// # Errors
    /// [`QueryError::Overloaded`] when too many wait, [`QueryError::DeadlinePassed`].
    pub async fn run<T>(
        &self,
        during: &'static str,
        deadline: Deadline,
        work: BoxFuture<'_, Result<T>>,
    ) -> Result<T> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let _place = Place::take(self)?;
                deadline
                    .bound(during, async { Ok(self.permits.acquire().await) }.boxed())
                    .await?
                    .map_err(
                        // Never closed.
                        |closed| QueryError::Server(closed.to_string()),
                    )?
            }
        };
        deadline.check(during)?;
        deadline.bound(during, work).await
    }
}

/// A place in the queue, given up when dropped.
struct Place<'a>(&'a Cores);

impl<'a> Place<'a> {
    fn take(cores: &'a Cores) -> Result<Self> {
        let waiting = cores.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(cores);
        match waiting < cores.waiting_max {
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
        let cores = Cores::new(1, 1);
        let soon = Deadline::after(Duration::from_millis(50));
        let late = Deadline::after(Duration::from_millis(250));
        let endless = std::future::pending::<Result<()>>().boxed();
        let (running, waiting, refused) = tokio::join!(
            cores.run("search", late, endless),
            cores.run("search", soon, async { Ok(1) }.boxed()),
            cores.run("search", soon, async { Ok(2) }.boxed()),
        );
        assert!(matches!(running, Err(QueryError::DeadlinePassed { .. })));
        assert!(matches!(waiting, Err(QueryError::DeadlinePassed { during: "search" })));
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })));
        assert_eq!(cores.waiting(), 0);
        let later = Deadline::after(Duration::from_secs(10));
        assert_eq!(cores.run("search", later, async { Ok(3) }.boxed()).await.unwrap(), 3);
    }
}
