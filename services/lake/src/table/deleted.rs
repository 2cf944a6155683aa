//! The deleted rows of a fragment.

use lance_core::utils::deletion::DeletionVector;
use tables::DeletedRows;

/// Converts Lance's deletion vector, which is a set while it is small and a bitmap otherwise.
pub(crate) fn deleted_rows(vector: Option<&DeletionVector>) -> DeletedRows {
    match vector {
        None | Some(DeletionVector::NoDeletions) => DeletedRows::default(),
        Some(DeletionVector::Set(offsets)) => offsets.iter().copied().collect(),
        Some(DeletionVector::Bitmap(offsets)) => offsets.clone().into(),
    }
}
