//! The interface through which an I/O node reads tables.
//!
//! `lake` implements it for Lance tables in object stores and folders, and the simulation for generated tables. This
//! crate depends on neither, so that an I/O node can be built and tested without Lance.
//!
//! A [`Table`] is one version and never changes: repeated calls return the same result, or fail.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod blocks;
mod branch;
mod deleted;
mod file;
mod folder;
mod fragment;
mod positions;
mod ranges;
mod source;
mod table;
mod uri;
mod usage;
mod width;

pub use blocks::{BLOCK_BYTES, BLOCK_SECTORS, BlockReads, FileSource, TOGETHER_MAX};
pub use branch::{BadBranch, BranchName};
pub use deleted::DeletedRows;
pub use file::{FILE_BYTES_KEY, FILE_COLUMN, FilePath, FileTable};
pub use folder::{
    ID_DELIMITER, TableFolder, is_namespace_id, is_table_id, is_table_name, table_of_folder,
};
pub use fragment::FragmentInfo;
pub use positions::FragmentRows;
pub use ranges::{RANGES_MAX, rows_of};
pub use source::Tables;
pub use table::Table;
pub use uri::{BadUri, TableUri, UriPrefix, shown};
pub use usage::{CacheUse, StoreUse};
pub use width::fixed_bytes;
