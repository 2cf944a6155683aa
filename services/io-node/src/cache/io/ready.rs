//! Fills chunks that are encoded already, to measure how fast a node writes to its drives without a table.

use std::sync::Arc;
use std::time::Duration;

use address::{ExtentKey, PackKey};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::chunk::Chunk;
use super::handle::FillHandle;
use crate::cache::books::FillOutcome;
use crate::drive::trial_extent;
use crate::error::NodeError;

/// A chunk that is encoded already.
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
    /// Fills `extents` equal extents of `sectors` sectors each, `at_once` at a time. `name` is the key of their pack,
    /// which must not have been used before. Returns how long the fills took, including the last journal record. Call
    /// it once.
    ///
    /// # Errors
    /// The reason why an extent could not be filled.
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
        // Everything is flushed and recorded once this returns; nothing can be filled afterwards.
        let _ = self.stop().await;
        Ok(began.elapsed())
    }
}
