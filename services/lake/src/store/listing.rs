//! Paged listings, guarded like all other requests.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::Result;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};

use super::bucket_fence::BucketFence;
use super::limiter::StoreLimiter;
use super::usage::count;

/// Guards the paged listings of a store.
pub struct CountedListing {
    inner: Arc<dyn PaginatedListStore>,
    limiter: Arc<StoreLimiter>,
    fence: BucketFence,
}

impl CountedListing {
    /// Guards the listings of `inner` with `limiter` and `fence`.
    pub fn new(
        inner: Arc<dyn PaginatedListStore>,
        limiter: Arc<StoreLimiter>,
        fence: BucketFence,
    ) -> Self {
        Self { inner, limiter, fence }
    }
}

#[async_trait]
impl PaginatedListStore for CountedListing {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        self.fence.check_prefix(prefix.unwrap_or_default())?;
        let mut request = self.limiter.acquire().await?;
        count(&self.limiter.usage.writes, 1);
        let page = self.inner.list_paginated(prefix, options).await;
        request.judge(&page);
        page
    }
}
