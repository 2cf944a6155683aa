//! Chunks that are ready: what writing to drives is measured with, without a table.

use std::sync::Arc;
use std::time::Duration;

use address::{ExtentKey, PackKey};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::chunk::Chunk;
use super::handle::{FillHandle, FillOutcome};
use crate::error::NodeError;
use crate::slab::trial_extent;

/// A chunk that was encoded before.
struct Ready(Arc<pack::Extent>);

impl Chunk for Ready {
    fn encoded(
        self: Box<Self>,
        _bytes_max: u64,
    ) -> BoxFuture<'static, Result<pack::Extent, NodeError>> {
        async move { Ok(pack::Extent::clone(&self.0)) }.boxed()
    }
}

impl FillHandle {
    /// Fills `extents` extents of `sectors` sectors, all alike, `at_once` asked for at the same time; how long
    /// that took, the last record included. To be called once; `name` must not have been used before.
    ///
    /// # Errors
    /// Why one could not be filled.
    pub async fn fill_ready(
        &self,
        name: u128,
        extents: u32,
        sectors: u32,
        at_once: usize,
    ) -> Result<Duration, NodeError> {
        let extent = Arc::new(trial_extent(sectors)?);
        let began = Instant::now();
        let fills = futures::stream::iter(0..extents).map(|chunk| {
            let key = ExtentKey { pack: PackKey(name), chunk };
            self.fill_with(key, Box::new(Ready(Arc::clone(&extent))))
        });
        let mut outcomes = fills.buffer_unordered(at_once);
        while let Some(outcome) = outcomes.next().await {
            if let FillOutcome::Failed(why) = outcome {
                return Err(NodeError::Fill { why });
            }
        }
        // Until all of it is flushed and recorded; nothing is filled after that.
        let _ = self.stop().await;
        Ok(began.elapsed())
    }
}
