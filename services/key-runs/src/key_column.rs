//! A table's key column, and its data files.

use key_index::{DataFile, KeyHasher, KeyType};
use lake::{FragmentInfo, Result, Table};

/// A key column.
#[derive(Clone, Debug)]
pub struct KeyColumn {
    /// The column's name.
    pub name: String,
    /// The class of its type.
    pub key_type: KeyType,
}

impl KeyColumn {
    /// Returns the hasher of the column's keys. `seed` is secret, and the same for all runs that are used together.
    pub fn hasher(&self, seed: u64) -> KeyHasher {
        KeyHasher::new(seed, self.key_type)
    }
}

/// Lists the data files of a version that have `column`, one for each fragment.
///
/// # Errors
/// `ColumnNotFound`.
pub fn data_files(table: &Table, column: &str) -> Result<Vec<DataFile>> {
    let file = |info: &FragmentInfo| {
        let path = table.file_identity(info.id, column)?;
        Ok(DataFile { path, fragment: info.id, rows: info.physical_rows })
    };
    table.fragments().iter().map(file).collect()
}
