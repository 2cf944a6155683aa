//! Provides a stack that is deep enough to plan and evaluate filters, on any thread.

use std::future::{Future, poll_fn};

use futures::future::BoxFuture;

/// The stack size of threads that plan and evaluate filters. Filters are limited so that they need at most a quarter of
/// it (`search/filter/limits.rs` has the figures). Untouched pages of a stack take no memory.
pub const STACK_BYTES: usize = 16 << 20;

/// The minimum of free stack, in bytes, for planning and evaluating a filter: three times the most that a filter may
/// need. A thread with less runs that work on a new stack of [`STACK_BYTES`], which costs about 10 µs.
const LEFT_BYTES_MIN: usize = 12 << 20;

/// Runs `work` with at least [`LEFT_BYTES_MIN`] of stack.
pub(crate) fn on_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES_MIN, STACK_BYTES, work)
}

/// Polls `work` with at least [`LEFT_BYTES_MIN`] of stack.
pub(crate) fn polled_on_deep_stack<'a, T: Send + 'a>(
    mut work: BoxFuture<'a, T>,
) -> impl Future<Output = T> + Send + 'a {
    poll_fn(move |context| on_deep_stack(|| work.as_mut().poll(context)))
}
