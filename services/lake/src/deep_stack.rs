//! A stack that is deep enough for what plans and evaluates filters, whichever thread it is on.

use std::future::{Future, poll_fn};

use futures::future::BoxFuture;

/// The stack of threads that plan and evaluate filters, in bytes. Filters are checked to need a quarter of it at most
/// (`search/filter/tokens.rs` has the figures). Pages of it that nobody touches take no memory.
pub const STACK_BYTES: usize = 16 << 20;

/// A thread with less left than this gets a new stack of [`STACK_BYTES`] for as long as the work takes, which costs some
/// 10 µs.
const LEFT_BYTES_MIN: usize = 12 << 20;

/// Runs `work` where it has at least [`LEFT_BYTES_MIN`] of stack.
pub(crate) fn on_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES_MIN, STACK_BYTES, work)
}

/// Polls `work` where it has at least [`LEFT_BYTES_MIN`] of stack.
pub(crate) fn polled_on_deep_stack<'a, T: Send + 'a>(
    mut work: BoxFuture<'a, T>,
) -> impl Future<Output = T> + Send + 'a {
    poll_fn(move |context| on_deep_stack(|| work.as_mut().poll(context)))
}
