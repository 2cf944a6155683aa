//! Builds the indexes of a table.

mod build;
mod duplicates;
pub(crate) mod key_record;
mod plan;
mod progress;
mod request;
mod text_parameters;

pub use build::{IndexSummary, build_index};
pub use duplicates::DuplicateKeys;
pub use progress::IndexProgress;
pub use request::{IndexRequest, VectorIndex, VectorIndexKind};
