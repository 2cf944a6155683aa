//! What a fetch asks of each row.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::Bytes;
use distance::Metric;

/// Some columns of one version of a table, known to the node. Cheap to clone.
///
/// It belongs to the client that opened it, not to one of its streams: each stream opens it under a
/// handle of its own when it is first used there, and again after a reconnection.
#[derive(Clone, Debug)]
pub struct Projection {
    pub(super) key: Arc<ProjectionKey>,
    pub(super) schema: SchemaRef,
}

impl Projection {
    /// The schema of the rows that come back: dictionaries and views travel as their values.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// A version of a table, as an I/O node is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableVersion<'a> {
    /// Where the table is.
    pub uri: &'a str,
    /// The version.
    pub version: u64,
    /// What its rows are made of, as lake's `Table::identity` says; empty to take what is there.
    pub identity: &'a str,
}

/// What a projection is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProjectionKey {
    pub table_uri: String,
    pub version: u64,
    pub identity: String,
    pub columns: Vec<String>,
}

/// Near-data rerank: the rows are scored on the node, and only the nearest come back.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerank {
    pub(super) vector: Bytes,
    pub(super) metric: Metric,
    pub(super) k: u32,
}

impl Rerank {
    /// The `k` rows nearest to `vector`, as the column's dimension has it.
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
