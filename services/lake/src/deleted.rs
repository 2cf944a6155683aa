//! The rows of a fragment that a version has deleted, as Lance has them.

use lance_core::utils::deletion::DeletionVector;
use tables::DeletedRows;

/// Out of Lance's form, which is a set as long as it is small.
pub(crate) fn deleted_rows(vector: Option<&DeletionVector>) -> DeletedRows {
    match vector {
        None | Some(DeletionVector::NoDeletions) => DeletedRows::default(),
        Some(DeletionVector::Set(offsets)) => offsets.iter().copied().collect(),
        Some(DeletionVector::Bitmap(offsets)) => offsets.clone().into(),
    }
}
