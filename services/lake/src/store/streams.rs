//! Listings and deletes: what a store streams, which are as many requests as it likes.

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::Result;

use super::gate::Pass;

/// Such a stream, begun once it has `entered`: there is a place, if it needs one, and the store is not let be. Its first
/// piece says whether the store answers, or its end if it has none; each failure counts.
pub fn guarded<T: Send + 'static>(
    entered: impl Future<Output = Result<Pass>> + Send + 'static,
    inner: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let entered = async move { entered.await.map(|pass| judged(pass, inner)) };
    stream::once(entered).try_flatten().boxed()
}

fn judged<T: Send + 'static>(
    pass: Pass,
    inner: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let states = stream::unfold((inner, pass, false), async |(mut inner, mut pass, has_begun)| {
        let piece = inner.next().await;
        match &piece {
            Some(piece) if piece.is_err() || !has_begun => pass.judge(piece),
            None if !has_begun => pass.judge(&Ok(())),
            _ => {}
        }
        Some((piece?, (inner, pass, true)))
    });
    states.boxed()
}
