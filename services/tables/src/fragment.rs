//! The description of a fragment, without its data.

/// A fragment of one version of a table: rows that were written together. Its data files never change. A later version
/// may add files (for added columns) or delete more rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// The fragment's id: unique in the table, never reused, and the high half of its rows' addresses.
    pub id: u32,
    /// The number of rows in its files, including deleted ones. The offsets of rows are below this number.
    pub physical_rows: u32,
    /// The number of rows that are deleted in this version.
    pub deleted_rows: u32,
    /// The size of its first data file in bytes. Added columns do not change it, because they are in further files.
    /// `None` if the table does not record it (Lance before 0.25), and the store did not report it either.
    pub first_file_bytes: Option<u64>,
    /// The size of all of its data files in bytes. `None` if the size of one of them is not known.
    pub data_bytes: Option<u64>,
}

impl FragmentInfo {
    /// Returns the number of rows that are not deleted.
    pub fn live_rows(&self) -> u64 {
        u64::from(self.physical_rows - self.deleted_rows)
    }

    /// Returns the average bytes of a row in the fragment's files; 0 if unknown.
    pub fn row_bytes(&self) -> u64 {
        self.data_bytes.unwrap_or(0) / u64::from(self.physical_rows.max(1))
    }
}
