//! The tables that a node serves: opened, cached, and followed to new versions.

mod catalog;
mod open;
mod projection;

pub use catalog::{Catalog, Listed};
pub use open::OpenTable;
pub use projection::{Measure, Projection};
