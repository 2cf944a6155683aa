//! The values to ask for, which the test takes from the local table.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The folder of the local tables.
    pub folder: String,
    /// A query vector.
    pub vector: Vec<f32>,
    /// Another query vector.
    pub other: Vec<f32>,
    /// The vector of a row that no index covers.
    pub unindexed: Vec<f32>,
    /// The least distance from `vector` that is in a range, inclusive.
    pub lower: f32,
    /// The distance at which the range ends, exclusive.
    pub upper: f32,
    /// Some rows' ids.
    pub row_ids: Vec<u64>,
    /// Some rows' offsets, of which one is given twice.
    pub offsets: Vec<u64>,
}
