//! Records a table's key column in the table's configuration, as a version of its own.
//!
//! The rows or the index are committed before. A failure here must not read as if nothing was committed: a caller who
//! then runs an append again would add the rows twice.

use lance::Dataset;

use crate::diagnose::diagnose;
use crate::error::{LakeError, Result};
use crate::table::KEY_COLUMN_CONFIG;

/// Records `column` as the key column of the table at `uri`. `dataset` is the version that was committed before, and
/// becomes the version with the record. `committed` begins the error's message: it says what the version that was
/// committed before has, with a verb ("the rows are").
///
/// If another writer records the same column at the same time, nothing is left to do, and `dataset` becomes the latest
/// version. All other failures are the error `KeyNotRecorded`.
pub(crate) async fn record_key_column(
    dataset: &mut Dataset,
    uri: &str,
    column: &str,
    committed: &'static str,
) -> Result<()> {
    let version = dataset.version_id();
    let updated = dataset.update_config([(KEY_COLUMN_CONFIG, column)]).await;
    let Err(error) = updated else { return Ok(()) };
    let why = match diagnose(uri, error) {
        LakeError::Conflict { .. } if is_recorded(dataset, column).await => return Ok(()),
        LakeError::Conflict { why, .. } => {
            format!("another writer changed it at the same time: {why}")
        }
        other => other.to_string(),
    };
    let (uri, column) = (uri.to_owned(), column.to_owned());
    Err(LakeError::KeyNotRecorded { uri, committed, version, column, why })
}

/// Changes `dataset` to the table's latest version. Returns whether that version records `column` as the key column. If
/// it can't be read, the conflict is reported, which is what the caller can act on.
async fn is_recorded(dataset: &mut Dataset, column: &str) -> bool {
    dataset.checkout_latest().await.is_ok()
        && dataset.config().get(KEY_COLUMN_CONFIG).is_some_and(|recorded| recorded == column)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, RecordBatch, RecordBatchIterator};
    use wire::Reason;

    use super::*;
    use crate::error::fault::fault_of;

    /// Returns the first version of a table with the columns `a` and `b`, whose latest version records the key `a`.
    async fn overtaken(uri: &str) -> Dataset {
        let column = || Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("a", column()), ("b", column())]).unwrap();
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        let first = Dataset::write(batches, uri, None).await.unwrap();
        record_key_column(&mut first.clone(), uri, "a", "the rows are").await.unwrap();
        first
    }

    #[tokio::test]
    async fn a_key_that_another_writer_records_at_the_same_time_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let mut dataset = overtaken(&uri).await;
        assert_eq!(dataset.version_id(), 1);
        record_key_column(&mut dataset, &uri, "a", "the rows are").await.unwrap();
        assert_eq!(dataset.version_id(), 2, "the version of the other writer");
        assert_eq!(dataset.config()[KEY_COLUMN_CONFIG], "a");
    }

    #[tokio::test]
    async fn a_conflict_over_the_key_says_what_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let mut dataset = overtaken(&uri).await;
        let recorded = record_key_column(&mut dataset, &uri, "b", "the rows are").await;
        let fault = fault_of(&recorded.unwrap_err());
        // `Conflict` would invite the caller to write the rows again.
        assert_eq!(fault.reason, Reason::Internal, "{fault}");
        let message = format!(
            "the rows are in version 1 of {uri}, but the key \"b\" was not recorded: run `bireme index --table {uri} \
             --key b` (another writer changed it at the same time: "
        );
        assert!(fault.message.starts_with(&message), "{fault}");
    }
}
