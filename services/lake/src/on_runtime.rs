//! Which runtime Lance's own tasks live on.

use std::future::poll_fn;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// Polls `work` here, as if within `runtime`.
///
/// Opening tables and indexes starts tasks and connections that live as long as they, and serve all who
/// share them: they belong on a runtime that outlives the caller's, and never waits for its core.
pub fn on_runtime<'a, T: 'a>(runtime: &'a Handle, mut work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    poll_fn(move |cx| {
        let _entered = runtime.enter();
        work.as_mut().poll(cx)
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn what_is_spawned_outlives_the_runtime_that_polled() {
        let lasting = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (told, mut hear) = tokio::sync::mpsc::channel::<()>(1);
        let passing = Builder::new_current_thread().build().unwrap();
        let work = async move {
            tokio::spawn(async move {
                // Until its sender is wanted.
                told.closed().await;
            });
        };
        passing.block_on(on_runtime(lasting.handle(), work.boxed()));
        drop(passing);
        assert!(
            hear.try_recv()
                .is_err_and(|error| error != tokio::sync::mpsc::error::TryRecvError::Disconnected)
        );
    }
}
