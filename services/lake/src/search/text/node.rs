//! Runs one node of Lance's plans of full-text searches.

use std::sync::{Arc, LazyLock};

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::TryStreamExt;
use lance_core::Result;

use crate::search::hit::{SCORE, f32_column, row_ids};

/// DataFusion's context for all searches. The default is enough, because a search of an index uses neither DataFusion's
/// memory pool nor its files.
static CONTEXT: LazyLock<Arc<TaskContext>> = LazyLock::new(Arc::default);

/// Returns the ids and the scores of the rows that `node` finds.
pub(in crate::search) async fn run(node: &dyn ExecutionPlan) -> Result<(Vec<u64>, Vec<f32>)> {
    let (mut ids, mut scores) = (Vec::new(), Vec::new());
    let mut batches = node.execute(0, Arc::clone(&CONTEXT))?;
    while let Some(batch) = batches.try_next().await? {
        ids.extend_from_slice(row_ids(&batch)?);
        scores.extend_from_slice(f32_column(&batch, SCORE)?);
    }
    Ok((ids, scores))
}
