//! Files as wholes, not as tables of rows: a file that an I/O node reads for its drives, the files of a version's
//! indexes, and files that Bireme keeps beside a table.

pub(crate) mod side_files;
pub(crate) mod stored_file;
pub(crate) mod version_files;
