//! The deleted rows of a fragment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lance_core::utils::deletion::DeletionVector;
use tables::{DeletedRows, TableUri};

/// The minimum number of files in [`LoadedDeletions`] at which it is swept. With the allocations that their `Weak`s
/// keep, they take about 130 KiB.
const SWEPT_MIN: usize = 1024;

/// Converts Lance's deletion vector, which is a set while it is small and a bitmap otherwise.
pub(crate) fn deleted_rows(vector: Option<&DeletionVector>) -> DeletedRows {
    match vector {
        None | Some(DeletionVector::NoDeletions) => DeletedRows::default(),
        Some(DeletionVector::Set(offsets)) => offsets.iter().copied().collect(),
        Some(DeletionVector::Bitmap(offsets)) => offsets.clone().into(),
    }
}

/// Identifies a deletion file by its table's URI and its place in the table. Lance draws a random number of 64 bits for
/// the name of each deletion file, and never overwrites one. So equal identities mean equal bytes: across versions and
/// branches, and also if another table was created at the same URI.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DeletionFileId(blake3::Hash);

impl DeletionFileId {
    /// Returns the identity of the file at `place` of the table at `uri`.
    pub(crate) fn new(uri: &TableUri, place: &str) -> Self {
        let mut hash = blake3::Hasher::new();
        // With its length, so that the URI and the place of another table are never the same bytes.
        hash.update(&(uri.as_str().len() as u64).to_le_bytes());
        hash.update(uri.as_str().as_bytes());
        hash.update(place.as_bytes());
        Self(hash.finalize())
    }
}

/// The deletion files that open versions of tables have loaded. A version that is opened next reads only the other
/// files, whatever the metadata cache has evicted. The rows belong to the versions, and are freed with the last of them.
#[derive(Default)]
pub(crate) struct LoadedDeletions(Mutex<Loaded>);

#[derive(Default)]
struct Loaded {
    files: HashMap<DeletionFileId, Weak<DeletedRows>>,
    /// The number of files at which those that no open version has are removed.
    sweep_at: usize,
}

impl LoadedDeletions {
    /// Returns the deleted rows in `file`; `None` if no open version has loaded it.
    pub(crate) fn get(&self, file: &DeletionFileId) -> Option<Arc<DeletedRows>> {
        self.lock().files.get(file)?.upgrade()
    }

    /// Notes the rows that a version has loaded from `file`.
    pub(crate) fn insert(&self, file: DeletionFileId, rows: &Arc<DeletedRows>) {
        let Loaded { files, sweep_at } = &mut *self.lock();
        if files.len() >= *sweep_at {
            files.retain(|_, rows| rows.strong_count() > 0);
            *sweep_at = (2 * files.len()).max(SWEPT_MIN);
        }
        files.insert(file, Arc::downgrade(rows));
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_closed_versions_are_forgotten() {
        let (loaded, uri) = (LoadedDeletions::default(), TableUri::parse("s3://b/t").unwrap());
        let file = |number: usize| DeletionFileId::new(&uri, &number.to_string());
        let kept: Vec<Arc<DeletedRows>> = (0..SWEPT_MIN).map(|_| Arc::default()).collect();
        for (number, rows) in kept.iter().enumerate() {
            loaded.insert(file(number), rows);
        }
        for number in SWEPT_MIN..10 * SWEPT_MIN {
            loaded.insert(file(number), &Arc::default());
            assert!(loaded.get(&file(number)).is_none());
            assert!(loaded.lock().files.len() <= 2 * SWEPT_MIN);
        }
        for (number, rows) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(&loaded.get(&file(number)).unwrap(), rows));
        }
    }
}
