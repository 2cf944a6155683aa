//! The commands, one file each.

pub mod api_key;
pub mod bench;
pub mod completions;
pub mod count;
pub mod describe;
pub mod get;
pub mod index;
pub mod ingest;
pub mod inspect;
pub mod io;
pub mod lookup;
pub mod placement;
pub mod query;
pub mod search;
pub mod status;
pub mod tables;
pub mod take;
pub mod top;
pub mod tune;
pub mod up;
pub mod versions;
pub mod warm;
