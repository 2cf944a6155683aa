//! Lists and builds the indexes of a table.

mod build;
mod duplicates;
pub(crate) mod info;
pub(crate) mod metric;
mod plan;
mod progress;
mod request;
mod text_parameters;

pub use build::{IndexSummary, build_index};
pub use duplicates::DuplicateKeys;
pub use info::IndexInfo;
pub use metric::Metric;
pub use progress::IndexProgress;
pub use request::{IndexRequest, VectorIndex, VectorIndexKind};
