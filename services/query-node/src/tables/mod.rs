//! Opens the tables that a node serves, caches them, and follows them to new versions.

mod asked;
mod branches;
mod catalog;
mod entry;
mod folders;
mod idle;
mod named;
mod open;
mod projection;

pub use asked::AskedVersion;
pub use catalog::{Catalog, Listed};
pub use folders::Folder;
pub use open::OpenTable;
pub use projection::{Measure, Projection};
