//! A table's fence, as the store of one bucket applies it.

use std::sync::Arc;

use object_store::path::Path;

use super::fence::Fence;

/// A table's fence, for one bucket: which of the bucket's objects the table may use.
#[derive(Clone, Debug)]
pub struct BucketFence {
    fence: Fence,
    /// `scheme://bucket`.
    root: Arc<str>,
}

impl BucketFence {
    /// The part of `fence` in the bucket with the URI `root`.
    pub fn new(fence: Fence, root: &str) -> Self {
        Self { fence, root: root.into() }
    }

    /// Checks a request for an object, or for all objects below a path.
    pub fn check(&self, location: &Path) -> object_store::Result<()> {
        self.check_prefix(location.as_ref())
    }

    /// Checks the prefix of a listing.
    pub fn check_prefix(&self, prefix: &str) -> object_store::Result<()> {
        let place = format!("{}/{prefix}", self.root);
        Ok(self.fence.check(place.trim_end_matches('/'))?)
    }

    /// A fence that allows every path.
    #[cfg(test)]
    pub fn unrestricted() -> Self {
        Self { fence: Fence::of_option("x:"), root: "x:".into() }
    }
}
