//! Builds indexes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::DataType;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance::index::vector::VectorIndexParams;
use lance_core::datatypes::LANCE_UNENFORCED_PRIMARY_KEY;
use lance_index::scalar::{BuiltinIndexType, InvertedIndexParams, ScalarIndexParams};
use lance_index::vector::bq::RQBuildParams;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::pq::PQBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;
use lance_index::{IndexParams, IndexType};

use super::progress::{IndexProgress, Reporter};
use super::request::{
    IndexRequest, VectorIndex, VectorIndexKind, default_partitions, default_sub_vectors,
};
use crate::diagnose::{diagnose, one_line};
use crate::error::{LakeError, Result};
use crate::lake::Lake;
use crate::search::can_be_key;
use crate::table::{KEY_COLUMN_CONFIG, Table};

/// Rows that product quantization is trained on at least: one for each of its 256 centroids.
const PQ_ROWS_MIN: u64 = 256;

/// What was built.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSummary {
    /// The index's name.
    pub name: String,
    /// Its column.
    pub column: String,
    /// Lance's name of its kind.
    pub kind: String,
    /// Live rows it covers.
    pub rows: u64,
    /// The version of the table that has it.
    pub version: u64,
    /// How long it took.
    pub took: Duration,
}

/// Builds an index over all rows of the latest version of the table at `uri` and commits it as a
/// new version. One of the same sort on the same column is replaced. `progress` is called from
/// Lance's threads, often; it must not block.
///
/// Errors: `ColumnNotFound`, `NotAVector`, `UnsupportedType`, `TooFewRows`, `BadQuery` (settings
/// that can't be), `Conflict`, and those of [`Lake::open`].
pub async fn build_index(
    lake: &Lake,
    uri: &str,
    request: &IndexRequest,
    progress: impl Fn(IndexProgress) + Send + Sync + 'static,
) -> Result<IndexSummary> {
    let started = Instant::now();
    let table = lake.open(uri).await?;
    let mut dataset = table.dataset().as_ref().clone();
    let plan = Plan::new(&table, request)?;
    let name = index_name(&table, &plan).await?;
    let reporter = Arc::new(Reporter::new(progress));
    let built = dataset
        .create_index_builder(&[&plan.column], plan.index_type, plan.params.as_ref())
        .name(name.clone())
        .replace(true)
        .progress(reporter)
        .await;
    built.map_err(|error| build_fault(&table, &plan, error))?;
    if let IndexRequest::Key { column } = request {
        record_key(&mut dataset, column).await.map_err(|error| diagnose(table.uri(), error))?;
    }
    Ok(IndexSummary {
        name,
        column: plan.column,
        kind: plan.index_type.to_string(),
        rows: table.row_count(),
        version: dataset.version_id(),
        took: started.elapsed(),
    })
}

/// A request, checked against the table and put into Lance's terms.
struct Plan {
    column: String,
    index_type: IndexType,
    params: Box<dyn IndexParams>,
    /// Part of the index's name.
    sort: &'static str,
}

impl Plan {
    fn new(table: &Table, request: &IndexRequest) -> Result<Self> {
        match request {
            IndexRequest::Vector(vector) => Self::vector(table, vector),
            IndexRequest::Text { column } => Self::text(table, column),
            IndexRequest::Scalar { column } => Self::scalar(table, column),
            IndexRequest::Key { column } => {
                let data_type = column_type(table, column)?;
                if !can_be_key(&data_type) {
                    return Err(unsupported(
                        column,
                        &data_type,
                        "keys are strings, integers or binary",
                    ));
                }
                Self::scalar(table, column)
            }
        }
    }

    fn vector(table: &Table, wanted: &VectorIndex) -> Result<Self> {
        let column = wanted.column.clone();
        let dimension = table.vector_dimension(&column)?;
        let rows = table.row_count();
        let needed = if wanted.kind == VectorIndexKind::IvfPq { PQ_ROWS_MIN } else { 1 };
        if rows < needed {
            return Err(LakeError::TooFewRows {
                column,
                kind: wanted.kind.to_string(),
                rows,
                needed,
            });
        }
        let bad = |why: String| LakeError::BadQuery { why };
        let partitions = wanted.partitions.unwrap_or_else(|| default_partitions(rows));
        if partitions == 0 || partitions as u64 > rows {
            return Err(bad(format!(
                "{partitions} partitions for {rows} rows: choose 1 to {rows}"
            )));
        }
        let ivf = IvfBuildParams::new(partitions);
        let metric = wanted.metric.to_lance();
        let params = match wanted.kind {
            VectorIndexKind::IvfRq => {
                let mut rq = RQBuildParams::default();
                rq.num_bits = wanted.bits.unwrap_or(rq.num_bits);
                if !(1..=9).contains(&rq.num_bits) {
                    return Err(bad(format!("{} bits per dimension: choose 1 to 9", rq.num_bits)));
                }
                VectorIndexParams::with_ivf_rq_params(metric, ivf, rq)
            }
            VectorIndexKind::IvfPq => {
                let codes = wanted.sub_vectors.unwrap_or_else(|| default_sub_vectors(dimension));
                if codes == 0 || !dimension.is_multiple_of(codes) {
                    return Err(bad(format!(
                        "{codes} sub-vectors don't divide {dimension} dimensions"
                    )));
                }
                VectorIndexParams::with_ivf_pq_params(metric, ivf, PQBuildParams::new(codes, 8))
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
            sort: "vector",
        })
    }

    fn text(table: &Table, column: &str) -> Result<Self> {
        let data_type = column_type(table, column)?;
        let is_text = |it: &DataType| matches!(it, DataType::Utf8 | DataType::LargeUtf8);
        let right = match &data_type {
            DataType::List(item) | DataType::LargeList(item) => is_text(item.data_type()),
            other => is_text(other),
        };
        if !right {
            return Err(unsupported(
                column,
                &data_type,
                "a full-text index is on strings or lists of strings",
            ));
        }
        let params = Box::new(InvertedIndexParams::default());
        Ok(Self {
            column: column.to_owned(),
            index_type: IndexType::Inverted,
            params,
            sort: "text",
        })
    }

    fn scalar(table: &Table, column: &str) -> Result<Self> {
        let data_type = column_type(table, column)?;
        let (index_type, builtin) = match &data_type {
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
        Ok(Self { column: column.to_owned(), index_type, params, sort: "scalar" })
    }
}

fn column_type(table: &Table, column: &str) -> Result<DataType> {
    Ok(table.schema().fields()[table.column_position(column)?].data_type().clone())
}

fn unsupported(column: &str, data_type: &DataType, why: &str) -> LakeError {
    LakeError::UnsupportedType {
        column: column.to_owned(),
        data_type: data_type.to_string(),
        why: why.to_owned(),
    }
}

/// The name of the index of the same sort that is on the column already, so that it is replaced
/// whoever made it; else one made of column and sort.
async fn index_name(table: &Table, plan: &Plan) -> Result<String> {
    let same_sort = |kind: &str, vector: bool, text: bool| match plan.sort {
        "vector" => vector,
        "text" => text,
        _ => !vector && !text && kind == plan.index_type.to_string(),
    };
    let indexes = table.indexes().await?;
    let there = indexes.iter().find(|it| {
        it.columns == [plan.column.as_str()] && same_sort(&it.kind, it.is_vector(), it.is_text())
    });
    Ok(there.map_or_else(|| format!("{}_{}", plan.column, plan.sort), |index| index.name.clone()))
}

/// What Lance reports as bad input while training is about the column's contents.
fn build_fault(table: &Table, plan: &Plan, error: lance::Error) -> LakeError {
    match &error {
        lance::Error::InvalidInput { .. }
        | lance::Error::Unprocessable { .. }
        | lance::Error::Index { .. } => {
            let data_type =
                column_type(table, &plan.column).map(|it| it.to_string()).unwrap_or_default();
            let why = one_line(&error.to_string());
            LakeError::UnsupportedType { column: plan.column.clone(), data_type, why }
        }
        _ => diagnose(table.uri(), error),
    }
}

/// As Lance's unenforced primary key if the column is declared non-null; in any case in the
/// table's configuration, which wins and can be changed later.
async fn record_key(dataset: &mut Dataset, column: &str) -> lance::Result<()> {
    dataset.update_config([(KEY_COLUMN_CONFIG, column)]).await?;
    let declared = dataset.schema().unenforced_primary_key().is_empty();
    let nullable =
        dataset.schema().fields.iter().any(|field| field.name == column && field.nullable);
    if declared && !nullable {
        let update = dataset
            .update_field_metadata()
            .update(column, [(LANCE_UNENFORCED_PRIMARY_KEY, "true")])?;
        if let Err(error) = update.await {
            tracing::warn!(%error, column, "the key column is recorded, but not in Lance's own way");
        }
    }
    Ok(())
}
