//! Unpaged listings: streams, for which a store's client sends as many requests as it needs.

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::Result;

use super::limiter::AdmittedRequest;

/// Guards the listing `inner`, which is polled only after `admitted` has resolved. The first item of the listing, or
/// its end if it is empty, shows whether the store answers. Later errors are reported to the circuit breaker too.
pub fn guarded<T: Send + 'static>(
    admitted: impl Future<Output = Result<AdmittedRequest>> + Send + 'static,
    inner: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let admitted = async move { admitted.await.map(|request| judged(request, inner)) };
    stream::once(admitted).try_flatten().boxed()
}

fn judged<T: Send + 'static>(
    request: AdmittedRequest,
    inner: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let states =
        stream::unfold((inner, request, false), async |(mut inner, mut request, has_begun)| {
            let piece = inner.next().await;
            match &piece {
                Some(piece) if piece.is_err() || !has_begun => request.judge(piece),
                None if !has_begun => request.judge(&Ok(())),
                _ => {}
            }
            Some((piece?, (inner, request, true)))
        });
    states.boxed()
}
