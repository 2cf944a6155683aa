//! Parts of a version: what it looks like to callers whose grant shows only some of its columns or rows.
//!
//! A part is an [`OpenTable`] with projections of its own, so that requests need not know whether they use a part. It is
//! made from a grant's [`Part`] when a request first needs it, and kept with the version.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{Grant, Part};
use moka::sync::Cache;
use tracing::error;

use super::OpenTable;
use crate::error::{QueryError, Result};

/// The maximum number of parts that are kept for a version. A policy has at most as many grants. A part takes some
/// kilobytes, and its projections take more.
const PARTS_MAX: u64 = 1000;

/// A part that no request has used for this long is dropped.
const IDLE: Duration = Duration::from_secs(600);

/// The parts of a version that requests have used; `None` for a part that the version can't show.
#[derive(Debug, Default)]
pub struct Parts(OnceLock<Cache<Arc<Part>, Option<Arc<OpenTable>>>>);

impl OpenTable {
    /// Returns this version as `grant` shows it.
    ///
    /// # Errors
    /// [`QueryError::PartUnfit`] if the version has none of the grant's columns, or if the condition on rows does not
    /// fit it. The log has the cause, which the caller may not see.
    pub async fn as_shown(self: &Arc<Self>, grant: &Grant) -> Result<Arc<Self>> {
        let Some(part) = grant.part() else { return Ok(Arc::clone(self)) };
        let parts = self
            .parts
            .0
            .get_or_init(|| Cache::builder().max_capacity(PARTS_MAX).time_to_idle(IDLE).build());
        let known = match parts.get(part) {
            Some(known) => known,
            None => {
                let made = self.make_part(part, grant.name()).await;
                // If another core has made the part meanwhile, all requests use that one.
                parts.entry_by_ref(part).or_insert(made).into_value()
            }
        };
        known.ok_or_else(|| QueryError::PartUnfit {
            grant: grant.name().to_owned(),
            table: self.name.clone(),
        })
    }

    async fn make_part(&self, part: &Part, grant: &str) -> Option<Arc<Self>> {
        match self.table.part(part.columns.as_deref(), part.rows.as_deref()).await {
            Ok(table) => Some(Arc::new(self.showing(table))),
            Err(cause) => {
                let (table, version) = (&self.name, self.version());
                error!(
                    table,
                    version,
                    grant,
                    "the grant does not fit the table, so callers are refused: {cause}"
                );
                None
            }
        }
    }
}
