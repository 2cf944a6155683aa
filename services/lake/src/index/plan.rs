//! Checks a request for an index against the table and converts it to Lance's parameters.

use arrow::datatypes::DataType;
use lance::index::vector::VectorIndexParams;
use lance_index::scalar::{BuiltinIndexType, InvertedIndexParams, ScalarIndexParams};
use lance_index::vector::bq::RQBuildParams;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::pq::PQBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;
use lance_index::{IndexParams, IndexType};
use spelling::counted;

use super::request::{
    IndexRequest, VectorIndex, VectorIndexKind, default_partitions, default_sub_vectors,
};
use crate::error::{LakeError, Result};
use crate::key::check_key_type;
use crate::schema::text_type::can_be_searched;
use crate::table::Table;

/// The fewest rows for product quantization: one for each of its 256 centroids.
const PQ_ROWS_MIN: u64 = 256;

/// For RaBitQ, the dimension must be a multiple of this number: RaBitQ packs one bit per dimension into whole bytes.
const RQ_DIMENSION_MULTIPLE: usize = 8;

/// An index to build on one column.
pub(crate) struct Plan {
    pub column: String,
    pub index_type: IndexType,
    pub params: Box<dyn IndexParams>,
    /// `vector`, `text` or `scalar`. The new index replaces the column's index of this category (for `scalar`, only one
    /// of the same `index_type`). If there is none to replace, the new index's name ends in the category.
    pub category: &'static str,
}

impl Plan {
    /// Plans the index of a request. Errors: `ColumnNotFound`, `NotAVector`, `UnsupportedType`, `TooFewRows`,
    /// `BadIndex`.
    pub(crate) fn new(table: &Table, request: &IndexRequest) -> Result<Self> {
        match request {
            IndexRequest::Vector(vector) => Self::vector(table, vector),
            IndexRequest::Text { column, positions } => Self::text(table, column, *positions),
            IndexRequest::Scalar { column } => Self::scalar(table, column),
            IndexRequest::Key { column, .. } => {
                check_key_type(column, table.column_type(column)?)?;
                Self::scalar(table, column)
            }
        }
    }

    fn vector(table: &Table, wanted: &VectorIndex) -> Result<Self> {
        let column = wanted.column.clone();
        let dimension = table.vector_dimension(&column)?;
        let rows = table.row_count();
        let kind = wanted.kind.to_string();
        let needed = rows_min(wanted.kind);
        if rows < needed {
            let instead = instead(wanted.kind, dimension, rows);
            return Err(LakeError::TooFewRows { column, kind, rows, needed, instead });
        }
        if !takes(wanted.kind, dimension) {
            return Err(bad(format!(
                "column {column:?} has {dimension} dimensions, and {kind} needs a multiple of \
                 {RQ_DIMENSION_MULTIPLE}: {}",
                instead(wanted.kind, dimension, rows)
            )));
        }
        check_settings(wanted)?;
        let partitions = wanted.partitions.unwrap_or_else(|| default_partitions(rows));
        if partitions == 0 || partitions as u64 > rows {
            return Err(bad(format!(
                "{partitions} partitions for {}: choose 1 to {rows}, or leave it out",
                counted(rows, "row")
            )));
        }
        let ivf = IvfBuildParams::new(partitions);
        let metric = wanted.metric.to_lance();
        let params = match wanted.kind {
            VectorIndexKind::IvfRq => {
                VectorIndexParams::with_ivf_rq_params(metric, ivf, rabitq(wanted)?)
            }
            VectorIndexKind::IvfPq => {
                VectorIndexParams::with_ivf_pq_params(metric, ivf, product(wanted, dimension)?)
            }
            VectorIndexKind::IvfHnswSq => VectorIndexParams::with_ivf_hnsw_sq_params(
                metric,
                ivf,
                HnswBuildParams::default(),
                SQBuildParams::default(),
            ),
        };
        Ok(Self {
            column,
            index_type: params.index_type(),
            params: Box::new(params),
            category: "vector",
        })
    }

    fn text(table: &Table, column: &str, positions: bool) -> Result<Self> {
        let data_type = table.column_type(column)?;
        if !can_be_searched(data_type) {
            return Err(unsupported(
                column,
                data_type,
                "a full-text index is on strings or lists of strings",
            ));
        }
        let params = Box::new(InvertedIndexParams::default().with_position(positions));
        Ok(Self {
            column: column.to_owned(),
            index_type: IndexType::Inverted,
            params,
            category: "text",
        })
    }

    fn scalar(table: &Table, column: &str) -> Result<Self> {
        let data_type = table.column_type(column)?;
        let (index_type, builtin) = match data_type {
            DataType::List(_) | DataType::LargeList(_) => {
                (IndexType::LabelList, BuiltinIndexType::LabelList)
            }
            other if other.is_nested() || table.is_blob(column)? => {
                return Err(unsupported(
                    column,
                    other,
                    "a scalar index is on plain values or lists of them",
                ));
            }
            _ => (IndexType::BTree, BuiltinIndexType::BTree),
        };
        let params = Box::new(ScalarIndexParams::for_builtin(builtin));
        Ok(Self { column: column.to_owned(), index_type, params, category: "scalar" })
    }
}

fn bad(why: String) -> LakeError {
    LakeError::BadIndex { why }
}

/// The fewest rows on which an index can be trained.
fn rows_min(kind: VectorIndexKind) -> u64 {
    match kind {
        VectorIndexKind::IvfPq => PQ_ROWS_MIN,
        VectorIndexKind::IvfRq | VectorIndexKind::IvfHnswSq => 1,
    }
}

/// Returns whether an index of `kind` can compress vectors of `dimension`.
fn takes(kind: VectorIndexKind, dimension: usize) -> bool {
    kind != VectorIndexKind::IvfRq || dimension.is_multiple_of(RQ_DIMENSION_MULTIPLE)
}

/// The advice if an index of `kind` can't be built: other kinds and, while there are few rows, to search without an
/// index.
fn instead(kind: VectorIndexKind, dimension: usize, rows: u64) -> String {
    let can_be = |other: &VectorIndexKind| {
        *other != kind && rows >= rows_min(*other) && takes(*other, dimension)
    };
    let others = VectorIndexKind::ALL.into_iter().filter(can_be);
    let others: Vec<String> = others.map(|other| other.to_string()).collect();
    match rows {
        0 => "ingest rows first".to_owned(),
        _ if rows < PQ_ROWS_MIN => format!(
            "search without an index, which is exact and quick for so few, or choose {}",
            others.join(" or ")
        ),
        _ => format!("choose {}", others.join(" or ")),
    }
}

/// Checks that no setting belongs to another kind of index; Lance would ignore it silently. Errors: `BadIndex`.
fn check_settings(wanted: &VectorIndex) -> Result<()> {
    let kind = wanted.kind;
    if wanted.bits.is_some() && kind != VectorIndexKind::IvfRq {
        return Err(bad(format!("bits per dimension are a setting of ivf-rq, {kind} has none")));
    }
    if wanted.sub_vectors.is_some() && kind != VectorIndexKind::IvfPq {
        return Err(bad(format!("sub-vectors are a setting of ivf-pq, {kind} has none")));
    }
    Ok(())
}

fn rabitq(wanted: &VectorIndex) -> Result<RQBuildParams> {
    let mut params = RQBuildParams::default();
    params.num_bits = wanted.bits.unwrap_or(params.num_bits);
    if !(1..=9).contains(&params.num_bits) {
        return Err(bad(format!("{} bits per dimension: choose 1 to 9", params.num_bits)));
    }
    Ok(params)
}

fn product(wanted: &VectorIndex, dimension: usize) -> Result<PQBuildParams> {
    let codes = wanted.sub_vectors.unwrap_or_else(|| default_sub_vectors(dimension));
    if codes == 0 || !dimension.is_multiple_of(codes) {
        return Err(bad(format!("{codes} sub-vectors don't divide {dimension} dimensions")));
    }
    Ok(PQBuildParams::new(codes, 8))
}

fn unsupported(column: &str, data_type: &DataType, why: &str) -> LakeError {
    LakeError::UnsupportedType {
        column: column.to_owned(),
        data_type: data_type.to_string(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_advised_can_be_built() {
        use VectorIndexKind::{IvfPq, IvfRq};
        assert_eq!(instead(IvfRq, 12, 300), "choose ivf-pq or ivf-hnsw-sq");
        assert_eq!(instead(IvfPq, 16, 0), "ingest rows first");
        let few = instead(IvfRq, 12, 2);
        assert!(few.starts_with("search without an index, "), "{few}");
        assert!(few.ends_with("or choose ivf-hnsw-sq"), "{few}");
        assert!(instead(IvfPq, 16, 255).ends_with("or choose ivf-rq or ivf-hnsw-sq"));
        assert!(instead(IvfPq, 12, 255).ends_with("or choose ivf-hnsw-sq"));
    }
}
