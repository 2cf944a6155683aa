//! Chooses the runtime on which Lance's own tasks run.

use std::future::poll_fn;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// Polls `work` on the current thread, in the context of `runtime`: tasks that `work` spawns run on `runtime`.
///
/// Opening a table or an index starts tasks and connections that live as long as the table or index and serve all its
/// users. They belong on a runtime that outlives the caller's and never waits for the caller's core.
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
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<()>(1);
        let passing = Builder::new_current_thread().build().unwrap();
        let work = async move {
            tokio::spawn(async move {
                // Keeps the sender until the receiver is dropped.
                sender.closed().await;
            });
        };
        passing.block_on(on_runtime(lasting.handle(), work.boxed()));
        drop(passing);
        assert!(
            receiver
                .try_recv()
                .is_err_and(|error| error != tokio::sync::mpsc::error::TryRecvError::Disconnected)
        );
    }
}
