//! Listings a page at a time, guarded like every other request.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::Result;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};

use super::gate::Gate;
use super::usage::count;
use super::wrapper::Within;

/// A store's pages of names.
pub struct CountedListing {
    inner: Arc<dyn PaginatedListStore>,
    gate: Arc<Gate>,
    within: Within,
}

impl CountedListing {
    /// Of the store behind `gate`, `within` what a table may ask it for.
    pub fn new(inner: Arc<dyn PaginatedListStore>, gate: Arc<Gate>, within: Within) -> Self {
        Self { inner, gate, within }
    }
}

#[async_trait]
impl PaginatedListStore for CountedListing {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        self.within.check_prefix(prefix.unwrap_or_default())?;
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        let page = self.inner.list_paginated(prefix, options).await;
        pass.judge(&page);
        page
    }
}
