//! The rows of a fragment that a version has deleted.

use std::sync::Arc;

use lance_core::utils::deletion::DeletionVector;

/// Which rows of one fragment are deleted in one version. Small: a set, or a compressed bitmap.
#[derive(Clone, Debug, Default)]
pub struct DeletedRows {
    vector: Option<Arc<DeletionVector>>,
}

impl DeletedRows {
    pub(crate) fn new(vector: Option<Arc<DeletionVector>>) -> Self {
        Self { vector: vector.filter(|vector| !vector.is_empty()) }
    }

    /// Whether the row at physical `offset` is deleted.
    pub fn contains(&self, offset: u32) -> bool {
        self.vector.as_ref().is_some_and(|vector| vector.contains(offset))
    }

    /// How many rows are deleted.
    pub fn len(&self) -> usize {
        self.vector.as_ref().map_or(0, |vector| vector.len())
    }

    /// Whether no row is deleted, so that looking each one up can be left out.
    pub fn is_empty(&self) -> bool {
        self.vector.is_none()
    }
}
