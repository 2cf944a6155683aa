//! Requests to build an index.

use std::fmt;
use std::str::FromStr;

use crate::table::metric::Metric;

/// An index to build on one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexRequest {
    /// For nearest-neighbour search.
    Vector(VectorIndex),
    /// For full-text search, on a column of strings or lists of strings. The text is converted to lower case and ASCII,
    /// English words are stemmed, and stop words are dropped.
    Text {
        /// The column.
        column: String,
        /// Whether to store the positions of words, without which phrases can't be searched. They make the index
        /// larger.
        positions: bool,
    },
    /// For filters: a BTREE, or a label list on a column of lists.
    Scalar {
        /// The column.
        column: String,
    },
    /// For look-ups: a BTREE. The column is recorded as the table's key.
    Key {
        /// The column, which must have no nulls. Its values should be unique: of several rows with the same key, a
        /// look-up finds the first, and [`IndexSummary`](crate::IndexSummary) has the number of such keys.
        column: String,
        /// Whether the column may replace another key column of the table.
        replace: bool,
    },
}

/// An index on a column of vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorIndex {
    /// The column.
    pub column: String,
    /// The method of compressing and searching vectors.
    pub kind: VectorIndexKind,
    /// The measure of distance.
    pub metric: Metric,
    /// Number of partitions; `None`: about half the square root of the number of rows, at most 4,096.
    pub partitions: Option<usize>,
    /// IVF_PQ only: codes per vector; must divide the dimension. `None`: a sixteenth of the dimension, or the next
    /// larger number that divides it.
    pub sub_vectors: Option<usize>,
    /// IVF_RQ only: bits per dimension, 1 to 9. `None`: Lance's default (5).
    pub bits: Option<u8>,
}

/// Kinds of vector index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorIndexKind {
    /// Partitions of RaBitQ codes. A search among 1 million vectors of 768 dimensions costs less than half as much as
    /// with IVF_PQ, for the same recall after refinement.
    #[default]
    IvfRq,
    /// Partitions of product-quantization codes.
    IvfPq,
    /// Partitions, each with an HNSW graph over scalar-quantized vectors: fast and large.
    IvfHnswSq,
}

impl VectorIndexKind {
    /// All kinds, the default first.
    pub const ALL: [Self; 3] = [Self::IvfRq, Self::IvfPq, Self::IvfHnswSq];
}

impl fmt::Display for VectorIndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IvfRq => "ivf-rq",
            Self::IvfPq => "ivf-pq",
            Self::IvfHnswSq => "ivf-hnsw-sq",
        })
    }
}

impl FromStr for VectorIndexKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            "ivf-rq" => Ok(Self::IvfRq),
            "ivf-pq" => Ok(Self::IvfPq),
            "ivf-hnsw-sq" => Ok(Self::IvfHnswSq),
            _ => Err(format!(
                "{text:?} is no kind of vector index: choose ivf-rq, ivf-pq or ivf-hnsw-sq"
            )),
        }
    }
}

/// The default number of partitions for `rows` vectors: about √rows / 2, at most 4,096 (training needs 256 vectors per
/// partition in memory). √rows partitions would balance the cost of finding the nearest partitions against that of
/// searching one, but a search of 20 partitions then finds fewer of the true neighbours: on WordNet's 117,659 sentence
/// embeddings (recall@10, nprobes 20, refine factor 10), 343 partitions find 0.94 of them, and 171 find 0.97.
pub(crate) fn default_partitions(rows: u64) -> usize {
    const PARTITIONS_MAX: u64 = 4096;
    (rows.isqrt() / 2).clamp(1, PARTITIONS_MAX) as usize
}

/// The default number of codes for a vector of `dimension`: the smallest divisor of the dimension that is at least a
/// sixteenth of it.
pub(crate) fn default_sub_vectors(dimension: usize) -> usize {
    let wanted = dimension.div_ceil(16).max(1);
    (wanted..=dimension).find(|codes| dimension.is_multiple_of(*codes)).unwrap_or(dimension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_have_exact_values() {
        assert_eq!([0, 1, 100, 117_659, 1 << 40].map(default_partitions), [1, 1, 5, 171, 4096]);
        assert_eq!([384, 768, 100, 7, 1].map(default_sub_vectors), [24, 48, 10, 1, 1]);
    }

    #[test]
    fn names_are_parsed_to_the_same_kind() {
        for kind in VectorIndexKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("IVF_RQ".parse(), Ok(VectorIndexKind::IvfRq));
    }
}
