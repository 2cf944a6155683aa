//! Projections and reranks: what a fetch requests for each row.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::Bytes;
use distance::Metric;

/// Some columns of one version of a table, or a file of a table, which the node has accepted. Cheap to clone.
///
/// A projection belongs to the client that opened it, not to a stream: each stream opens it with its own handle when it
/// is first used there, and again after a reconnection.
#[derive(Clone, Debug)]
pub struct Projection {
    pub(super) key: Arc<ProjectionKey>,
    pub(super) schema: SchemaRef,
}

impl Projection {
    /// Returns the schema of the fetched rows, in which dictionaries and views are replaced by their values.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// A version of a table, as it is sent to an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableVersion<'a> {
    /// The table's URI.
    pub uri: &'a str,
    /// The branch that the version belongs to; empty for the main one.
    pub branch: &'a str,
    /// The version.
    pub version: u64,
    /// Identifies the version's data: lake's `Table::identity`. If it is empty, the node does not check it.
    pub identity: &'a str,
}

/// A file of a table, as it is sent to an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFile<'a> {
    /// The table's URI.
    pub uri: &'a str,
    /// The file's path in the table's folder.
    pub path: &'a str,
    /// The file's size; 0 if unknown.
    pub bytes: u64,
}

/// Identifies a projection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ProjectionKey {
    pub table_uri: String,
    pub branch: String,
    pub version: u64,
    pub identity: String,
    pub columns: Vec<String>,
    /// The path of the file, if the projection is a file; otherwise empty.
    pub file: String,
    /// The file's size; 0 if unknown.
    pub file_bytes: u64,
}

/// A near-data rerank: the node scores the rows and returns only the nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerank {
    pub(super) vector: Bytes,
    pub(super) metric: Metric,
    pub(super) k: u32,
}

impl Rerank {
    /// Requests the `k` rows nearest to `vector`, which must have the column's dimension.
    pub fn new(vector: &[f32], metric: Metric, k: u32) -> Self {
        let vector = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { vector, metric, k }
    }

    pub(super) fn to_wire(&self) -> wire::fetch::Rerank {
        let metric = match self.metric {
            Metric::L2 => wire::fetch::Metric::L2,
            Metric::Cosine => wire::fetch::Metric::Cosine,
            Metric::Dot => wire::fetch::Metric::Dot,
        };
        wire::fetch::Rerank { vector: self.vector.clone(), metric: metric as i32, k: self.k }
    }
}
