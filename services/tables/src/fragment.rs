//! What is known of a fragment without reading it.

/// A fragment of one version of a table: rows that were written together. Its data files never
/// change; a later version may add files (added columns) or delete more of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Unique in the table, never reused; the high half of its rows' addresses.
    pub id: u32,
    /// Rows in its files, deleted ones counted: offsets run from 0 to this.
    pub physical_rows: u32,
    /// How many of them this version has deleted.
    pub deleted_rows: u32,
    /// Size of its first data file in bytes. Columns added later are in further files and leave it
    /// as it is. `None` if the table doesn't record it (written by Lance before 0.25) and the
    /// store didn't tell either.
    pub first_file_bytes: Option<u64>,
}
