//! Builds indexes.
//!
//! A build first writes files under its own id and then commits them. If it fails or is interrupted before the commit,
//! the files with its id are removed. A commit that has begun is not interrupted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, TransactionBuilder};
use lance::index::DatasetIndexExt;
use lance_core::datatypes::LANCE_UNENFORCED_PRIMARY_KEY;
use lance_table::format::IndexMetadata;
use uuid::Uuid;

use super::duplicates::{self, DuplicateKeys};
use super::plan::Plan;
use super::progress::{IndexProgress, Reporter};
use super::request::IndexRequest;
use crate::diagnose::{diagnose, one_line};
use crate::error::{LakeError, Result};
use crate::index::key_record::record_key_column;
use crate::lake::Lake;
use crate::store::unmarked;
use crate::table::Table;

/// The result of building an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSummary {
    /// The index's name.
    pub name: String,
    /// Its column.
    pub column: String,
    /// Lance's name of its kind.
    pub kind: String,
    /// The number of live rows that the index covers.
    pub rows: u64,
    /// The last version of the table that the build committed, or a later one if another writer recorded the same key
    /// column meanwhile. It has the index and, for a key, the record of the key column.
    pub version: u64,
    /// The keys that aren't unique; `None` if all are unique, or if the request was not [`IndexRequest::Key`].
    pub duplicates: Option<DuplicateKeys>,
    /// The duration.
    pub took: Duration,
}

/// Builds an index over all rows of the latest version of the table at `uri` and commits it as a new version. A key
/// column is recorded in one or two further versions. A new vector index replaces the column's vector index, a new
/// full-text index its full-text index, and a new scalar index its scalar index of the same kind. `progress` is called
/// often, from Lance's threads too; it must not block.
///
/// Errors: `ColumnNotFound`, `NotAVector`, `UnsupportedType`, `TooFewRows`, `BadIndex` (settings), `CompositeKey`,
/// `AnotherKey`, `NullKeys`, `Conflict`, `Interrupted`, `KeyNotRecorded` (the index is committed), and those of
/// [`Lake::open`].
pub async fn build_index(
    lake: &Lake,
    uri: &str,
    request: &IndexRequest,
    progress: impl Fn(IndexProgress) + Send + Sync + 'static,
) -> Result<IndexSummary> {
    let started = Instant::now();
    let stop = lake.stop();
    let table = stop.unless(uri, lake.open(uri)).await?;
    let plan = Plan::new(&table, request)?;
    let name = index_name(&table, &plan).await?;
    let reporter = Arc::new(Reporter::new(progress));
    let duplicates = match request {
        IndexRequest::Key { column, replace } => {
            table.check_key(column, *replace)?;
            stop.unless(uri, duplicates::find(&table, column, &reporter)).await?
        }
        _ => None,
    };
    let id = Uuid::new_v4();
    let built = stop.unless(uri, build(&table, &plan, &name, id, reporter)).await;
    let index = match built {
        Ok(index) => index,
        Err(error) => {
            remove_files(table.dataset(), id).await;
            return Err(error);
        }
    };
    let committed = commit(table.dataset(), index).await;
    let mut dataset = committed.map_err(|error| table.blame(error))?;
    if let IndexRequest::Key { column, .. } = request {
        record_key(&mut dataset, table.uri(), column).await?;
    }
    Ok(IndexSummary {
        name,
        column: plan.column,
        kind: plan.index_type.to_string(),
        rows: table.row_count(),
        version: dataset.version_id(),
        duplicates,
        took: started.elapsed(),
    })
}

/// Writes the index's files. No version refers to them yet.
async fn build(
    table: &Table,
    plan: &Plan,
    name: &str,
    id: Uuid,
    reporter: Arc<Reporter>,
) -> Result<IndexMetadata> {
    let mut dataset = table.dataset().as_ref().clone();
    let columns = [plan.column.as_str()];
    let mut builder = dataset
        .create_index_builder(&columns, plan.index_type, plan.params.as_ref())
        .name(name.to_owned())
        .replace(true)
        .index_uuid(id)
        .progress(reporter);
    builder.execute_uncommitted().await.map_err(|error| build_fault(table, plan, error))
}

/// Commits a new version with `index`, which replaces indexes of the same name.
async fn commit(dataset: &Arc<Dataset>, index: IndexMetadata) -> lance::Result<Dataset> {
    let there = dataset.load_indices().await?;
    let removed_indices = there.iter().filter(|it| it.name == index.name).cloned().collect();
    let version = index.dataset_version;
    let operation = Operation::CreateIndex { new_indices: vec![index], removed_indices };
    let transaction = TransactionBuilder::new(version, operation).build();
    CommitBuilder::new(dataset.clone()).execute(transaction).await
}

/// Removes the files of the index `id`, which was never committed.
async fn remove_files(dataset: &Dataset, id: Uuid) {
    let folder = dataset.indices_dir().join(id.to_string());
    let removed = async { dataset.object_store(None).await?.remove_dir_all(folder).await };
    match removed.await {
        Ok(()) | Err(lance::Error::NotFound { .. }) => {}
        Err(error) => {
            let error = unmarked(&error.to_string());
            tracing::warn!(%error, %id, "files of an index that was not built remain");
        }
    }
}

/// Returns the name of the existing index that the new one replaces (see [`build_index`]), whoever made it. If there is
/// none, the name consists of column and category.
async fn index_name(table: &Table, plan: &Plan) -> Result<String> {
    let same_category = |kind: &str, vector: bool, text: bool| match plan.category {
        "vector" => vector,
        "text" => text,
        _ => !vector && !text && kind == plan.index_type.to_string(),
    };
    let indexes = table.indexes().await?;
    let there = indexes.iter().find(|it| {
        it.columns == [plan.column.as_str()]
            && same_category(&it.kind, it.is_vector(), it.is_text())
    });
    Ok(there
        .map_or_else(|| format!("{}_{}", plan.column, plan.category), |index| index.name.clone()))
}

/// Converts an error of the build. If Lance reports bad input while training, the column's contents are at fault.
fn build_fault(table: &Table, plan: &Plan, error: lance::Error) -> LakeError {
    match &error {
        lance::Error::InvalidInput { .. }
        | lance::Error::Unprocessable { .. }
        | lance::Error::Index { .. } => {
            let data_type =
                table.column_type(&plan.column).map(ToString::to_string).unwrap_or_default();
            let why = one_line(&error.to_string());
            LakeError::UnsupportedType { column: plan.column.clone(), data_type, why }
        }
        _ => diagnose(table.uri(), error),
    }
}

/// Records the key column in the table's configuration. That record takes precedence over Lance's unenforced primary
/// key and can be changed later. If the table has no such primary key and the column is declared non-null, the column
/// is recorded as the primary key too.
async fn record_key(dataset: &mut Dataset, uri: &str, column: &str) -> Result<()> {
    record_key_column(dataset, uri, column, "the index is").await?;
    let declared = dataset.schema().unenforced_primary_key().is_empty();
    let nullable =
        dataset.schema().fields.iter().any(|field| field.name == column && field.nullable);
    if declared && !nullable {
        let update = dataset
            .update_field_metadata()
            .update(column, [(LANCE_UNENFORCED_PRIMARY_KEY, "true")]);
        let updated = match update {
            Ok(update) => update.await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = updated {
            let error = unmarked(&error.to_string());
            tracing::warn!(%error, column, "the key column is recorded, but not in Lance's own way");
        }
    }
    Ok(())
}
