//! Runs work that makes other work faster beside it.

use std::pin::pin;

use futures::future::{Either, select};

/// Awaits `work` while `help` runs. `work` is polled first, so `help` does not begin if `work` is ready at once, and is
/// dropped when `work` ends.
pub(crate) async fn beside<T>(work: impl Future<Output = T>, help: impl Future<Output = ()>) -> T {
    match select(pin!(work), pin!(help)).await {
        Either::Left((done, _)) => done,
        Either::Right(((), work)) => work.await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn help_runs_only_while_the_work_does() {
        let begun = Cell::new(0);
        let help = || async { begun.set(begun.get() + 1) };
        assert_eq!(beside(ready(1), help()).await, 1);
        assert_eq!(begun.get(), 0);
        let slow = || async {
            yield_now().await;
            2
        };
        assert_eq!(beside(slow(), help()).await, 2);
        assert_eq!(begun.get(), 1);
        assert_eq!(beside(slow(), pending()).await, 2);
    }
}
